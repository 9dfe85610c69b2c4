"""Plain PyTorch attention, eager and compiled, and where it runs out of memory."""

from lmperf.reporting.sections import Section
from lmperf.reporting.sections.attention.figure import figure
from lmperf.reporting.sections.attention.findings import FINDINGS
from lmperf.reporting.sections.attention.tables import TABLES, head

SECTION = Section(findings=FINDINGS, head=head, tables=TABLES, figure=figure)
