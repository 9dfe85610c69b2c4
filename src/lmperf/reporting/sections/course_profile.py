"""The answers about a profiled model: its kernels, and softmax inside attention."""

from __future__ import annotations

from functools import cached_property

import pandas as pd

from lmperf.reporting.calculations import kernels
from lmperf.reporting.calculations.kernels import MATMUL
from lmperf.reporting.calculations.steps import STEP
from lmperf.reporting.frames import FIRST, at, having, required
from lmperf.reporting.rows import Rows
from lmperf.reporting.sections.course import Course
from lmperf.reporting.sections.profiles import CASE, usual_size
from lmperf.reporting.words import NotMeasured
from lmperf.transformer.sizes import SHORT

LINEAR_LAYERS = (4, 7)  # of a block: with q, k, v and gate, up in one each, or apart


class CourseProfile(Course):
    """The profiled phases of the subject, and the kernels of a forward."""

    @cached_property
    def profiled(self) -> Rows:
        """The cases of the profiled subject in its first dtype."""
        cases = self.of("profiles").cases.where(implementation=self.subject("profiles"))
        return cases.kept(at(cases.sound, dtype=FIRST))

    @cached_property
    def confirmed(self) -> Rows:
        """The profiled phases that the timer has: `filled`, kernels over its time; `waits`."""
        cases = having(self.profiled.frame, is_compared=True).dropna(subset=["busy"])
        filled = cases["busy"] / cases["timer"]
        return self.profiled.kept(cases.assign(filled=filled, waits=cases["timer_waits"]))

    @cached_property
    def forward(self) -> pd.Series:
        """The profiled forward that answers are about: of the usual size, the longest context."""
        rows = self.profiled.where(phase="forward").frame
        rows = having(rows, size=usual_size(rows))
        rows = required(rows.sort_values(["context_length", "batch"]), "no forward was profiled")
        return rows.iloc[-1]

    @property
    def step(self) -> pd.Series:
        """The profiled train step of the same model."""
        return self.profiled.kept(having(self.profiled.frame, **self._case(STEP))).one

    def _case(self, phase: str) -> dict[str, object]:
        return self.forward[CASE].to_dict() | {"phase": phase}

    def kernels(self, phase: str) -> pd.DataFrame:
        """The kernels of a phase of that model, the longest first."""
        rows = having(self.of("profiles").kernels.frame, **self._case(phase))
        rows = required(rows[rows["holds"]], "the phase was not profiled")
        return rows.sort_values("total_ms", ascending=False, kind="stable")

    @property
    def layers(self) -> dict[str, int]:
        """Linear layers of a block, and blocks, of a model whose longest kernel runs once for each
        of them and the head."""
        kernel = self.kernels("forward").iloc[0]
        blocks = SHORT[kernel["size"]].num_layers if kernel["size"] in SHORT else 0
        for linear in LINEAR_LAYERS:
            if kernel["kernel_class"] == MATMUL and kernel["instances"] == linear * blocks + 1:
                return {"linear": linear, "blocks": blocks}
        raise NotMeasured("the longest kernel is not each linear layer")

    @cached_property
    def first_of_both(self) -> pd.Series:
        """The longest kernel of both together; `is_the_same` as of the forward, `as_often`."""
        longest, forward = self.kernels("forward_backward").iloc[0], self.kernels("forward").iloc[0]
        same = longest["name"] == forward["name"]
        as_often = same and longest["instances"] == forward["instances"]
        return pd.concat([longest, pd.Series({"is_the_same": same, "as_often": as_often})])

    @cached_property
    def further_kernels(self) -> pd.DataFrame:
        """The three longest kernels of the forward that multiply no matrices."""
        rows = self.kernels("forward")
        return rows[rows["kernel_class"] != MATMUL].head(3)

    def with_meaning(self, meanings: dict[str, str]) -> pd.DataFrame:
        """These with their `meaning`: that of the first part of a name that they have."""
        rows = self.further_kernels
        names = [
            [meaning for part, meaning in meanings.items() if part in name] for name in rows["name"]
        ]
        return rows.assign(meaning=[next(iter(matches), None) for matches in names])

    @property
    def further_kernels_move_data(self) -> bool:
        classes = required(self.further_kernels["kernel_class"], "there are no others")
        return classes.isin([kernels.ELEMENTWISE, kernels.REDUCTION, kernels.COPY]).all()

    @property
    def matmul_shares(self) -> pd.DataFrame:
        """Shares of matmuls in forwards and steps, of sizes at the longest length."""
        cases = self.profiled.frame
        longest = cases.groupby("size")["context_length"].transform("max")
        cases = cases[cases["context_length"] == longest]
        wide = cases.pivot_table("matmul_share", ["size", "context_length"], "phase", sort=False)
        return wide.reindex(columns=["forward", STEP]).dropna().reset_index()

    @property
    def softmax(self) -> Rows:
        """Softmax inside attention by dtype, of the usual size and its longest context."""
        rows = self.of("profiles").attention.where(implementation=self.subject("profiles")).sound
        rows = having(rows, name="softmax", size=usual_size(rows))
        longest = having(rows, context_length=rows["context_length"].max())
        return self.of("profiles").attention.kept(longest)
