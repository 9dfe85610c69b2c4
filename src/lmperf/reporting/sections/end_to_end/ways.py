"""Ways to run a train step (an implementation in a dtype): speed-ups, tokens/s and MFU.

Tokens/s and MFU follow from the sustained time of a step, back to back. A step without one has them
from its burst time (single calls with pauses), in columns of their own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import pandas as pd

from lmperf.dtypes import dtype_of
from lmperf.names import dtype_words, implementation_words, in_order
from lmperf.reporting import gates, marks
from lmperf.reporting.ceilings import (
    SUSTAINED,
    matmul_ceiling,
    matmul_share,
    sheet_ceiling,
    sheet_share,
)
from lmperf.reporting.custom import another_model
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.findings import all_rows
from lmperf.reporting.numbers import finite, rounded, significant, whole
from lmperf.reporting.rounds import median_intervals, parse_rounds
from lmperf.reporting.side_by_side import Beside, rate
from lmperf.reporting.speedup import Series, compared
from lmperf.reporting.tables import medians, or_status, value_cells
from lmperf.results import DERIVED, HIGHER, Cell
from lmperf.statistics import median_interval

MIB_PER_GIB = 1024
STEM, STEP = "end_to_end", "train_step"
CELL = ["size", "context_length", "batch"]
EAGER, WHOLE, BLOCKS = "eager", "compiled", "compiled_blocks"
FLOAT32, TF32, BF16, BF16_WEIGHTS = "float32", "tf32", "autocast_bfloat16", "bfloat16"
CONTEXT = 1024


class Way(NamedTuple):
    """One way to run the model: an implementation in a dtype."""

    implementation: str
    dtype: str

    @property
    def series(self) -> Series:
        return Series.of(**self._asdict())

    @property
    def words(self) -> str:
        """The way for a reader: ``eager TF32``; ``bf16 autocast, compiled by block``."""
        numerics = dtype_words(self.dtype, CELL)
        if self.implementation == EAGER:
            return f"{EAGER} {numerics}"
        return f"{numerics}, {implementation_words(self.implementation)}"

    @property
    def name(self) -> str:
        """The way in a column name: ``eager.tf32``."""
        return self.series.name

    def rows(self, frame: pd.DataFrame) -> pd.DataFrame:
        return having(frame, **self._asdict())


BASE = Way(EAGER, FLOAT32)


def of(frame: pd.DataFrame) -> list[Way]:
    """The ways that occur in a data frame, ordered by dtype, then by implementation."""
    frame = frame[~another_model(frame)]
    names, dtypes = (in_order(n, frame[n]) for n in ("implementation", "dtype"))
    found = set(zip(frame["implementation"], frame["dtype"], strict=True))
    return [Way(name, dtype) for dtype in dtypes for name in names if (name, dtype) in found]


def steps_over(evidence: MachineEvidence, way: Way, base: Way = BASE) -> pd.DataFrame:
    """The train steps of ``way`` with a speed-up over ``base`` that a conclusion may rest on.

    Raises NotMeasured without evidence.
    """
    all_rows(evidence, STEM)
    return compared(evidence, STEM, way.series, base.series, phase=STEP)


def usual_steps(evidence: MachineEvidence) -> pd.DataFrame:
    """Train steps with float32 weights: one context, and one batch for each size.

    bf16 weights change the loss; the ladder shows them.
    The context is the one at which most sizes were measured; of equals, the nearest to ``CONTEXT``.
    The batch is the most frequent one of the size. Raises NotMeasured without evidence.
    """
    frame = having(all_rows(evidence, STEM), phase=STEP)
    frame = frame[~another_model(frame) & (frame["dtype"] != BF16_WEIGHTS)]
    sizes = frame.groupby("context_length")["size"].nunique()
    contexts = sorted(sizes[sizes == sizes.max()].index, key=lambda n: (abs(n - CONTEXT), n))
    frame = having(frame, context_length=contexts[:1])
    batch = frame.groupby("size")["batch"].transform(lambda values: values.mode().max())
    return frame[frame["batch"] == batch]


def with_rates(evidence: MachineEvidence, frame: pd.DataFrame) -> pd.DataFrame:
    """The rows with ``burst``, ``step_ms``, ``rate`` (tokens/s), ``mfu`` and ``share``.

    ``step_ms`` is the sustained time; the median burst time if ``burst``, which means that the row
    has no sustained time. ``mfu`` is over the data sheet's dense rate, ``share`` over the sustained
    matmul ceiling, both for the numerics of the row's dtype. A stale row without ``full_flops``
    beside rows with it has neither: its ``flops`` include all scores of causal attention.
    """
    if "stale" in frame and evidence.frame(STEM)["full_flops"].notna().any():
        counted = ~frame["stale"].astype(bool) | frame["full_flops"].notna()
        frame = frame.assign(flops=frame["flops"].where(counted))
    burst = frame["sustained_ms"].isna()
    step_ms = frame["sustained_ms"].fillna(frame["median_ms"]).astype(float)
    timed = frame.assign(median_ms=step_ms)
    return frame.assign(
        burst=burst,
        step_ms=step_ms,
        rate=frame["tokens"] / step_ms * 1e3,
        mfu=sheet_share(evidence, timed),
        share=matmul_share(evidence, timed, SUSTAINED).where(~burst),
    )


def rates(steps: pd.DataFrame, name: str) -> list[Beside]:
    """Columns of tokens/s and MFU, from ``with_rates``; of burst times in columns of their own."""
    columns = []
    for burst, what, named in ((False, "", name), (True, ", burst", f"{name}.burst")):
        rows = steps[steps["burst"] == burst]
        tokens, mfu = (
            marks.with_marks(value_cells(rows, values, form), rows)
            for values, form in ((rows["rate"], rounded), (100 * rows["mfu"], significant))
        )
        of = f"{named}.tokens", "tokens/s", "rounded", HIGHER, DERIVED
        columns += [
            Beside(f"tokens/s{what}", tokens, *of),
            rate(f"MFU{what}", mfu, f"{named}.mfu", "%"),
        ]
    return columns


def share_of_matmul(steps: pd.DataFrame, name: str) -> Beside:
    """A column of shares of the sustained matmul ceiling, from ``with_rates``."""
    cells = marks.with_marks(value_cells(steps, 100 * steps["share"]), steps)
    return rate("share of sustained matmul", cells, f"{name}.share_of_matmul", "%")


def peak_mib(rows: pd.DataFrame) -> pd.Series:
    """Peak memory of train steps in MiB, with the pool of a CUDA graph.

    The allocator does not count this pool as allocated.
    """
    return rows["peak_mib"] + rows["pool_mib"].fillna(0)


def peak(rows: pd.DataFrame) -> pd.Series:
    """Peak memory of train steps in GiB: see ``peak_mib``."""
    return peak_mib(rows) / MIB_PER_GIB


def burst_words(words: str, burst: bool) -> str:
    """The words for a time, which say that it is a burst time if it is one."""
    return f"{words}, burst" if burst else words


def times(rows: pd.DataFrame, brackets: bool = False, mixed: bool = False) -> pd.Series:
    """A cell for each step: its sustained time in ms, else its burst time, else its status.

    If some of the steps have a sustained time, the words of the others end in "burst".

    brackets: whether the words include the interval: over the blocks of the stretch, or over the
        rounds of a burst time.
    mixed: whether other columns of the table have sustained times, so that burst times say so.
    """
    lasting = rows["sustained_ms"].notna()
    single = rows[~lasting]
    lows, highs = median_intervals(single)
    end = " burst" if mixed or (lasting & gates.shown(rows)).any() else ""
    cells = [
        cell if cell.state else replace(cell, words=words + end, low=finite(low), high=finite(high))
        for cell, words, low, high in zip(
            medians(single),
            [
                _bracketed(ms, finite(low), finite(high)) if brackets else significant(ms)
                for ms, low, high in zip(single["median_ms"], lows, highs, strict=True)
            ],
            lows,
            highs,
            strict=True,
        )
    ]
    burst = pd.Series(cells, single.index, dtype=object)
    return pd.concat([sustained(rows[lasting], brackets), burst]).reindex(rows.index)


def sustained(rows: pd.DataFrame, brackets: bool = True) -> pd.Series:
    """A cell for each row: the sustained time in ms, or the status if it has no valid time.

    brackets: whether the words include the interval over the blocks of the stretch.
    """
    shown = gates.shown(rows) & rows["sustained_ms"].notna()
    ok = rows[shown]
    lows, highs = median_interval(parse_rounds(ok["sustained_rounds_ms"]))
    keys = ok["key"] if "key" in ok else [None] * len(ok)
    parts = zip(
        *(ok["sustained_ms"], map(finite, lows), map(finite, highs), ok["sustained_steps"]),
        *(marks.names_of(ok), keys),
        strict=True,
    )
    made = [
        Cell(
            _bracketed(ms, low, high) if brackets else significant(ms),
            *(finite(ms), low, high, whole(n)),
            marks=names,
            row=row,
        )
        for ms, low, high, n, names, row in parts
    ]
    return or_status(rows, shown, made)


def _bracketed(ms: float, low: float | None, high: float | None) -> str:
    """A time with its interval, which is left out if its ends read like the time."""
    words = significant(ms)
    if low is None or {significant(low), significant(high)} == {words}:
        return words
    return f"{words} ({significant(low)}-{significant(high)})"


def sustained_note(rows: pd.DataFrame) -> str:
    """For a note: what sustained times are; rows without a clock have no columns of `stretch`."""
    meanwhile = rows[["sustained_mhz", "sustained_w"]].notna().any(axis=None)
    return (
        "Sustained: steps back to back, median (interval over blocks of the stretch)"
        f"{', with clock and power meanwhile' if meanwhile else ''}. "
    )


def stretch(rows: pd.DataFrame, name: str) -> list[Beside]:
    """Columns with the clock and the power of the device while the steps ran back to back."""
    clock, power = (
        value_cells(rows, rows[column], "{:.0f}".format)
        for column in ("sustained_mhz", "sustained_w")
    )
    return [
        Beside("its clock (MHz)", clock, f"{name}.sustained.clock", "MHz", "whole"),
        Beside("its power (W)", power, f"{name}.sustained.power", "W", "whole"),
    ]


def denominators(evidence: MachineEvidence, dtype: str) -> str:
    """For a note: the rates in TFLOP/s that MFU and shares of matmul are over, if known."""
    promised = mfu_words(evidence, dtype)
    measured = matmul_ceiling(evidence, dtype, SUSTAINED)
    words = dtype_words(dtype_of(dtype).matmul)
    of = [
        *([promised] if promised else []),
        *([f"sustained matmul {significant(measured)} TFLOP/s"] if measured else []),
    ]
    return f"; {', '.join(of)}, in {words}" if of else ""


def mfu_words(evidence: MachineEvidence, dtype: str) -> str:
    """For a note: the rate that MFU is over; empty if no data sheet is known."""
    promised = sheet_ceiling(evidence, dtype)
    return f"MFU of {significant(promised)} TFLOP/s by the data sheet" if promised else ""
