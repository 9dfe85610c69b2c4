"""The report section on several GPUs: collectives, strategies of training, their memory.

Each module of this package exports `TABLES` and `FINDINGS`; the page has the tables in the order of
their numbers.
"""

from lmperf.reporting.sections import Section
from lmperf.reporting.sections.distributed import (
    all_reduces,
    bound,
    collectives,
    fit,
    leaderboard,
    memory,
    model,
    overlap,
    scaling,
    sharding,
    steps,
)
from lmperf.reporting.sections.distributed.chart import charts
from lmperf.reporting.sections.distributed.figure import figure

_TOPICS = (
    *(collectives, scaling, steps, overlap, model, memory, sharding),
    *(fit, bound, all_reduces, leaderboard),
)

SECTION = Section(
    findings=tuple(finding for topic in _TOPICS for finding in topic.FINDINGS),
    tables=tuple(
        sorted(
            (table for topic in _TOPICS for table in topic.TABLES),
            key=lambda table: int(table.id.removeprefix("D")),
        )
    ),
    head=steps.head,
    figure=figure,
    charts=charts,
)
