"""The report section on FlashAttention-2: our kernel against plain attention and SDPA."""

from lmperf.reporting.sections import Section
from lmperf.reporting.sections.flash_attention.chart import charts
from lmperf.reporting.sections.flash_attention.figure import figure
from lmperf.reporting.sections.flash_attention.findings import FINDINGS
from lmperf.reporting.sections.flash_attention.tables import TABLES, head

SECTION = Section(findings=FINDINGS, head=head, tables=TABLES, figure=figure, charts=charts)
