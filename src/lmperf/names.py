"""The names that evidence holds: one row each, with order, words, look and bytes.

The order of a table is the order in which a report lists its names; a name that is not here (a
user's own implementation, a size of a later version) stands behind, in the order of its spelling.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from lmperf.dtypes import DTYPES
from lmperf.transformer.sizes import SIZES


@dataclass(frozen=True)
class Mark:
    """What was not clean about a row.

    Attributes:
        words: follow a number of rows.
        meaning: below a table that has its sign.
        sign: stands behind a time.
    """

    words: str
    meaning: str
    sign: str = ""


@dataclass(frozen=True)
class Look:
    """How a figure draws a name, told apart without colour: marker and dash of a line, hatch."""

    colour: str
    marker: str
    dash: str = "-"
    hatch: str = ""


@dataclass(frozen=True)
class Implementation:
    """What is timed: words in tables and sentences, and its look in figures."""

    words: str
    look: Look


# What a ceiling is of; a copy with what it reads to what it writes.
OPERATIONS = {
    "copy": "copy 1:1",
    "widen": "copy 1:2",
    "narrow": "copy 2:1",
    "launch": "empty launch",
    "matmul": "matmul",
}
LOADS = {"burst": "single calls", "sustained": "back to back"}
PHASES = {
    "forward": "forward",
    "backward": "backward",
    "forward_backward": "forward + backward",
    "train_step": "train step",
}
BLUE, ORANGE, GREEN = "blue", "orange", "green"
PINK, MUSTARD, VIOLET = "pink", "mustard", "violet"
IMPLEMENTATIONS = {
    "torch": Implementation("PyTorch", Look(BLUE, "o")),
    "eager": Implementation("PyTorch", Look(BLUE, "o")),
    "float32": Implementation("float32", Look(BLUE, "p")),
    "tf32": Implementation("TF32", Look(VIOLET, "p", (0, (2, 1)))),
    "autocast": Implementation("bf16 autocast", Look(ORANGE, "p", (0, (1, 1.2)), "xx")),
    "compiled": Implementation("compiled", Look(MUSTARD, "v", (0, (4, 1.5)), "//")),
    "compiled_blocks": Implementation("compiled by block", Look(GREEN, "h", (0, (3, 1)), "++")),
    "triton": Implementation("Triton", Look(ORANGE, "s", "-", "xx")),
    "triton_compiled": Implementation("Triton, compiled", Look(VIOLET, "d", (0, (3, 1)), "||")),
    "triton_compiled_blocks": Implementation(
        "Triton, compiled by block", Look(PINK, "D", (0, (4, 1.5)), "\\\\")
    ),
    "triton_cached": Implementation("Triton, cached angles", Look(VIOLET, "P", (0, (1, 1.2)))),
    "tiled": Implementation("tiled PyTorch", Look(ORANGE, "s", "-", "xx")),
    "sdpa": Implementation("SDPA", Look(GREEN, "^", (0, (2, 1)), "//")),
    "sdpa_compiled": Implementation("SDPA, compiled", Look(GREEN, "^", (0, (1, 1.2)), "--")),
    "sdpa_compiled_blocks": Implementation(
        "SDPA, compiled by block", Look(MUSTARD, "^", (0, (6, 2)), "||")
    ),
    "sdpa_cudnn": Implementation("SDPA cuDNN", Look(GREEN, "^", (0, (4, 1.5)), "//")),
    "sdpa_flash": Implementation("SDPA flash", Look(PINK, "D", (0, (1, 1.2)), "\\\\")),
    "sdpa_efficient": Implementation(
        "SDPA efficient", Look(MUSTARD, "v", (0, (4, 1.5, 1, 1.5)), "--")
    ),
    "flex": Implementation("FlexAttention", Look(VIOLET, "P", (0, (6, 2)), "||")),
    "flash_attention": Implementation("flash attention", Look(GREEN, "*", (0, (2, 1)), "//")),
    "fused_loss": Implementation("loss in chunks", Look(MUSTARD, "*", (0, (4, 1.5)), "--")),
    "bf16_weights": Implementation(
        "bf16 weights, compiled AdamW", Look(PINK, "*", (0, (1, 1.2)), "\\\\")
    ),
    "graph": Implementation("CUDA graph", Look(VIOLET, "*", "-", "||")),
    "copy": Implementation("copy", Look("grey", "x", (0, (1, 1.2)))),
}
STATUSES = {
    "ok": "ok",
    "oom": "out of memory",
    "timeout": "time-out",
    "crash": "crash",
    "nan": "result not finite",
    "unsupported": "unsupported",
    "failed_check": "gate failed",
}
# A verdict that was left open says so itself, and needs no sign.
MARKS = {
    "host_bound": Mark("host-bound", "host-bound: the device waited for its work", "ʰ"),
    "capped": Mark("capped", "capped: power or heat held the device back", "ᶜ"),
    "loaded": Mark("beside other load", "others used the machine", "ˡ"),
    "drift": Mark("drifted", "drifted: the reference cell had moved", "ᵈ"),
    "time_cap": Mark("undecided", "a pair of its group was left open"),
}
# Axis or column -> its names in order.
ORDERS: dict[str, tuple[str, ...]] = {
    "size": tuple(SIZES),
    "dtype": tuple(DTYPES),
    "implementation": tuple(IMPLEMENTATIONS),
    "phase": tuple(PHASES),
    "status": tuple(STATUSES),
    "marks": tuple(MARKS),
    "operation": tuple(OPERATIONS),
    "load": tuple(LOADS),
}
AXES = {
    "context_length": "context",
    "seq_len": "length",
    "d_head": "d_head",
    "extra_tokens": "extra tokens",
    "cuda_graph": "CUDA graph",
}


def dtype_words(dtype: str) -> str:
    """The numerics of a dtype axis value, in words."""
    return DTYPES[dtype].words if dtype in DTYPES else dtype


def size_words(size: str) -> str:
    """A size of a model in words; one of a later version keeps its name."""
    return SIZES[size].short if size in SIZES else size


def phase_words(phase: str) -> str:
    """A phase in words."""
    return PHASES.get(phase, phase.replace("_", " "))


def implementation_words(implementation: str, axes: Collection[str] = ()) -> str:
    """An implementation in words; a user's own keeps its name.

    axes: of what it implements. What has a size is a model, all of which are of PyTorch: its
    eager form is called just that.
    """
    if implementation == "eager" and "size" in axes:
        return implementation
    known = IMPLEMENTATIONS.get(implementation)
    return known.words if known else implementation


def mark_words(mark: str) -> str:
    """What was not clean about a row, in words that follow a number of rows."""
    return MARKS[mark].words if mark in MARKS else mark.replace("_", " ")


def value_words(name: str, value, axes: Collection[str] = ()):
    """A value of a column in words where the column holds names; else as it is.

    axes: the columns beside it; see ``implementation_words``.
    """
    if name == "implementation":
        return implementation_words(value, axes)
    forms = {"dtype": dtype_words, "phase": phase_words, "size": size_words}
    if name in forms:
        return forms[name](value)
    return {"operation": OPERATIONS, "load": LOADS}.get(name, {}).get(value, value)


def axis_words(axis: str) -> str:
    """An axis in words, as in the header of a table."""
    return AXES.get(axis, axis.replace("_", " "))


def in_order(name: str, values: Iterable) -> list:
    """The distinct values of a column in reading order: known names first, the rest sorted."""
    distinct = list(
        dict.fromkeys(value for value in values if value is not None and value == value)
    )
    known = [value for value in ORDERS.get(name, ()) if value in distinct]
    return known + sorted(value for value in distinct if value not in known)
