"""How reports show the names in evidence: their words and their reading order.

Nothing here decides which benchmarks or implementations run.

A report lists names in the order of these tables. It may also show names that are not here: custom
implementations, and names in the evidence of another version. They are shown as they are written,
after the known ones, in alphabetical order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import cycle
from typing import NamedTuple

from lmperf.dtypes import DTYPES
from lmperf.transformer.sizes import ALIASES, COURSES, SIZES

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
# Column -> the words for its names, in reading order.
_TABLES = {"phase": PHASES, "operation": OPERATIONS, "load": LOADS, "moment": MOMENTS}
# Name -> words. Where a name has several forms: in general; short, beside others of its kind, as a
# step of the ladder or a strategy on several GPUs; and its technique as the subject of a sentence.
_FORMS: dict[str, str | tuple[str, ...]] = {
    "torch": "PyTorch",
    "eager": "PyTorch",
    "float32": ("float32", "float32, eager"),
    "tf32": "TF32",
    "autocast": "bf16 autocast",
    "compiled": "compiled",
    "compiled_blocks": ("compiled by block", "+ compiled by block", "compiling by block"),
    "triton": "lmperf's kernel",
    "triton_compiled": "lmperf's attention, compiled",
    "triton_compiled_blocks": "lmperf's attention, compiled by block",
    "triton_cached": "lmperf's kernel, cached angles",
    "triton_deterministic": "lmperf's kernel, deterministic",
    "tiled": "lmperf's tiled kernel",
    "sdpa": "SDPA",
    "sdpa_compiled": "SDPA, compiled",
    "sdpa_compiled_blocks": "SDPA, compiled by block",
    "sdpa_cudnn": "SDPA cuDNN",
    "sdpa_flash": "SDPA flash",
    "sdpa_efficient": "SDPA efficient",
    "flex": "FlexAttention",
    "flash_attention_4": "FlashAttention-4",
    "flash_attention_4_deterministic": "FlashAttention-4, deterministic",
    "flash_attention": ("lmperf's attention", "+ lmperf's attention", "flash attention"),
    "fused_loss": ("loss in chunks", "+ loss in chunks"),
    "fused_blocks": ("fused blocks", "+ fused blocks"),
    "sdpa_graph": ("SDPA, compiled by block, CUDA graph", "SDPA, compiled, graph"),
    "fused_graph": ("fused, CUDA graph", "+ graph"),
    "sdpa_copies_graph": (
        "SDPA, compiled by block, CUDA graph, bf16 copies",
        "SDPA, graph, bf16 copies",
    ),
    "graph": ("fused, CUDA graph, bf16 copies", "+ bf16 copies"),
    "stored_logits_graph": "fused, CUDA graph, bf16 copies, logits stored",
    "clipped_graph": ("fused, CUDA graph, bf16 copies, clipping", "gradients clipped"),
    "accumulated_graph": (
        "fused, CUDA graph, bf16 copies, micro-batches of 4",
        "micro-batches of 4",
    ),
    "bf16_weights": ("bf16 weights, no graph", "bf16 weights, no graph", "bf16 weights"),
    "sdpa_bf16_graph": ("SDPA, bf16 weights, CUDA graph", "SDPA, graph, bf16 weights"),
    "bf16_graph": ("bf16 weights, CUDA graph", "bf16 weights, graph", "bf16 weights"),
    "fp8_graph": "FP8 (lmperf)",
    "fp8_tensorwise": "FP8, tensorwise (torchao)",
    "checkpoint_1": "checkpoints of 1 layer",
    "checkpoint_2": "checkpoints of 2 layers",
    "checkpoint_4": "checkpoints of 4 layers",
    "checkpoint_8": "checkpoints of 8 layers",
    "checkpoint_16": "checkpoints of 16 layers",
    "checkpoint_32": "checkpoints of 32 layers",
    "nested_4": "checkpoints of 4 layers and of each layer",
    "recompute_all": "every block recomputed",
    "keep_attention": "attention kept",
    "keep_matmuls": "attention and some matmuls kept",
    "data_parallel": "data parallel",
    "sharded_moments": "moments sharded",
    "sharded_moments_fused": "moments sharded, fused blocks",
    "library": "torch.distributed",
    "one_rank_graph": "recommended step, one rank",
    "overlapped_graph": "recommended step, data parallel",
    "sharded_optimizer_graph": "recommended step, ZeRO-1",
    "one_rank": "one rank",
    "one_rank_compiled": "one rank, compiled",
    "one_by_one": ("one by one", "one by one (lmperf's)"),
    "flat": ("one flat tensor", "one flat tensor (lmperf's)"),
    "flat_compiled": "one flat tensor, compiled",
    "overlapped": ("overlapped by hooks", "all-reduce by hooks (lmperf's)"),
    "overlapped_compiled": "overlapped by hooks, compiled",
    "bucket_1": "buckets of 1 MB",
    "bucket_10": "buckets of 10 MB",
    "bucket_100": "buckets of 100 MB",
    "bucket_1000": "buckets of 1000 MB",
    "ddp": "DistributedDataParallel",
    "ddp_compiled": "DistributedDataParallel, compiled",
    "ddp_bf16_compiled": "DistributedDataParallel, compiled, bf16 gradients",
    "sharded_optimizer": ("sharded optimizer", "sharded optimizer (lmperf's)"),
    "zero_redundancy": "ZeroRedundancyOptimizer",
    "fully_sharded": ("fully sharded", "fully sharded (lmperf's)"),
    "fully_sharded_compiled": "fully sharded, compiled",
    "fully_sharded_checkpointed": "fully sharded, checkpointed",
    "fsdp2": "FSDP2",
    "fsdp2_compiled": "FSDP2, compiled",
    "fsdp2_kept_compiled": "FSDP2, compiled, weights kept, bf16 gradients",
    "fsdp2_checkpointed": "FSDP2, checkpointed",
    "copy": "copy",
}


def _form(words: str | tuple[str, ...], number: int) -> str:
    """The form of this number; the general one of a technique that has no other."""
    return words if isinstance(words, str) else (*words, words[0])[number]


IMPLEMENTATIONS, SHORT, TECHNIQUES = (
    {name: _form(words, number) for name, words in _FORMS.items()} for number in range(3)
)


class Look(NamedTuple):
    """Colour and shape of an implementation in a line chart; the shape tells it without colour.

    dash: lengths of the dashes of its line and of the gaps between them.
    """

    colour: str
    shape: str
    dash: tuple[int, int] = (1, 0)


_LOOKS: dict[str, Look] = {
    "eager": Look("blue", "circle"),
    "compiled": Look("mustard", "triangle-down"),
    "triton": Look("orange", "square"),
    "triton_cached": Look("violet", "cross"),
    "triton_deterministic": Look("orange", "triangle-up", (4, 3)),
    "tiled": Look("orange", "square"),
    "sdpa": Look("green", "triangle-up"),
    "sdpa_cudnn": Look("green", "triangle-up"),
    "sdpa_flash": Look("pink", "diamond"),
    "sdpa_efficient": Look("mustard", "triangle-down"),
    "flash_attention_4": Look("ink", "triangle-right"),
    "flash_attention_4_deterministic": Look("ink", "triangle-left", (4, 3)),
    "flex": Look("violet", "cross"),
    "copy": Look("grey", "circle"),
}
# Looks of all other implementations, in turn.
_SPARE_LOOKS = (
    *(Look("pink", "cross"), Look("mustard", "triangle-left"), Look("violet", "triangle-right")),
    *(Look("green", "square"), Look("orange", "triangle-down"), Look("blue", "diamond")),
)
# Key of a custom implementation -> what its author calls it: `name` in the configuration.
_OWN: dict[str, str] = {}
# Implementations that have other words in a model.
_OF_MODELS = {"eager": "eager", "triton": "lmperf's attention"}
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
    # Published write-ups name sizes as the course of 2025 does.
    **{alias: SIZES[name].short for alias, name in (ALIASES | COURSES[2025]).items()},
}
# Column -> the names in it, in reading order.
ORDERS: dict[str, tuple[str, ...]] = {
    "size": tuple(dict.fromkeys(n for name, size in SIZES.items() for n in (size.short, name))),
    "dtype": tuple(DTYPES),
    "implementation": tuple(IMPLEMENTATIONS),
    **{column: tuple(words) for column, words in _TABLES.items()},
}
AXES = {
    "context_length": "context",
    "seq_len": "length",
    "d_head": "d_head",
    "extra_tokens": "extra tokens",
    "cuda_graph": "CUDA graph",
    "message_bytes": "message",
}


def call(names: Mapping[str, str]) -> None:
    """Show these words for these custom implementations, and no others."""
    _OWN.clear()
    _OWN.update(names)


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


def looks_of(names: Iterable[str]) -> dict[str, Look]:
    """Implementation -> its look in a line chart; others than lmperf's take turns."""
    spare = cycle(_SPARE_LOOKS)
    return {name: _LOOKS.get(name) or next(spare) for name in names}


