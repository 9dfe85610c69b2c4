"""The report section on profiles: kernels and their classes, parts of attention, traces."""

from lmperf.reporting.sections import Section
from lmperf.reporting.sections.profiles.chart import charts
from lmperf.reporting.sections.profiles.figure import figure
from lmperf.reporting.sections.profiles.findings import FINDINGS
from lmperf.reporting.sections.profiles.tables import TABLES, head

SECTION = Section(findings=FINDINGS, head=head, tables=TABLES, figure=figure, charts=charts)
