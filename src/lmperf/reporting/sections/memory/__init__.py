"""The report section on memory: measured and predicted peaks, and tensors over time."""

from lmperf.reporting.sections import Section
from lmperf.reporting.sections.memory.figure import figure
from lmperf.reporting.sections.memory.findings import FINDINGS
from lmperf.reporting.sections.memory.peaks import TABLES as PEAKS
from lmperf.reporting.sections.memory.peaks import head
from lmperf.reporting.sections.memory.timeline import TABLES as TIMELINE

SECTION = Section(findings=FINDINGS, head=head, tables=(*PEAKS, *TIMELINE), figure=figure)
