"""Ways of running a step: an implementation in some numerics, and its speed-up over another."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pandas as pd

from lmperf.names import dtype_words, implementation_words, in_order
from lmperf.reporting import gates
from lmperf.reporting.ceilings import matmul_share
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.findings import frame_of
from lmperf.reporting.numbers import ratio
from lmperf.reporting.speedup import FASTER, Series, compared
from lmperf.reporting.tables import Lines

STEM, STEP = "end_to_end", "train_step"
CELL = ["size", "context_length", "batch"]
EAGER, WHOLE, BLOCKS = "eager", "compiled", "compiled_blocks"
FLOAT32, TF32, BF16 = "float32", "tf32", "autocast_bfloat16"
CONTEXT = 512


def way(implementation: str, dtype: str) -> Series:
    """The rows of an implementation in the numerics of a dtype."""
    return Series.of(implementation=implementation, dtype=dtype)


BASE = way(EAGER, FLOAT32)


def words(series: Series) -> str:
    """A way in words: ``eager TF32``; ``bf16 autocast, compiled by block``."""
    name, numerics = series.words.rsplit(", ", 1)
    is_eager = ("implementation", EAGER) in series.where
    return f"{EAGER} {numerics}" if is_eager else f"{numerics}, {name}"


def model_words(implementation: str) -> str:
    """An implementation of a model in words: ``eager`` is a model as it is written."""
    return EAGER if implementation == EAGER else implementation_words(implementation)


def in_words(table: Lines | None) -> Lines | None:
    """The same table with its implementations and numerics in words, after they were sorted."""
    if table is None:
        return None
    forms = {"implementation": model_words, "dtype": dtype_words}
    mapped = {n: table.frame[n].map(form) for n, form in forms.items() if n in table.frame}
    return replace(table, frame=table.frame.assign(**mapped))


def of(frame: pd.DataFrame) -> list[Series]:
    """The ways that a frame has rows of, by numerics and then by implementation."""
    names, dtypes = (in_order(n, frame[n]) for n in ("implementation", "dtype"))
    every = [way(name, dtype) for dtype in dtypes for name in names]
    return [each for each in every if len(each.rows(frame))]


def faster_steps(evidence: MachineEvidence, series: Series, base: Series = BASE) -> pd.DataFrame:
    """The train steps of a way that have a speed-up over the base, with that speed-up.

    Raises NotMeasured where there is no evidence at all.
    """
    frame_of(evidence, STEM)
    return having(compared(evidence, STEM, series, base), phase=STEP)


def usual_context(frame: pd.DataFrame) -> int:
    """Of the contexts that most sizes were measured at, the one nearest to ``CONTEXT``."""
    sizes = frame.groupby("context_length")["size"].nunique()
    return min(sizes[sizes == sizes.max()].index, key=lambda n: (abs(n - CONTEXT), n))


def usual_steps(evidence: MachineEvidence) -> pd.DataFrame:
    """The train steps at the usual context, each size with the batch that it has most rows of."""
    frame = having(evidence.frame(STEM), phase=STEP)
    if frame.empty:
        return frame
    frame = having(frame, context_length=usual_context(frame))
    batch = frame.groupby("size")["batch"].transform(lambda values: values.mode().max())
    return frame[frame["batch"] == batch]


def with_rates(evidence: MachineEvidence, frame: pd.DataFrame) -> pd.DataFrame:
    """The rows with ``rate``, tokens/s, and ``share``, of the matmul ceiling of their numerics."""
    rate = frame["tokens"] / frame["median_ms"] * 1e3
    return frame.assign(rate=rate, share=matmul_share(evidence, frame))


def fastest(evidence: MachineEvidence) -> pd.DataFrame:
    """The usual train step of each size with the shortest median, with its speed-up over eager
    float32; what is not found faster than that, where it is there, does not come before it."""
    frame = usual_steps(evidence)
    frame = with_rates(evidence, frame[gates.shown(frame)])
    base = BASE.rows(frame)
    speed = pd.concat([base.iloc[:0], *(faster_steps(evidence, each) for each in of(frame))])
    frame = frame.join(speed.reindex(columns=["ratio", "verdict"]))
    is_base, based = frame.index.isin(base.index), frame["size"].isin(base["size"])
    frame = frame[is_base | ~based | (frame["verdict"] == FASTER)]
    return frame.loc[frame.groupby("size", sort=False)["median_ms"].idxmin()]


@dataclass(frozen=True)
class Ends:
    """The least and the most speed-up of some rows, each with its size."""

    rows: pd.DataFrame

    def __str__(self) -> str:
        ends = [
            self.rows.loc[i] for i in (self.rows["ratio"].idxmin(), self.rows["ratio"].idxmax())
        ]
        low, high = (ratio(row["ratio"]) for row in ends)
        if low != high:
            return f"{low} ({ends[0]['size']}) to {high} ({ends[1]['size']})"
        return f"{low} ({ends[0]['size']})" if self.rows["size"].nunique() == 1 else low
