"""The report section on plain PyTorch attention: time, memory, and the longest length that fits."""

from lmperf.reporting.sections import Section
from lmperf.reporting.sections.attention.chart import charts
from lmperf.reporting.sections.attention.figure import figure
from lmperf.reporting.sections.attention.findings import FINDINGS
from lmperf.reporting.sections.attention.tables import TABLES, head

SECTION = Section(findings=FINDINGS, head=head, tables=TABLES, figure=figure, charts=charts)
