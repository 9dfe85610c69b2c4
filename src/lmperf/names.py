"""Words, reading order and look of the names in evidence. Nothing here decides what runs.

A report lists names in the order of these tables. It may also show names that are not here: custom
implementations, and names in the evidence of another version. They are shown as they are written,
after the known ones, in alphabetical order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from lmperf.dtypes import DTYPES
from lmperf.transformer.sizes import FORMER, SIZES


@dataclass(frozen=True)
class Mark:
    """A reason why a row may not hold.

    Attributes:
        words: its name in a sentence, after a number of rows ("3 rows drifted").
        meaning: its explanation below a table that shows its sign.
        sign: a superscript after a time in a table; empty: tables do not show the mark.
    """

    words: str
    meaning: str
    sign: str = ""


@dataclass(frozen=True)
class Look:
    """How a figure draws a name. Marker, dash and hatch tell names apart without colour."""

    colour: str
    marker: str
    dash: str = "-"
    hatch: str = ""


@dataclass(frozen=True)
class Shown:
    """How reports show an implementation: in words and in figures."""

    words: str
    look: Look


# Operations of the ceilings; a copy with the ratio of bytes read to bytes written.
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
    "torch": Shown("PyTorch", Look(BLUE, "o")),
    "eager": Shown("PyTorch", Look(BLUE, "o")),
    "float32": Shown("float32", Look(BLUE, "p")),
    "tf32": Shown("TF32", Look(VIOLET, "p", (0, (2, 1)))),
    "autocast": Shown("bf16 autocast", Look(ORANGE, "p", (0, (1, 1.2)), "xx")),
    "compiled": Shown("compiled", Look(MUSTARD, "v", (0, (4, 1.5)), "//")),
    "compiled_blocks": Shown("compiled by block", Look(GREEN, "h", (0, (3, 1)), "++")),
    "triton": Shown("Triton", Look(ORANGE, "s", "-", "xx")),
    "triton_compiled": Shown("Triton, compiled", Look(VIOLET, "d", (0, (3, 1)), "||")),
    "triton_compiled_blocks": Shown(
        "Triton, compiled by block", Look(PINK, "D", (0, (4, 1.5)), "\\\\")
    ),
    "triton_cached": Shown("Triton, cached angles", Look(VIOLET, "P", (0, (1, 1.2)))),
    "tiled": Shown("tiled PyTorch", Look(ORANGE, "s", "-", "xx")),
    "sdpa": Shown("SDPA", Look(GREEN, "^", (0, (2, 1)), "//")),
    "sdpa_compiled": Shown("SDPA, compiled", Look(GREEN, "^", (0, (1, 1.2)), "--")),
    "sdpa_compiled_blocks": Shown("SDPA, compiled by block", Look(MUSTARD, "^", (0, (6, 2)), "||")),
    "sdpa_cudnn": Shown("SDPA cuDNN", Look(GREEN, "^", (0, (4, 1.5)), "//")),
    "sdpa_flash": Shown("SDPA flash", Look(PINK, "D", (0, (1, 1.2)), "\\\\")),
    "sdpa_efficient": Shown("SDPA efficient", Look(MUSTARD, "v", (0, (4, 1.5, 1, 1.5)), "--")),
    "flex": Shown("FlexAttention", Look(VIOLET, "P", (0, (6, 2)), "||")),
    "flash_attention": Shown("flash attention", Look(GREEN, "*", (0, (2, 1)), "//")),
    "fused_loss": Shown("loss in chunks", Look(MUSTARD, "*", (0, (4, 1.5)), "--")),
    "bf16_weights": Shown("bf16 weights, compiled AdamW", Look(PINK, "*", (0, (1, 1.2)), "\\\\")),
    "graph": Shown("CUDA graph", Look(VIOLET, "*", "-", "||")),
    "copy": Shown("copy", Look("grey", "x", (0, (1, 1.2)))),
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
# `time_cap` needs no sign: the verdict "unresolved" says it.
MARKS = {
    "host_bound": Mark("host-bound", "host-bound: the device waited for its work", "ʰ"),
    "capped": Mark("capped", "capped: power or heat held the device back", "ᶜ"),
    "loaded": Mark("beside other load", "others used the machine", "ˡ"),
    "drift": Mark("drifted", "drifted: the reference cell had moved", "ᵈ"),
    "time_cap": Mark("undecided", "a pair of its group was left open"),
}
# Every name of a size -> its short name.
_SHORT_SIZES = {
    **{name: size.short for name, size in SIZES.items()},
    **{alias: size.short for size in SIZES.values() for alias in size.aliases},
    **{name: SIZES[canonical].short for name, canonical in FORMER.items()},
}
# Column -> its names in reading order.
ORDERS: dict[str, tuple[str, ...]] = {
    "size": tuple(dict.fromkeys(n for name, size in SIZES.items() for n in (size.short, name))),
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
    """A dtype in words."""
    return DTYPES[dtype].words if dtype in DTYPES else dtype


def size_words(size: str) -> str:
    """The short name of a size, which may be given by any name that it has or had."""
    return _SHORT_SIZES.get(size, size)


def size_in_full(short: str) -> str:
    """A size as it is introduced: its short name and what it is, as in "small (0.13B)"."""
    canonical = next((name for name, size in SIZES.items() if size.short == short), short)
    return short if canonical == short else f"{short} ({canonical})"


def phase_words(phase: str) -> str:
    """A phase in words."""
    return PHASES.get(phase, phase.replace("_", " "))


def implementation_words(implementation: str, axes: Collection[str] = ()) -> str:
    """An implementation in words.

    axes: of its benchmark. Where "size" is one, "eager" is not called "PyTorch": every
    implementation of a model is PyTorch.
    """
    if implementation == "eager" and "size" in axes:
        return implementation
    known = implementation in IMPLEMENTATIONS
    return IMPLEMENTATIONS[implementation].words if known else implementation


def mark_words(mark: str) -> str:
    """A mark in words that follow a number of rows."""
    return MARKS[mark].words if mark in MARKS else mark.replace("_", " ")


def value_words(name: str, value, axes: Collection[str] = ()):
    """A value of a column in words, if the column holds names; any other value as it is.

    axes: see ``implementation_words``.
    """
    match name:
        case "implementation":
            return implementation_words(value, axes)
        case "dtype":
            return dtype_words(value)
        case "phase":
            return phase_words(value)
        case "size":
            return size_words(value)
        case "operation":
            return OPERATIONS.get(value, value)
        case "load":
            return LOADS.get(value, value)
    return value


def axis_words(axis: str) -> str:
    """An axis in words, as in the header of a table."""
    return AXES.get(axis, axis.replace("_", " "))


def in_order(name: str, values: Iterable) -> list:
    """The distinct values of a column in reading order, without None and NaN."""
    distinct = dict.fromkeys(value for value in values if value is not None and value == value)
    known = [value for value in ORDERS.get(name, ()) if value in distinct]
    return known + sorted(value for value in distinct if value not in known)
