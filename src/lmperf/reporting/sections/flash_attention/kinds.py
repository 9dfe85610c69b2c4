"""Selects rows of FlashAttention-2 by kind of cell, and names our kernel, its dtypes and peers.

Kinds of cells: one head launched call by call, one head as a CUDA graph, the filled grid (enough
heads to fill a GPU), and other shapes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import pandas as pd

from lmperf.benchmarks import load
from lmperf.names import dtype_words, implementation_words, in_order
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.speedup import Series, compared, every, speedup_cells
from lmperf.results import WITHHELD

STEM, CHECK = "flash_attention", "flash_attention_check"
SHAPE = ("batch", "heads", "seq_len", "d_head")
CELL = ["seq_len", "d_head", "mask", "batch", "heads", "cuda_graph"]
PLAIN, TRITON = "eager", "triton"
OURS = (TRITON, "tiled")
# The SDPA backend that supports every dtype: a fallback, ignored if another one ran.
GENERAL = "sdpa_efficient"
HALF = "bfloat16"
PHASES, TOGETHER = ("forward", "backward"), "forward_backward"
D_HEAD = 64


def graphed(frame: pd.DataFrame) -> pd.Series:
    """A mask of the rows whose calls were replayed as a CUDA graph."""
    return frame["cuda_graph"].eq(True)


def filled(frame: pd.DataFrame) -> pd.Series:
    """A mask of the rows of the filled grid, whose cells have enough heads to fill a device."""
    return (frame["heads"] > 1) & ~graphed(frame) & ~other(frame)


def other(frame: pd.DataFrame) -> pd.Series:
    """A mask of the rows with one of the benchmark's ``other_shapes``, which no mean includes."""
    shapes = frame[list(SHAPE)].apply(tuple, axis=1)
    return shapes.isin(load(STEM).stated["other_shapes"]) & ~graphed(frame)


def leaderboard(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows whose shape is that of the public leaderboard."""
    shape = dict(zip(SHAPE, load(STEM).stated["leaderboard"], strict=True))
    return having(frame[other(frame)], **shape)


def single(frame: pd.DataFrame) -> pd.Series:
    """A mask of the rows of one head, launched call by call."""
    return (frame["heads"] == 1) & ~graphed(frame)


def main(frame: pd.DataFrame) -> tuple[str, pd.DataFrame]:
    """Name and rows of the main comparison: the filled grid in bf16, or without it one head."""
    grid, head = having(frame[filled(frame)], dtype=HALF), frame[single(frame)]
    if len(grid):
        return "filled grid", grid
    return "one head", having(head, dtype=in_order("dtype", head["dtype"])[:1])


def kernel_of(frame: pd.DataFrame) -> str:
    """The project's implementation in these rows: ``triton``, or ``tiled`` without a GPU."""
    names = set(frame["implementation"])
    return next((name for name in OURS if name in names), TRITON)


def kernel_words(frame: pd.DataFrame) -> str:
    """The project's implementation in words, capitalised."""
    words = implementation_words(kernel_of(frame))
    return words[:1].upper() + words[1:]


def numerics(frame: pd.DataFrame) -> str:
    """The dtypes of the rows in words; ``float32*`` for Triton, which multiplies float16 halves."""
    star = {"float32": "*"} if kernel_of(frame) == TRITON else {}
    dtypes = in_order("dtype", frame["dtype"])
    return ", ".join(dtype_words(dtype) + star.get(dtype, "") for dtype in dtypes)


def peers_of(frame: pd.DataFrame) -> list[str]:
    """The implementations in these rows that ran, without the project's and plain attention."""
    runs = frame.loc[frame["status"] != "unsupported", "implementation"]
    return in_order("implementation", set(runs) - {PLAIN, *OURS})


def rivals(frame: pd.DataFrame) -> list[str]:
    """The peers that are not the fallback SDPA backend; all peers if there is no other."""
    peers = peers_of(frame)
    return [peer for peer in peers if peer != GENERAL] or peers


def over(
    evidence: MachineEvidence, base: str, among: pd.DataFrame, which: Callable = compared
) -> pd.DataFrame:
    """Rows of our kernel in ``among``, with their speed-up over ``base``.

    which: ``speedup.compared``; ``averaged`` for means over cells; or ``every``.
    """
    ours = Series.of(implementation=kernel_of(evidence.frame(STEM)))
    found = which(evidence, STEM, ours, Series.of(implementation=base))
    return found[found.index.isin(among.index)]


def over_or_withheld(evidence: MachineEvidence, base: str, among: pd.DataFrame) -> pd.DataFrame:
    """Rows of our kernel in ``among`` with a speed-up over ``base``, or one that a gate withholds.

    They are the cells of which a count over cells says how many it rests on.
    """
    timed = over(evidence, base, among, every).index
    return among[among.index.isin(timed.union(withheld(evidence, base)))]


def withheld(evidence: MachineEvidence, base: str) -> pd.Index:
    """Labels of our kernel's rows whose speed-up over ``base`` is withheld by a gate."""
    ours = Series.of(implementation=kernel_of(evidence.frame(STEM)))
    cells = speedup_cells(evidence, STEM, ours, Series.of(implementation=base))
    return cells.index[[cell.state == WITHHELD for cell in cells]]


def in_every_phase(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the cells that have a row in each phase that occurs."""
    number = rows.groupby([*SHAPE, "causal", "dtype"])["phase"].transform("nunique")
    return rows[number == rows["phase"].nunique()]


def cells_of(rows: pd.DataFrame) -> int:
    """The number of cells that the rows of all phases have."""
    return len(rows[[*SHAPE, "causal", "dtype"]].drop_duplicates())


def usual_width(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of one d_head, the nearest to ``D_HEAD``."""
    widths = sorted(set(frame["d_head"]), key=lambda d: (abs(d - D_HEAD), d))
    return having(frame, d_head=widths[:1])


def short_work(frame: pd.DataFrame) -> pd.DataFrame:
    """Forward and backward rows of one head in one d_head and dtype, with CUDA graphs.

    The dtype is bf16, or the first in reading order without bf16.
    """
    rows = usual_width(having(frame[single(frame) | graphed(frame)], phase=PHASES))
    dtypes = in_order("dtype", rows["dtype"])
    return having(rows, dtype=HALF if HALF in dtypes else dtypes[:1])


def with_mask(frame: pd.DataFrame) -> pd.DataFrame:
    """The data frame with a column ``mask``: ``causal`` or ``full``."""
    return frame.assign(mask=frame["causal"].map({True: "causal", False: "full"}))


def rows(evidence: MachineEvidence) -> pd.DataFrame:
    """All rows of the benchmark, with the column ``mask``."""
    return with_mask(evidence.frame(STEM))


def parts(frame: pd.DataFrame, *columns: str) -> Sequence[pd.DataFrame]:
    """The rows of each combination of values of the columns, as data frames in reading order."""
    values = itertools.product(*(in_order(name, frame[name]) for name in columns))
    cut = [having(frame, **dict(zip(columns, each, strict=True))) for each in values]
    return [part for part in cut if len(part)]
