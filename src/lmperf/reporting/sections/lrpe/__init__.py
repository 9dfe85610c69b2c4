"""The report section on md_lrpe_cosine: its kernels against PyTorch and a copy, and tests."""

from lmperf.reporting.sections import Section
from lmperf.reporting.sections.lrpe.chart import charts
from lmperf.reporting.sections.lrpe.figure import figure
from lmperf.reporting.sections.lrpe.findings import FINDINGS
from lmperf.reporting.sections.lrpe.tables import TABLES, head

SECTION = Section(findings=FINDINGS, head=head, tables=TABLES, figure=figure, charts=charts)
