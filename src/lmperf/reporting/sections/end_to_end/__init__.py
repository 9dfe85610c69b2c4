"""The report section on Transformer train steps end to end: time, and what makes it shorter."""

from lmperf.reporting.sections import Section
from lmperf.reporting.sections.end_to_end import (
    ladder,
    ladder_findings,
    leaderboard,
    recipes,
    warmup,
    why,
)
from lmperf.reporting.sections.end_to_end.chart import charts
from lmperf.reporting.sections.end_to_end.figure import figure
from lmperf.reporting.sections.end_to_end.findings import FINDINGS
from lmperf.reporting.sections.end_to_end.tables import COMPARED, FURTHER, PHASES, head

SECTION = Section(
    findings=(
        *ladder_findings.FINDINGS,
        *FINDINGS,
        *why.FINDINGS,
        *warmup.FINDINGS,
        leaderboard.FINDING,
    ),
    first=recipes.tables,
    head=head,
    tables=(PHASES, warmup.TABLE, *COMPARED, ladder.TABLE, FURTHER, leaderboard.TABLE),
    figure=figure,
    charts=charts,
)
