"""Ways to run a train step (an implementation in a dtype): speed-ups, tokens/s and MFU."""

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
    """One way to run the model: an implementation in a dtype."""

    implementation: str
    dtype: str

    @property
    def series(self) -> Series:
        return Series.of(**self._asdict())

    @property
    def words(self) -> str:
        """The way for a reader: ``eager TF32``; ``bf16 autocast, compiled by block``."""
        numerics = dtype_words(self.dtype)
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


def either(among: Sequence[Way]) -> str:
    """Several ways joined by "or": ``bf16 autocast, SDPA or Triton, compiled by block``."""
    words = [way.words for way in among]
    parts = [text.split(", ") for text in words]
    shared = {tuple(part[:1] + part[2:]) for part in parts}
    if len(words) == 1 or len(shared) > 1 or min(map(len, parts)) < 2:
        return " or ".join(words)
    first, *last = shared.pop()
    return ", ".join([first, " or ".join(part[1] for part in parts), *last])


def of(frame: pd.DataFrame) -> list[Way]:
    """The ways that occur in a data frame, ordered by dtype, then by implementation."""
    frame = frame[~another_model(frame)]
    names, dtypes = (in_order(n, frame[n]) for n in ("implementation", "dtype"))
    found = set(zip(frame["implementation"], frame["dtype"], strict=True))
    return [Way(name, dtype) for dtype in dtypes for name in names if (name, dtype) in found]


def steps_over(evidence: MachineEvidence, way: Way, base: Way = BASE) -> pd.DataFrame:
    """The train steps of ``way`` that have a speed-up over ``base``, with that speed-up.

    Raises NotMeasured without evidence.
    """
    all_rows(evidence, STEM)
    return having(compared(evidence, STEM, way.series, base.series), phase=STEP)


def usual_steps(evidence: MachineEvidence) -> pd.DataFrame:
    """The train steps of the head table: one context, and one batch for each size.

    The context is the one at which most sizes were measured; of equals, the nearest to ``CONTEXT``.
    The batch is the most frequent one of the size. Raises NotMeasured without evidence.
    """
    frame = having(all_rows(evidence, STEM), phase=STEP)
    frame = frame[~another_model(frame)]
    sizes = frame.groupby("context_length")["size"].nunique()
    contexts = sorted(sizes[sizes == sizes.max()].index, key=lambda n: (abs(n - CONTEXT), n))
    frame = having(frame, context_length=contexts[:1])
    batch = frame.groupby("size")["batch"].transform(lambda values: values.mode().max())
    return frame[frame["batch"] == batch]


def with_rates(evidence: MachineEvidence, frame: pd.DataFrame) -> pd.DataFrame:
    """The rows with ``rate`` (tokens/s) and two model FLOPs utilizations, ``share`` and ``sheet``.

    ``share`` is over the sustained matmul ceiling, ``sheet`` over the data sheet's rate, both for
    the numerics of the row's dtype.
    """
    return frame.assign(
        rate=frame["tokens"] / frame["median_ms"] * 1e3,
        share=matmul_share(evidence, frame, SUSTAINED),
        sheet=sheet_share(evidence, frame),
    )


def tokens(steps: pd.DataFrame, name: str) -> Beside:
    """A column of tokens/s, from the ``rate`` of ``with_rates``; ``name`` begins its name."""
    cells = value_cells(steps, steps["rate"], rounded)
    return Beside("tokens/s", cells, f"{name}.tokens", "tokens/s", "rounded", HIGHER, DERIVED)


def mfu(steps: pd.DataFrame, name: str) -> list[Beside]:
    """Two columns of model FLOPs utilization: over the matmul ceiling and over the data sheet."""
    measured, promised = (value_cells(steps, 100 * steps[of]) for of in ("share", "sheet"))
    return [
        rate("MFU", measured, f"{name}.mfu", "%"),
        rate("MFU of the data sheet", promised, f"{name}.mfu_of_data_sheet", "%"),
    ]


def denominators(evidence: MachineEvidence, dtype: str) -> str:
    """For a note: the rates in TFLOP/s that MFU is over (matmul ceiling, data sheet), if known."""
    measured = matmul_ceiling(evidence, dtype, SUSTAINED)
    promised = sheet_ceiling(evidence, dtype)
    words = dtype_words(dtype_of(dtype).matmul)
    of = [
        *([f"MFU of {significant(measured)} TFLOP/s, the matmul ceiling"] if measured else []),
        *([f"{significant(promised)} TFLOP/s by the data sheet"] if promised else []),
    ]
    return f"; {', '.join(of)}, in {words}" if of else ""


def queued(frame: pd.DataFrame) -> pd.Series:
    """When the host queued the last work of a step, as a fraction of its time; NaN if unknown."""
    return frame["host_ms"] / frame["median_ms"]


def fastest(evidence: MachineEvidence) -> pd.DataFrame:
    """The train step with the shortest median time of each size, with its speed-up over float32.

    Speed-ups are over eager float32. Column ``way``: implementation and dtype in words; ``ways``:
    how many rows of the size it was chosen from. If eager float32 was timed, it is chosen unless
    another row has the verdict "faster" over it.
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
