"""FlashAttention-2 against plain attention and the backends of PyTorch."""

from lmperf.reporting.sections import Section
from lmperf.reporting.sections.flash_attention.figure import figure
from lmperf.reporting.sections.flash_attention.findings import FINDINGS
from lmperf.reporting.sections.flash_attention.tables import TABLES, head

SECTION = Section(findings=FINDINGS, head=head, tables=TABLES, figure=figure)
