"""How reports show the names in evidence: words, reading order, and look in figures.

Nothing here decides which benchmarks or implementations run.

A report lists names in the order of these tables. It may also show names that are not here: custom
implementations, and names in the evidence of another version. They are shown as they are written,
after the known ones, in alphabetical order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from lmperf.dtypes import DTYPES
from lmperf.transformer.sizes import ALIASES, COURSES, SIZES


@dataclass(frozen=True)
class Look:
    """How a figure draws an implementation; the marker identifies it without colour."""

    colour: str
    marker: str


@dataclass(frozen=True)
class Shown:
    """How reports show an implementation: in words and in figures."""

    words: str
    look: Look


# Operations of the ceilings (best rates of a machine); copies have the ratio of bytes read to bytes
# written.
OPERATIONS = {
    "copy": "copy 1:1",
    "widen": "copy 1:2",
    "narrow": "copy 2:1",
    "launch": "empty launch",
    "matmul": "matmul",
    "all_reduce": "all-reduce",
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
}
LOADS = {"burst": "single calls", "sustained": "back to back"}
# Moments of a step at which the memory of a rank is looked at.
MOMENTS = {
    "init": "after init",
    "before_step": "before the update",
    "after_step": "after the update",
    "peak": "peak of a step",
}
PHASES = {
    "forward": "forward",
    "backward": "backward",
    "forward_backward": "forward + backward",
    "train_step": "train step",
}
BLUE, ORANGE, GREEN = "blue", "orange", "green"
PINK, MUSTARD, VIOLET = "pink", "mustard", "violet"
IMPLEMENTATIONS = {
    "torch": Shown("PyTorch", Look(BLUE, "o")),
    "eager": Shown("PyTorch", Look(BLUE, "o")),
    "float32": Shown("float32", Look(BLUE, "p")),
    "tf32": Shown("TF32", Look(VIOLET, "p")),
    "autocast": Shown("bf16 autocast", Look(ORANGE, "p")),
    "compiled": Shown("compiled", Look(MUSTARD, "v")),
    "compiled_blocks": Shown("compiled by block", Look(GREEN, "h")),
    "triton": Shown("Triton", Look(ORANGE, "s")),
    "triton_compiled": Shown("Triton, compiled", Look(VIOLET, "d")),
    "triton_compiled_blocks": Shown("Triton, compiled by block", Look(PINK, "D")),
    "triton_cached": Shown("Triton, cached angles", Look(VIOLET, "P")),
    "tiled": Shown("tiled PyTorch", Look(ORANGE, "s")),
    "sdpa": Shown("SDPA", Look(GREEN, "^")),
    "sdpa_compiled": Shown("SDPA, compiled", Look(GREEN, "^")),
    "sdpa_compiled_blocks": Shown("SDPA, compiled by block", Look(MUSTARD, "^")),
    "sdpa_cudnn": Shown("SDPA cuDNN", Look(GREEN, "^")),
    "sdpa_flash": Shown("SDPA flash", Look(PINK, "D")),
    "sdpa_efficient": Shown("SDPA efficient", Look(MUSTARD, "v")),
    "flex": Shown("FlexAttention", Look(VIOLET, "P")),
    "flash_attention": Shown("flash attention", Look(GREEN, "*")),
    "fused_loss": Shown("loss in chunks", Look(MUSTARD, "*")),
    "fused_blocks": Shown("fused blocks", Look(BLUE, "*")),
    "sdpa_graph": Shown("SDPA, compiled by block, CUDA graph", Look(ORANGE, "*")),
    "graph": Shown("fused, CUDA graph", Look(VIOLET, "*")),
    "bf16_weights": Shown("bf16 weights, no graph", Look(PINK, "*")),
    "bf16_graph": Shown("bf16 weights, CUDA graph", Look(PINK, "*")),
    "fp8_tensorwise": Shown("FP8, tensorwise (torchao)", Look(BLUE, "H")),
    "fp8_rowwise": Shown("FP8, rowwise (torchao)", Look(ORANGE, "H")),
    "checkpoint_1": Shown("checkpoints of 1 layer", Look(BLUE, "<")),
    "checkpoint_2": Shown("checkpoints of 2 layers", Look(ORANGE, "<")),
    "checkpoint_4": Shown("checkpoints of 4 layers", Look(GREEN, "<")),
    "checkpoint_8": Shown("checkpoints of 8 layers", Look(PINK, "<")),
    "checkpoint_16": Shown("checkpoints of 16 layers", Look(MUSTARD, "<")),
    "checkpoint_32": Shown("checkpoints of 32 layers", Look(VIOLET, "<")),
    "nested_4": Shown("checkpoints of 4 layers and of each layer", Look(BLUE, ">")),
    "recompute_all": Shown("every block recomputed", Look(BLUE, "8")),
    "keep_attention": Shown("attention kept", Look(ORANGE, "8")),
    "keep_matmuls": Shown("attention and some matmuls kept", Look(GREEN, "8")),
    "data_parallel": Shown("data parallel", Look(BLUE, "p")),
    "sharded_moments": Shown("moments sharded", Look(ORANGE, "p")),
    "sharded_moments_fused": Shown("moments sharded, fused blocks", Look(GREEN, "p")),
    "library": Shown("torch.distributed", Look(BLUE, "1")),
    "one_rank": Shown("one rank", Look("grey", "8")),
    "one_rank_compiled": Shown("one rank, compiled", Look("grey", "8")),
    "one_by_one": Shown("one by one", Look(BLUE, ">")),
    "flat": Shown("one flat tensor", Look(ORANGE, ">")),
    "flat_compiled": Shown("one flat tensor, compiled", Look(ORANGE, ">")),
    "overlapped": Shown("overlapped by hooks", Look(GREEN, ">")),
    "overlapped_compiled": Shown("overlapped by hooks, compiled", Look(GREEN, ">")),
    "bucket_1": Shown("buckets of 1 MB", Look(PINK, "4")),
    "bucket_10": Shown("buckets of 10 MB", Look(PINK, "4")),
    "bucket_100": Shown("buckets of 100 MB", Look(PINK, "4")),
    "bucket_1000": Shown("buckets of 1000 MB", Look(PINK, "4")),
    "ddp": Shown("DistributedDataParallel", Look(MUSTARD, "X")),
    "ddp_compiled": Shown("DistributedDataParallel, compiled", Look(MUSTARD, "X")),
    "sharded_optimizer": Shown("sharded optimizer", Look(BLUE, "d")),
    "zero_redundancy": Shown("ZeroRedundancyOptimizer", Look(ORANGE, "d")),
    "fully_sharded": Shown("fully sharded", Look(VIOLET, "H")),
    "fully_sharded_compiled": Shown("fully sharded, compiled", Look(VIOLET, "H")),
    "fully_sharded_checkpointed": Shown("fully sharded, checkpointed", Look(VIOLET, "H")),
    "fsdp2": Shown("FSDP2", Look(PINK, "P")),
    "fsdp2_compiled": Shown("FSDP2, compiled", Look(PINK, "P")),
    "fsdp2_checkpointed": Shown("FSDP2, checkpointed", Look(PINK, "P")),
    "copy": Shown("copy", Look("grey", "x")),
}
STATUSES = {
    "ok": "ok",
    "oom": "out of memory",
    "timeout": "time-out",
    "crash": "crash",
    "nan": "result not finite",
    "unsupported": "unsupported",
    "failed_check": "gate failed",
    "unchecked": "not checked",
}
# Every name of a model size -> the short name of the size.
_SHORT_SIZES = {
    **{name: size.short for name, size in SIZES.items()},
    **{alias: SIZES[name].short for alias, name in ALIASES.items()},
    # Published write-ups name sizes as the course of 2025 does.
    **{name: SIZES[canonical].short for name, canonical in COURSES[2025].items()},
}
# Column -> the names in it, in reading order.
ORDERS: dict[str, tuple[str, ...]] = {
    "size": tuple(dict.fromkeys(n for name, size in SIZES.items() for n in (size.short, name))),
    "dtype": tuple(DTYPES),
    "implementation": tuple(IMPLEMENTATIONS),
    "phase": tuple(PHASES),
    "operation": tuple(OPERATIONS),
    "load": tuple(LOADS),
    "moment": tuple(MOMENTS),
}
AXES = {
    "context_length": "context",
    "seq_len": "length",
    "d_head": "d_head",
    "extra_tokens": "extra tokens",
    "cuda_graph": "CUDA graph",
    "message_bytes": "message",
}


def dtype_words(dtype: str, axes: Collection[str] = ()) -> str:
    """The words that a report shows for a dtype; an unknown dtype unchanged.

    axes: the axes of the benchmark. If "size" is one of them, the dtype is that of a model, whose
    weights it tells apart: "bf16 weights".
    """
    words = DTYPES[dtype].words if dtype in DTYPES else dtype
    return f"{words} weights" if dtype == "bfloat16" and "size" in axes else words


def size_words(size: str) -> str:
    """The short name of a model size, given by any of its names; else unchanged."""
    return _SHORT_SIZES.get(size, size)


def size_in_full(short: str) -> str:
    """The short name of a model size with its number of parameters, as in "small (0.13B)"."""
    canonical = next((name for name, size in SIZES.items() if size.short == short), short)
    return short if canonical == short else f"{short} ({canonical})"


def phase_words(phase: str) -> str:
    """The words that a report shows for a phase: "forward + backward" for ``forward_backward``."""
    return PHASES.get(phase, phase.replace("_", " "))


def implementation_words(implementation: str, axes: Collection[str] = ()) -> str:
    """The words that a report shows for an implementation; an unknown name unchanged.

    axes: the axes of the benchmark. If "size" is one of them, "eager" is not called "PyTorch":
    every implementation of a model is PyTorch.
    """
    if implementation == "eager" and "size" in axes:
        return implementation
    known = implementation in IMPLEMENTATIONS
    return IMPLEMENTATIONS[implementation].words if known else implementation


def mark_words(mark: str) -> str:
    """The words for a mark of a row: "reused output"."""
    return "beside other load" if mark == "loaded" else mark.replace("_", " ")


def bytes_words(size: float) -> str:
    """A number of bytes with a decimal unit, as sizes of messages are given: ``10 MB``."""
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= factor:
            return f"{size / factor:.4g} {unit}"
    return f"{size:g} B"


# Column -> the words for a value of it.
_WORDS: dict[str, Callable] = {
    "implementation": implementation_words,
    "dtype": dtype_words,
    "phase": phase_words,
    "size": size_words,
    "operation": lambda name: OPERATIONS.get(name, name),
    "load": lambda name: LOADS.get(name, name),
    "moment": lambda name: MOMENTS.get(name, name),
    "message_bytes": bytes_words,
}


def value_words(name: str, value, axes: Collection[str] = ()):
    """The words for a value of a column if the column holds names; else the value unchanged.

    axes: see `dtype_words` and `implementation_words`.
    """
    if name in ("dtype", "implementation"):
        return _WORDS[name](value, axes)
    return _WORDS[name](value) if name in _WORDS else value


def axis_words(axis: str) -> str:
    """The words that the header of a table shows for an axis: "length" for ``seq_len``."""
    return AXES.get(axis, axis.replace("_", " "))


def in_order(name: str, values: Iterable) -> list:
    """The distinct values of a column in reading order, without None and NaN."""
    distinct = dict.fromkeys(value for value in values if value is not None and value == value)
    known = [value for value in ORDERS.get(name, ()) if value in distinct]
    return known + sorted(value for value in distinct if value not in known)
