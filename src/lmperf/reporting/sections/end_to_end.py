"""End to end: selections of rows and calculations of the template of this name."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pandas as pd

from lmperf.benchmarks import load
from lmperf.names import in_order
from lmperf.reporting.calculations.steps import (
    AUTOCAST,
    BLOCKS,
    CELL,
    EAGER,
    FLOAT32,
    STEM,
    STEP,
    WHOLE,
    named,
    of_steps,
)
from lmperf.reporting.columns import Quantity, number
from lmperf.reporting.frames import having, required
from lmperf.reporting.gains import Gain
from lmperf.reporting.numbers import of_rows
from lmperf.reporting.rows import Rows
from lmperf.reporting.sections import Section
from lmperf.reporting.sections.external import another_model
from lmperf.reporting.words import NotMeasured, Range
from lmperf.statistics import FASTER

COMPARED = ("forward", "backward", STEP)
# How a model is run -> plain attention, SDPA and Triton in a model that is run so.
ATTENTIONS = {
    EAGER: (EAGER, "sdpa", "triton"),
    WHOLE: (WHOLE, "sdpa_compiled", "triton_compiled"),
    BLOCKS: (BLOCKS, "sdpa_compiled_blocks", "triton_compiled_blocks"),
}
USUAL_CONTEXT = 1024


class EndToEnd(Section):
    """Forward, backward and train steps by size, context, batch, dtype and implementation."""

    @cached_property
    def every(self) -> Rows:
        return self.rows(STEM)

    @property
    def lines(self) -> Rows:
        return self.every.kept(named(self.every.frame))

    @cached_property
    def ours(self) -> pd.DataFrame:
        """The rows of our model."""
        return self.every.frame[~another_model(self.every.frame)]

    @cached_property
    def steps(self) -> Rows:
        """The train steps of our model."""
        return self.every.kept(having(self.ours, phase=STEP))

    @cached_property
    def subject(self) -> str:
        """What sentences are about: the first custom implementation with a step, or eager."""
        names = self.evidence.subjects(STEM)
        timed = self.every.where(phase=STEP).valid.values("implementation")
        return next((name for name in names if name in timed), (*names, EAGER)[0])

    @property
    def is_own(self) -> bool:
        """Whether sentences are about a custom implementation."""
        return self.subject in self.evidence.subjects(STEM)

    @property
    def of_subject(self) -> Rows:
        """The train steps that sentences are about: all of our model, or those of the subject."""
        return self._steps_of(self.subject) if self.is_own else self.steps

    def _steps_of(self, implementation: str) -> Rows:
        return self.every.where(implementation=implementation, phase=STEP)

    @cached_property
    def sweep(self) -> Rows:
        """The rows of E1: all but the techniques that E6 adds to eager and compiled models."""
        rows = self.lines.frame
        is_swept = rows["implementation"].isin([EAGER, WHOLE, BLOCKS])
        in_ladder = rows.index.isin(self.of("ladder").every.frame.index)
        return self.every.kept(rows[is_swept | ~in_ladder])

    def beside(self, axis: str, base: str, *others: str) -> Rows:
        """The rows with other values of an axis than a base, in the cells of both."""
        rows = self._with_base(axis, base, *others)
        return self.every.kept(rows[rows[axis] != base])

    def _with_base(self, axis: str, base: str, *others: str) -> pd.DataFrame:
        """The rows with a base and other values of an axis, in the cells of both."""
        rows = having(self.ours, phase=list(COMPARED), **{axis: [base, *others]})
        rows = rows[rows["state"] != "unsupported"]
        cell = [rows[name] for name in load(STEM).identity if name not in (axis, "phase")]
        is_base = (rows[axis] == base).groupby(cell).transform("nunique")
        return rows[is_base > 1]

    @cached_property
    def attentions(self) -> Rows:
        """Steps with plain and with another attention; `model`: how the model is run.

        base: plain attention in that model, which others are compared with.
        """
        frames = [
            having(self._with_base("implementation", *names), phase=STEP).assign(model=model)
            for model, names in ATTENTIONS.items()
        ]
        rows = pd.concat(frames)
        plain = rows["model"].map(lambda model: {"implementation": model})
        base = plain.where(rows["implementation"] != rows["model"])
        return self.every.kept(rows.assign(base=base))

    @property
    def step_columns(self) -> list[Quantity]:
        """What a train step shows behind its time."""
        device = [number("device_ms", "device", unit="ms"), number("launches", "kernels", "whole")]
        rates = [number("tokens_s", "tokens/s", "rounded"), number("100 * mfu", "MFU", unit="%")]
        peak = [number("peak_gib", "peak", unit="GiB")]
        return [*of_steps(device), *of_steps(rates, italic=True), *of_steps(peak)]

    @property
    def first_calls(self) -> list[Quantity]:
        return of_steps([number("compile_s", "first calls", unit="s")])

    @property
    def stretch_columns(self) -> list[Quantity]:
        """Clock and power of a train step, and the loss to which its rung trains."""
        clock = number("clock_mhz", "clock", "whole", "MHz")
        power = number("power_w", "power", "whole", "W")
        return of_steps([clock, power, self.of("losses").of_step])

    # What the sentences say.

    def _run_as(self, implementation: str, base: str) -> pd.DataFrame:
        """The train steps of an implementation beside those of another one, where both hold."""
        pairs = self._steps_of(implementation).pairs(base)
        return pairs[pairs["holds"]]

    def over(self, implementation: str, base: str) -> Gain:
        """The speed-ups of an implementation."""
        return Gain(self._run_as(implementation, base))

    def in_dtype(self, dtype: str, base: str, **where) -> Gain:
        """The speed-ups of a dtype in steps of the subject."""
        rows = self._steps_of(self.subject).where(dtype=dtype, **where)
        return rows.over(self.subject, dtype=base)

    @cached_property
    def context(self) -> int:
        """The context at which most sizes have a step; of equals the nearest to USUAL_CONTEXT."""
        timed = required(self.of_subject.valid.frame, "no train step")
        sizes = timed.groupby("context_length")["size"].nunique()
        most = sizes[sizes == sizes.max()].index
        return int(min(most, key=lambda context: (abs(context - USUAL_CONTEXT), context)))

    @cached_property
    def compiling(self) -> str:
        """How the sentences compile: by block; the whole model if no other was timed."""
        return BLOCKS if BLOCKS in self.steps.valid.values("implementation") else WHOLE

    @property
    def compiled(self) -> list[tuple[str, int, Gain]]:
        """Dtype, context, and the speed-ups of compiled steps over eager ones.

        Those of the subject, if it is a custom implementation.
        """
        gain = self.over(self.subject if self.is_own else self.compiling, EAGER)
        return gain.by("dtype", "context_length")

    @property
    def repaid(self) -> pd.Series:
        """The compiled step with the longest first calls, of those that are faster than eager ones.

        It is one under autocast, if there is one: so models are trained. Shorter first calls can
        find their code compiled. steps: after how many it has paid them back.
        """
        pairs = self._run_as(self.compiling, EAGER)
        pairs = pairs[(pairs["verdict"] == FASTER) & pairs["compile_s"].notna()]
        half = having(pairs, dtype=AUTOCAST)
        pairs = required(pairs if half.empty else half, "no compiled step is faster")
        row = pairs.sort_values("compile_s").iloc[-1]
        steps = np.ceil(1e3 * row["compile_s"] / (row["ms_base"] - row["ms"]))
        return pd.concat([row, pd.Series({"steps": steps})])

    @property
    def whole(self) -> pd.DataFrame:
        """The steps compiled as a whole beside those compiled by block.

        longer: how many times as long the first calls take.
        """
        pairs = self._run_as(WHOLE, BLOCKS)
        pairs = pairs.assign(longer=pairs["compile_s"] / pairs["compile_s_base"])
        return required(pairs.dropna(subset=["longer"]), "no first calls of both are known")

    def trend(self, gain: Gain) -> int:
        """1 if each of three or more sizes gains more than the smaller one, -1 if less, else 0."""
        changes = np.diff([part.mean for _, part in gain.by("size")])
        if len(changes) < 2:
            return 0
        return 1 if (changes > 0).all() else -1 if (changes < 0).all() else 0

    @cached_property
    def backward_over_forward(self) -> dict[str, Range]:
        """Dtype -> the backward's time over the forward's, of subjects that do not wait."""
        rows = self.every.frame if self.is_own else self.ours
        rows = having(rows, implementation=self.subject, phase=["forward", "backward"])
        rows = rows[rows["holds"] & ~rows["waits"]]
        wide = rows.pivot_table("ms", [*CELL, "dtype"], "phase").dropna()
        if wide.empty or wide.columns.size < 2:
            raise NotMeasured("no forward and backward of one model")
        over = wide["backward"] / wide["forward"]
        return {
            dtype: of_rows(Range.of(over.xs(dtype, level="dtype")), having(rows, dtype=dtype))
            for dtype in in_order("dtype", over.index.unique("dtype"))
        }

    @property
    def attention_of_blocks(self) -> list[tuple[str, int, Gain]]:
        """Each other attention in models compiled by block, beside plain attention there.

        Its name, the context and the speed-ups.
        """
        timed = self.steps.valid.values("implementation")
        ways = zip(ATTENTIONS[EAGER][1:], ATTENTIONS[BLOCKS][1:], strict=True)
        gains = [(name, self.over(way, BLOCKS)) for name, way in ways if way in timed]
        by_context = [(name, *part) for name, gain in gains for part in gain.by("context_length")]
        return required(by_context, "no other attention was timed")

    @property
    def attention_lowers_peaks(self) -> bool:
        """Whether each other attention lowers the peak of every step."""
        return all(gain.saved.low > 0 for _, _, gain in self.attention_of_blocks)

    @property
    def fuses(self) -> bool:
        """Whether compiling gains more under autocast than in float32, at the contexts of both."""
        half, single = (
            {context: gain.mean for dtype, context, gain in self.compiled if dtype == numerics}
            for numerics in (AUTOCAST, FLOAT32)
        )
        both = half.keys() & single.keys()
        return bool(both) and all(half[context] > single[context] for context in both)
