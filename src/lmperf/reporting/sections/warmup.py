"""Warm-up: the first train steps of a new process."""

from __future__ import annotations

from functools import cached_property

import pandas as pd

from lmperf.reporting.frames import having, matching, required
from lmperf.reporting.rows import Rows
from lmperf.reporting.sections import Section
from lmperf.reporting.words import Range
from lmperf.transformer.sizes import SHORT

STEM = "warmup"
PROCESS = ["size", "context_length", "batch", "dtype", "implementation"]
WARM_UPS = (0, 1, 2, 5)
TIMED = 10
PARTS = ("forward", "backward", "optimizer")
MOST = 0.5  # a part that has more of the first step's cost in every process explains it


class Warmup(Section):
    """A line for each process: its steps, their mean after warm-up steps, the first one's cost."""

    timed, warm_ups, parts = TIMED, WARM_UPS, PARTS

    @cached_property
    def every(self) -> Rows:
        """Every step of each process; `waits` is that of E1."""
        rows = self.rows(STEM).valid.frame.astype({"step": int})
        # A process that lost a row of its first steps costs itself only.
        begins = rows["step"].isin((1, 2)).groupby([rows[axis] for axis in PROCESS])
        rows = rows[begins.transform("sum") == 2]
        timed = self.rows("end_to_end").where(phase="train_step").valid.frame
        waits = matching(rows, timed, PROCESS)["waits"].eq(True)
        return self.rows(STEM, rows.assign(waits=waits))

    @cached_property
    def series(self) -> pd.DataFrame:
        """All steps of each process; columns: (quantity, number of the step)."""
        what = ["step_ms", *(f"{part}_ms" for part in PARTS), "reserved_mib"]
        return self.every.frame.pivot(index=PROCESS, columns="step", values=what)

    @cached_property
    def processes(self) -> Rows:
        """The first step of each process, with columns over all steps."""
        first = required(having(self.every.frame, step=1), "no process has its first steps")
        series = self.series.reindex(pd.MultiIndex.from_frame(first[PROCESS]))
        return self.every.kept(first.assign(**_columns(series.set_axis(first.index))))

    @property
    def subjects(self) -> list[str]:
        """The custom implementations that sentences are about; none: all of lmperf's."""
        return self.evidence.subjects(STEM)

    @cached_property
    def of_subjects(self) -> Rows:
        """The processes that sentences are about."""
        rows = self.processes
        return rows.where(implementation=self.subjects) if self.subjects else rows

    @property
    def reserving(self) -> int:
        """The last step in which the allocator asked for memory; 0: it never did."""
        rows = self.every.query("reserved_mib > 0").frame
        rows = having(rows, implementation=self.subjects) if self.subjects else rows
        return max(rows["step"], default=0)

    @property
    def ratio(self) -> Range:
        """The first step over the second."""
        return self.of_subjects.range("step_1 / step_2")

    @property
    def cost(self) -> Range:
        """Milliseconds that the first step takes longer than later ones."""
        return self.of_subjects.range("cost")

    @property
    def is_longer(self) -> bool:
        """Whether each process's first step is longer than its second, beyond the noise floor."""
        return self.ratio.low > 1 + self.evidence.floors[self.of("repeatability").steps]

    @property
    def growth(self) -> float:
        """How many times as many parameters the largest model has as the smallest."""
        counts = [
            SHORT[size].parameters() for size in self.of_subjects.sound["size"] if size in SHORT
        ]
        counts = required(counts, "no size is known")
        return max(counts) / min(counts)

    def share(self, part: str) -> Range:
        """The share of a part in the cost of the first step."""
        return self.of_subjects.range(f"{part}_cost / parts_cost")

    @property
    def part(self) -> str:
        """The part that has most of the cost in every process."""
        most = [part for part in PARTS if self.share(part).low > MOST]
        return required(most, "no part has most of the first step's cost")[0]


def _columns(series: pd.DataFrame) -> dict[str, pd.Series]:
    """What the lines of the tables show of the steps of each process."""
    steps = series["step_ms"]
    columns = {f"step_{n}": steps[n] for n in (1, 2)}
    for n in WARM_UPS:
        timed = steps[[step for step in steps if n < step <= n + TIMED]]
        columns |= {f"after_{n}": timed.mean(axis=1), f"after_{n}_std": timed.std(axis=1, ddof=1)}
    for part in PARTS:
        times = series[f"{part}_ms"]
        later = times.drop(columns=1).median(axis=1)
        columns |= {f"{part}_1": times[1], f"{part}_later": later, f"{part}_cost": times[1] - later}
    columns["parts_cost"] = sum(columns[f"{part}_cost"] for part in PARTS)
    columns["cost"] = steps[1] - steps.drop(columns=1).median(axis=1)
    reserved = series["reserved_mib"]
    return columns | {f"reserved_{n}": reserved[n] for n in reserved}