def implementation_words(implementation: str, axes: Collection[str] = ()) -> str:
    """The words that a report shows for an implementation; an unknown name unchanged.

    axes: the axes of the benchmark. If "size" is one of them, the implementation is a way to run a
    model, every one of which is PyTorch.
    """
    words = IMPLEMENTATIONS | _OF_MODELS if "size" in axes else IMPLEMENTATIONS
    return _OWN.get(implementation) or words.get(implementation, implementation)


def bytes_words(size: float) -> str:
    """A number of bytes with a decimal unit, as sizes of messages are given: ``10 MB``."""
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= factor:
            return f"{size / factor:.4g} {unit}"
    return f"{size:g} B"


def value_words(name: str, value, axes: Collection[str] = ()):
    """The words for a value of a column if the column holds names; else the value unchanged.

    axes: see `dtype_words` and `implementation_words`.
    """
    match name:
        case "implementation":
            return implementation_words(value, axes)
        case "dtype":
            return dtype_words(value, axes)
        case "size":
            return size_words(value)
        case "phase":
            return phase_words(value)
        case "message_bytes":
            return bytes_words(value)
    return _TABLES[name].get(value, value) if name in _TABLES else value


def axis_words(axis: str) -> str:
    """The words that the header of a table shows for an axis: "length" for ``seq_len``."""
    return AXES.get(axis, axis.replace("_", " "))


def in_order(name: str, values: Iterable) -> list:
    """The distinct values of a column in reading order, without None and NaN."""
    distinct = dict.fromkeys(value for value in values if value is not None and value == value)
    known = [value for value in ORDERS.get(name, ()) if value in distinct]
    return known + sorted(value for value in distinct if value not in known)
