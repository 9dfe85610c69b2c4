"""End to end: what a step of a Transformer language model takes, and what makes it faster."""

from lmperf.reporting.sections import Section
from lmperf.reporting.sections.end_to_end import ladder, warmup
from lmperf.reporting.sections.end_to_end.figure import figure
from lmperf.reporting.sections.end_to_end.findings import FINDINGS
from lmperf.reporting.sections.end_to_end.tables import COMPARED, FURTHER, PHASES, head

SECTION = Section(
    findings=(*FINDINGS, *ladder.FINDINGS, *warmup.FINDINGS),
    head=head,
    tables=(PHASES, warmup.TABLE, *COMPARED, ladder.TABLE, FURTHER),
    figure=figure,
)
