"""Peak memory, measured and predicted: the rows and calculations of the template of this name.

Whether other processes loaded the machine does not concern a peak, so all valid rows count.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import pandas as pd

from lmperf.names import in_order
from lmperf.reporting.calculations.steps import AUTOCAST, CELL, EAGER, FLOAT32, STEP
from lmperf.reporting.columns import Quantity, known_size
from lmperf.reporting.evidence import Evidence
from lmperf.reporting.frames import LAST, are_within, at, having, matching, required
from lmperf.reporting.numbers import of_rows
from lmperf.reporting.rows import Rows
from lmperf.reporting.sections import Section
from lmperf.reporting.words import MIB_IN_GIB, NotMeasured, Range

STEM = "memory"
UNITS = {"GiB": MIB_IN_GIB, "MiB": 1}  # in MiB
USUAL_CONTEXT = 512
STATE = ("parameters", "gradients", "optimizer")
COMPONENTS = (
    *("parameters", "weight_copies", "gradients", "optimizer", "activations", "temporary"),
    *("inputs", "workspace"),
)
LEAST_COPIES = 0.01  # of a peak; where copies of weights take less, it comes after their use


class Autocast(NamedTuple):
    """What bf16 autocast changes in a train step.

    Attributes:
        change: of the peaks of all sizes, relative to float32.
        size: the largest size whose peak has copies of weights; of its step:
        copies: GiB of the bf16 copies of weights, predicted.
        saved: GiB that activations shrink by, predicted.
    """

    change: Range
    size: str
    copies: float
    saved: float


class Memory(Section):
    """Peaks of forwards and train steps, with the changes that Y1 shows.

    Sentences are about one model, the subject.

    Columns of `every` in addition: difference (of the predicted peak), over_float32 (of bf16
    autocast), over_eager (of another model than lmperf's), peak (in `unit`), and the shares of the
    predicted peak.
    """

    def __init__(self, evidence: Evidence, subject: str = ""):
        """subject: by default the first custom model, else lmperf's eager one."""
        super().__init__(evidence)
        self.subject = subject or next(iter(evidence.subjects(STEM)), EAGER)

    @cached_property
    def each(self) -> list[Memory]:
        """This section about each of several custom models."""
        return [Memory(self.evidence, name) for name in self.evidence.subjects(STEM)] or [self]

    @cached_property
    def every(self) -> Rows:
        rows = with_changes(self.evidence.rows(STEM))
        return self.rows(STEM, rows.assign(peak=rows["peak_mib"] / UNITS[self.unit]))

    @cached_property
    def unit(self) -> str:
        """Of peaks that stand side by side: GiB, unless all are smaller."""
        return "GiB" if self.evidence.rows(STEM)["peak_gib"].max() >= 1 else "MiB"

    @property
    def instruments(self) -> str:
        """What measured the peaks."""
        names = self.every.frame["instrument"].dropna()
        return ", ".join(sorted(required(names, "no instrument is recorded").unique()))

    @cached_property
    def of_subject(self) -> Rows:
        return self.every.where(implementation=self.subject)

    @property
    def of_others(self) -> Rows:
        rows = self.every.frame
        subjects = [section.subject for section in self.each]
        return self.every.kept(rows[~rows["implementation"].isin(subjects)])

    @cached_property
    def steps(self) -> Rows:
        return self.of_subject.where(phase=STEP)

    @cached_property
    def head(self) -> Rows:
        """The train steps of each size at its context nearest to the usual one."""
        rows = at(self.steps.frame, batch=LAST)
        off = (rows["context_length"] - USUAL_CONTEXT).abs()
        return self.steps.kept(rows[off == off.groupby(rows["size"]).transform("min")])

    @property
    def beside(self) -> Rows:
        """The head table with all other models in its cells: custom ones, lmperf's and peers."""
        steps = self.every.where(phase=STEP)
        return steps.kept(steps.frame[are_within(steps.frame, self.head.frame, CELL)])

    @property
    def usual_context(self) -> int:
        """The context at which most sizes of the head table stand."""
        return int(self.head.frame["context_length"].mode().max()) if self.head else 0

    @property
    def component_columns(self) -> list[Quantity]:
        """The components that any predicted train step has."""
        rows = self.steps.frame
        names = [name for name in COMPONENTS if (rows[f"{name}_mib"] > 0).any()]
        return [known_size(f"{name}_mib", name.replace("_", " ")) for name in names]

    def autocast(self, context: int) -> Autocast:
        """What bf16 autocast changes at a context."""
        steps = having(self.steps.sound, context_length=context)
        change = Range.of(steps["over_float32"])
        # At the end of a backward, where some steps peak, no copies are left.
        half = steps[steps["over_float32"].notna()]
        sizes = half["size"][half["weight_copies_mib"] > LEAST_COPIES * half["predicted_mib"]]
        needed = [("activations_mib", FLOAT32), ("activations_mib", AUTOCAST)]
        needed.append(("weight_copies_mib", AUTOCAST))
        of_parts = ["activations_mib", "weight_copies_mib"]
        rows = having(steps, size=[*sizes])
        wide = rows.pivot_table(of_parts, "size", "dtype", sort=False)
        wide = wide.reindex(columns=pd.MultiIndex.from_tuples(needed)).dropna()
        size = in_order("size", required(wide, "no size has components in both dtypes").index)[-1]
        parts = wide.loc[size] / MIB_IN_GIB
        copies = parts["weight_copies_mib", AUTOCAST]
        saved = parts["activations_mib", FLOAT32] - parts["activations_mib", AUTOCAST]
        of_size = having(rows, size=size)
        return Autocast(
            of_rows(change, steps), size, of_rows(copies, of_size), of_rows(saved, of_size)
        )

    # A float32 train step at the shortest and the longest context, predicted.

    @cached_property
    def _shares(self) -> pd.DataFrame:
        """Shares of the peak of each size and batch, a column for each part and context."""
        parts = ["state_share", "activations_share"]
        rows = self.steps.where(dtype=FLOAT32).sound.dropna(subset=parts)
        wide = rows.pivot_table(parts, ["size", "batch"], "context_length")
        if wide.empty or wide["state_share"].shape[1] < 2:
            raise NotMeasured("train steps of fewer than two contexts")
        short, *_, long = wide["state_share"].columns
        return wide.loc[:, (slice(None), [short, long])].dropna()

    @property
    def contexts(self) -> list[int]:
        """The shortest and the longest context."""
        return [*self._shares["state_share"].columns]

    @property
    def sizes_at_both(self) -> list[str]:
        return in_order("size", self._shares.index.get_level_values("size"))

    def share(self, part: str, context: int) -> Range:
        """The share of a part of the peak: `state` (model and optimizer) or `activations`."""
        rows = self.steps.where(dtype=FLOAT32, context_length=context, size=self.sizes_at_both)
        return of_rows(Range.of(self._shares[f"{part}_share", context]), rows.sound)

    # Predicted peaks beside measured ones.

    @cached_property
    def predicted(self) -> Rows:
        """The peaks that have a prediction; `excess`: MiB above it.

        beyond: the part of the prediction by which the excess exceeds a cuBLAS workspace.
        """
        rows = self.of_subject.query("difference.notna()").sound
        if len(rows) < 2:
            raise NotMeasured("fewer than two predicted peaks")
        excess = rows["peak_mib"] - rows["predicted_mib"]
        beyond = (excess - self.workspace) / rows["predicted_mib"]
        return self.of_subject.kept(rows.assign(excess=excess, beyond=beyond))

    @property
    def workspace(self) -> float:
        """MiB of a cuBLAS workspace; NaN if there is none."""
        return self.of_subject.valid.query("workspace_mib > 0").frame["workspace_mib"].min()


def with_changes(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with the columns that `Memory` describes."""
    valid = rows[rows["state"].isna()]
    single = having(valid, dtype=FLOAT32)
    single = matching(rows, single, [*CELL, "phase", "implementation"])["peak_mib"]
    eager = having(valid, implementation=EAGER)
    eager = matching(rows, eager, [*CELL, "dtype", "phase"])["peak_mib"]
    state = rows[[f"{name}_mib" for name in STATE]].sum(axis=1)
    return rows.assign(
        # Load does not change a size.
        holds=rows["state"].isna() & ~rows["signs"].map(lambda signs: "stale" in signs),
        difference=rows["peak_mib"] / rows["predicted_mib"] - 1,
        over_float32=(rows["peak_mib"] / single - 1).where(rows["dtype"] == AUTOCAST),
        over_eager=(rows["peak_mib"] / eager - 1).where(rows["implementation"] != EAGER),
        state_share=state / rows["predicted_mib"],
        activations_share=rows["activations_mib"] / rows["predicted_mib"],
    )
