"""External implementations: custom ones of the user, and peers (`lmperf.peers`).

Neither the benchmark nor `lmperf.names` knows the name of an external implementation.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

import pandas as pd

from lmperf.benchmark import Timed
from lmperf.benchmarks import load
from lmperf.names import IMPLEMENTATIONS, implementation_words, in_order
from lmperf.reporting.columns import Quantity, largest_error, over, time
from lmperf.reporting.evidence import Evidence
from lmperf.reporting.frames import having, matching, required
from lmperf.reporting.gains import Gain, rows_over
from lmperf.reporting.numbers import of_rows
from lmperf.reporting.rows import Rows
from lmperf.reporting.sections import Section
from lmperf.reporting.words import Count, NotMeasured, Range

# Phases that contain all others: a sentence is about the first one that was timed.
WHOLE = ("train_step", "forward_backward")


class External(Section):
    """The external implementations of some benchmarks."""

    def each(self, *stems: str) -> list[Compared]:
        """One for each benchmark and external implementation in it that is no subject."""
        return [
            Compared(self.evidence, stem, name)
            for stem in stems
            for name in external_names(self.evidence, stem)
            if name not in self.evidence.subjects(stem)
        ]

    def of_subjects(self, *stems: str) -> list[Compared]:
        """One for each benchmark and custom implementation that the report is about."""
        return [
            Compared(self.evidence, stem, name)
            for stem in stems
            for name in self.evidence.subjects(stem)
            if name in external_names(self.evidence, stem)
        ]


def external_names(evidence: Evidence, stem: str) -> list[str]:
    """Sorted names of the external implementations among the rows of a timed benchmark."""
    benchmark = load(stem)
    if not isinstance(benchmark, Timed):
        return []
    grids = (grid for grids in benchmark.grids.values() for grid in grids)
    named = {*(declared.name for declared in benchmark.implementations), *IMPLEMENTATIONS}
    named |= {name for grid in grids for name in grid["implementation"]}
    return sorted(set(evidence.rows(stem)["implementation"]) - named)


def another_model(rows: pd.DataFrame) -> pd.Series:
    """Whether each row's model has another number of parameters than lmperf's of that size."""
    if "parameters" not in rows:
        return pd.Series(False, rows.index)
    ours = having(rows, implementation="eager").groupby("size")["parameters"].max()
    expected = rows["size"].map(ours)
    return expected.notna() & rows["parameters"].notna() & (rows["parameters"] != expected)


@dataclass(frozen=True)
class Compared:
    """An external implementation in a benchmark, beside all others there.

    Attributes:
        stem: the benchmark.
        name: of the implementation.
    """

    evidence: Evidence
    stem: str
    name: str

    @cached_property
    def frame(self) -> pd.DataFrame:
        return self.evidence.rows(self.stem)

    @property
    def words(self) -> str:
        """What a report calls it."""
        return self.named(self.name)

    @cached_property
    def rows(self) -> Rows:
        """Its rows, of phases in which it was not only unsupported."""
        mine = having(self.frame, implementation=self.name)
        ran = mine["state"] != "unsupported"
        return Rows(self.evidence, self.stem, mine[ran.groupby(mine["phase"]).transform("any")])

    @property
    def axes(self) -> str:
        """The axes of the benchmark, as a template writes them in a table."""
        return " ".join(f"{{{axis.name}}}" for axis in load(self.stem).axes)

    @cached_property
    def others(self) -> list[str]:
        """The other implementations in reading order: lmperf's; if there is none, external ones."""
        timed = self.frame[self.frame["state"].isna()]
        names = [n for n in in_order("implementation", timed["implementation"]) if n != self.name]
        external = external_names(self.evidence, self.stem)
        return [name for name in names if name not in external] or names

    @property
    def columns(self) -> list[Quantity]:
        """Its time, its speed-ups over each other one, and its error beside the bound."""
        gains = [over(self.name, other, f"over {self.named(other)}") for other in self.others]
        gains = [replace(gain, note="") for gain in gains]
        return [time(self.name, "time"), *gains, largest_error()]

    def named(self, implementation: str) -> str:
        """An implementation in words."""
        return implementation_words(implementation, self.frame.columns)

    # What a sentence says.

    @cached_property
    def phases(self) -> list[str]:
        """The phases of the sentence: a whole step if it was timed, else all."""
        timed = self.rows.valid.frame
        phases = in_order("phase", timed["phase"])
        return next(([phase] for phase in WHOLE if phase in phases), phases)

    @cached_property
    def fastest(self) -> tuple[str, Gain, Count]:
        """The fastest of the other implementations, the speed-ups over it, and of how many cells.

        One that can be judged in less than half as many cells as another does not count.
        """
        gains = []
        for other in self.others:
            ways = ({"implementation": name} for name in (self.name, other))
            timed = having(rows_over(self.evidence, self.stem, *ways), phase=self.phases)
            with suppress(NotMeasured):
                gain = Gain(timed)
                judged = Count(len(gain.rows), int(timed["ratio"].notna().sum()))
                gains.append((other, gain, judged))
        most = max((judged.k for *_, judged in gains), default=0)
        most_judged = required(
            [gain for gain in gains if 2 * gain[2].k >= most], f"{self.name} is not compared"
        )
        return min(most_judged, key=lambda gain: gain[1].mean)

    @property
    def is_another_model(self) -> bool:
        """Whether its model has another number of parameters than lmperf's."""
        return bool(another_model(self.frame)[self.rows.frame.index].any())

    @property
    def flops_share(self) -> Range:
        """Its FLOPs over those of lmperf's model in the same cells."""
        keys = [name for name in load(self.stem).identity if name != "implementation"]
        ours = matching(self.rows.frame, having(self.frame, implementation="eager"), keys)
        return of_rows(Range.of(self.rows.frame["flops"] / ours["flops"]), self.rows.frame)

    @property
    def entry(self) -> str:
        """The module and function that the machine's file names for it; empty if unknown."""
        declared = self.evidence.declared(self.stem).get(self.name)
        return declared.entry if declared else ""
