"""Ways of running a step: an implementation in a dtype, and its speed-up over another way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from lmperf.dtypes import dtype_of
from lmperf.names import dtype_words, implementation_words, in_order
from lmperf.reporting import gates
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
from lmperf.reporting.numbers import rounded, significant
from lmperf.reporting.side_by_side import Beside, rate
from lmperf.reporting.speedup import Series, compared
from lmperf.reporting.tables import value_cells
from lmperf.results import DERIVED, HIGHER
from lmperf.statistics import FASTER

STEM, STEP = "end_to_end", "train_step"
CELL = ["size", "context_length", "batch"]
EAGER, WHOLE, BLOCKS = "eager", "compiled", "compiled_blocks"
FLOAT32, TF32, BF16 = "float32", "tf32", "autocast_bfloat16"
CONTEXT = 1024
# A step whose last work is queued after this share of its time is host-bound.
HOST_BOUND = 0.9


class Way(NamedTuple):
    """An implementation in a dtype."""

    implementation: str
    dtype: str

    @property
    def series(self) -> Series:
        return Series.of(**self._asdict())

    @property
    def words(self) -> str:
        """``eager TF32``; ``bf16 autocast, compiled by block``."""
        numerics = dtype_words(self.dtype)
        if self.implementation == EAGER:
            return f"{EAGER} {numerics}"
        return f"{numerics}, {implementation_words(self.implementation)}"

    @property
    def name(self) -> str:
        """Its part of the name of a column: ``eager.tf32``."""
        return self.series.name

    def rows(self, frame: pd.DataFrame) -> pd.DataFrame:
        return having(frame, **self._asdict())


BASE = Way(EAGER, FLOAT32)


def either(among: Sequence[Way]) -> str:
    """The ways as alternatives: ``bf16 autocast, SDPA or Triton, compiled by block``."""
    words = [way.words for way in among]
    parts = [text.split(", ") for text in words]
    shared = {tuple(part[:1] + part[2:]) for part in parts}
    if len(words) == 1 or len(shared) > 1 or min(map(len, parts)) < 2:
        return " or ".join(words)
    first, *last = shared.pop()
    return ", ".join([first, " or ".join(part[1] for part in parts), *last])


def of(frame: pd.DataFrame) -> list[Way]:
    """The ways that a frame has rows of, by dtype, then by implementation."""
    frame = frame[~another_model(frame)]
    names, dtypes = (in_order(n, frame[n]) for n in ("implementation", "dtype"))
    found = set(zip(frame["implementation"], frame["dtype"], strict=True))
    return [Way(name, dtype) for dtype in dtypes for name in names if (name, dtype) in found]


def steps_over(evidence: MachineEvidence, way: Way, base: Way = BASE) -> pd.DataFrame:
    """Train steps of a way with their speed-up over the base.

    Raises NotMeasured without evidence.
    """
    all_rows(evidence, STEM)
    return having(compared(evidence, STEM, way.series, base.series), phase=STEP)


def usual_steps(evidence: MachineEvidence) -> pd.DataFrame:
    """Train steps at one context, each size with the batch that most of its rows have.

    The context is the one that most sizes were measured at, and of several such the nearest to
    ``CONTEXT``. Raises NotMeasured without evidence.
    """
    frame = having(all_rows(evidence, STEM), phase=STEP)
    frame = frame[~another_model(frame)]
    sizes = frame.groupby("context_length")["size"].nunique()
    contexts = sorted(sizes[sizes == sizes.max()].index, key=lambda n: (abs(n - CONTEXT), n))
    frame = having(frame, context_length=contexts[:1])
    batch = frame.groupby("size")["batch"].transform(lambda values: values.mode().max())
    return frame[frame["batch"] == batch]


def with_rates(evidence: MachineEvidence, frame: pd.DataFrame) -> pd.DataFrame:
    """The rows with ``rate`` (tokens/s) and their MFU in the numerics of their dtype.

    ``share`` is MFU over the sustained matmul ceiling, ``sheet`` over the data sheet's rate.
    """
    return frame.assign(
        rate=frame["tokens"] / frame["median_ms"] * 1e3,
        share=matmul_share(evidence, frame, SUSTAINED),
        sheet=sheet_share(evidence, frame),
    )


def tokens(steps: pd.DataFrame, name: str) -> Beside:
    """The column of tokens/s, from ``rate``."""
    cells = value_cells(steps, steps["rate"], rounded)
    return Beside("tokens/s", cells, f"{name}.tokens", "tokens/s", "rounded", HIGHER, DERIVED)


def mfu(steps: pd.DataFrame, name: str) -> list[Beside]:
    """Columns of the model FLOPs utilization: over the matmul ceiling and over the data sheet."""
    measured, promised = (value_cells(steps, 100 * steps[of]) for of in ("share", "sheet"))
    return [
        rate("MFU", measured, f"{name}.mfu", "%"),
        rate("MFU of the data sheet", promised, f"{name}.mfu_of_data_sheet", "%"),
    ]


def denominators(evidence: MachineEvidence, dtype: str) -> str:
    """The denominators of MFU in words: sustained matmul and data sheet, in TFLOP/s, if known."""
    measured = matmul_ceiling(evidence, dtype, SUSTAINED)
    promised = sheet_ceiling(evidence, dtype)
    words = dtype_words(dtype_of(dtype).matmul)
    of = [
        *([f"MFU of {significant(measured)} TFLOP/s, the matmul ceiling"] if measured else []),
        *([f"{significant(promised)} TFLOP/s by the data sheet"] if promised else []),
    ]
    return f"; {', '.join(of)}, in {words}" if of else ""


def queued(frame: pd.DataFrame) -> pd.Series:
    """When the last work of a step was queued, as a share of its time; NaN if unknown."""
    return frame["host_ms"] / frame["median_ms"]


def fastest(evidence: MachineEvidence) -> pd.DataFrame:
    """The train step with the shortest median of each size, with its speed-up over eager float32.

    ``way`` is its way in words, ``ways`` the number of ways it was chosen from. If eager float32
    was timed, only ways whose verdict over it is faster can take its place.
    """
    frame = usual_steps(evidence)
    frame = with_rates(evidence, frame[gates.shown(frame)])
    speed = pd.concat([frame.iloc[:0], *(steps_over(evidence, w) for w in of(frame) if w != BASE)])
    frame = frame.join(speed.reindex(columns=["ratio", "low", "high", "rounds", "verdict"]))
    pairs = zip(frame["implementation"], frame["dtype"], strict=True)
    frame["way"] = pd.Series([Way(*pair).words for pair in pairs], frame.index, dtype=object)
    frame["ways"] = frame.groupby("size")["size"].transform("size")
    base = BASE.rows(frame)
    is_base, based = frame.index.isin(base.index), frame["size"].isin(base["size"])
    frame = frame[is_base | ~based | (frame["verdict"] == FASTER)]
    return frame.loc[frame.groupby("size", sort=False)["median_ms"].idxmin()]
