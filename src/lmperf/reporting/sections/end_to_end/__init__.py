"""End to end: what a step of a Transformer language model takes, and what makes it faster."""

from lmperf.reporting.sections import Section
from lmperf.reporting.sections.end_to_end import warmup
from lmperf.reporting.sections.end_to_end.figure import figure
from lmperf.reporting.sections.end_to_end.findings import FINDINGS
from lmperf.reporting.sections.end_to_end.head import head
from lmperf.reporting.sections.end_to_end.tables import TABLES

SECTION = Section(
    findings=(*FINDINGS, *warmup.FINDINGS),
    head=head,
    tables=(TABLES[0], warmup.TABLE, *TABLES[1:]),
    figure=figure,
)
