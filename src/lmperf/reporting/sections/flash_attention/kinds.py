"""Kinds of cells (one head, replayed as a CUDA graph, a grid that fills), and their numerics."""

from __future__ import annotations

import itertools

import pandas as pd

from lmperf.names import dtype_words, in_order
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.speedup import Series, compared

STEM, CHECK = "flash_attention", "flash_attention_check"
PLAIN, TRITON = "eager", "triton"
OURS = (TRITON, "tiled")
# The backend that takes every dtype: nobody's choice in half precision.
GENERAL = "sdpa_efficient"
HALF = "bfloat16"
PHASES = ("forward", "backward")
D_HEAD = 64


def numerics_words(dtype: str, kernel: str) -> str:
    """The numerics of both sides of a comparison: in float32 the Triton kernel's are its own."""
    if dtype == "float32" and kernel == TRITON:
        return "float32 (Triton from float16 halves, PyTorch IEEE)"
    return dtype_words(dtype)


def graphed(frame: pd.DataFrame) -> pd.Series:
    """Cells whose calls were replayed as a CUDA graph."""
    return frame["cuda_graph"].eq(True)


def filled(frame: pd.DataFrame) -> pd.Series:
    """Cells with as many heads and batches as fill a device."""
    return (frame["heads"] > 1) & ~graphed(frame)


def single(frame: pd.DataFrame) -> pd.Series:
    """Cells of one head, launched call by call."""
    return (frame["heads"] == 1) & ~graphed(frame)


def kernel_of(frame: pd.DataFrame) -> str:
    """The implementation of this project: ``triton``, or ``tiled`` on a machine without a GPU."""
    names = set(frame["implementation"])
    return next((name for name in OURS if name in names), TRITON)


def peers_of(frame: pd.DataFrame) -> list[str]:
    """What the kernel is held against beside plain attention, where it runs at all."""
    runs = frame.loc[frame["status"] != "unsupported", "implementation"]
    return in_order("implementation", set(runs) - {PLAIN, *OURS})


def over(evidence: MachineEvidence, base: str) -> pd.DataFrame:
    """Rows of our kernel with their speed-up over ``base`` in the same cell and dtype."""
    ours = Series.of(implementation=kernel_of(evidence.frame(STEM)))
    return compared(evidence, STEM, ours, Series.of(implementation=base))


def usual_width(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of the d_head that is nearest to the usual one."""
    return having(frame, d_head=min(frame["d_head"], key=lambda d: (abs(d - D_HEAD), d)))


def with_mask(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with the mask in words."""
    return frame.assign(mask=frame["causal"].map({True: "causal", False: "full"}))


def parts(frame: pd.DataFrame, *columns: str) -> list[pd.DataFrame]:
    """The frame cut by the values of columns, in reading order."""
    values = itertools.product(*(in_order(name, frame[name]) for name in columns))
    cut = [having(frame, **dict(zip(columns, each, strict=True))) for each in values]
    return [part for part in cut if len(part)]


def sentence_case(words: str) -> str:
    """The words with a capital letter in front, the others as they are."""
    return words[:1].upper() + words[1:]
