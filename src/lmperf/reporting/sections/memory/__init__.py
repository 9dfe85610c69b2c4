"""The report section on memory: measured and predicted peaks, tensors over time, checkpoints."""

from lmperf.reporting.sections import Section
from lmperf.reporting.sections.memory import checkpoints
from lmperf.reporting.sections.memory.chart import charts
from lmperf.reporting.sections.memory.figure import figure
from lmperf.reporting.sections.memory.findings import FINDINGS
from lmperf.reporting.sections.memory.peaks import TABLES as PEAKS
from lmperf.reporting.sections.memory.peaks import head
from lmperf.reporting.sections.memory.timeline import TABLES as TIMELINE

SECTION = Section(
    findings=(*FINDINGS, checkpoints.FINDING),
    head=head,
    tables=(*PEAKS, *TIMELINE, checkpoints.TABLE),
    figure=figure,
    charts=charts,
)
