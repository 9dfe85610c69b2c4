"""End to end: what a step of a Transformer language model takes, and what makes it faster."""

from lmperf.reporting.sections import Section
from lmperf.reporting.sections.end_to_end import warmup
from lmperf.reporting.sections.end_to_end.figure import figure
from lmperf.reporting.sections.end_to_end.findings import FINDINGS
from lmperf.reporting.sections.end_to_end.tables import COMPARED, PHASES, head

SECTION = Section(
    findings=(*FINDINGS, warmup.FINDING),
    head=head,
    tables=(PHASES, warmup.TABLE, *COMPARED),
    figure=figure,
)
