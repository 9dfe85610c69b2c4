"""Numbers and names as a reader sees them: significant digits, units, words for dtypes."""

from __future__ import annotations

import math

EMPTY = "–"
MIB = 2**20
GIB = 2**30
FIXED_DECIMALS = 4

DTYPE_WORDS = {
    "float32": "float32 IEEE",
    "tf32": "TF32",
    "float16": "float16",
    "bfloat16": "bf16",
    "autocast_float16": "float16 autocast",
    "autocast_bfloat16": "bf16 autocast",
}
PHASE_WORDS = {
    "forward": "forward",
    "backward": "backward",
    "forward_backward": "forward + backward",
    "train_step": "train step",
}
IMPLEMENTATION_WORDS = {
    "eager": "PyTorch (eager)",
    "compiled": "compiled",
    "compiled_blocks": "compiled by block",
    "triton": "Triton",
    "triton_cached": "Triton, cached angles",
    "tiled": "tiled PyTorch",
    "sdpa": "SDPA",
    "sdpa_cudnn": "SDPA cuDNN",
    "sdpa_flash": "SDPA flash",
    "sdpa_efficient": "SDPA efficient",
    "flex": "FlexAttention",
}


def absent(value) -> bool:
    """Whether a cell of the evidence is empty."""
    return value is None or value != value


def dtype_words(dtype: str) -> str:
    """The numerics of a dtype axis value, spelled out."""
    return DTYPE_WORDS.get(dtype, dtype)


def phase_words(phase: str) -> str:
    """A phase in words."""
    return PHASE_WORDS.get(phase, phase.replace("_", " "))


def implementation_words(implementation: str) -> str:
    """An implementation in words; a user's own keeps its name."""
    return IMPLEMENTATION_WORDS.get(implementation, implementation)


def decimals(value: float, digits: int = 3) -> int:
    """How many decimals show ``value`` to ``digits`` significant digits."""
    if not math.isfinite(value) or value == 0:
        return 0
    shown = float(f"{value:.{digits - 1}e}")
    return max(0, digits - 1 - math.floor(math.log10(abs(shown))))


def significant(value: float, digits: int = 3) -> str:
    """``value`` to ``digits`` significant digits, thousands apart, never in exponents."""
    if absent(value):
        return EMPTY
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return f"{value:,.{decimals(value, digits)}f}"


def rounded(value: float, digits: int = 3) -> str:
    """``value`` to ``digits`` significant digits, also where they end before the point."""
    if absent(value) or math.isinf(value) or value == 0:
        return significant(value, digits)
    return significant(float(f"{value:.{digits - 1}e}"), digits)


def fixed(value: float) -> str:
    """A sum with as many decimals as tell accumulators apart; a dash where there is none."""
    return EMPTY if absent(value) else f"{value:.{FIXED_DECIMALS}f}"


def ratio(value: float) -> str:
    """A ratio with two decimals and a times sign; a dash where there is none."""
    return EMPTY if absent(value) else f"{value:.2f}×"


def spread(mean: float, std: float, digits: int = 3) -> str:
    """``mean ± std`` with the decimals of the mean; a std too small for them has its own."""
    if absent(mean):
        return EMPTY
    if absent(std):
        return significant(mean, digits)
    places = decimals(mean, digits)
    finer = decimals(std, 1) if 0 < std < 0.5 * 10**-places else places
    return f"{mean:,.{places}f} ± {std:,.{finer}f}"


def percent(fraction: float, places: int = 1) -> str:
    """A fraction as a percentage, without the sign when it rounds to zero."""
    if absent(fraction):
        return EMPTY
    text = f"{100 * fraction:.{places}f}"
    return (text[1:] if text.strip("-0.") == "" and text.startswith("-") else text) + " %"


def signed_percent(fraction: float, places: int = 1) -> str:
    """A difference as a percentage with its sign."""
    text = percent(fraction, places)
    shown = text.strip("-0. %") != ""
    return f"+{text}" if shown and text != EMPTY and fraction > 0 else text


def gib(size: float) -> str:
    """Bytes in GiB, one decimal from 1 GiB on, else 3 significant digits."""
    if absent(size):
        return EMPTY
    value = size / GIB
    return f"{value:,.1f} GiB" if value >= 1 else f"{significant(value)} GiB"


def error(value: float) -> str:
    """An error or its bound: two significant digits in exponent form."""
    return EMPTY if absent(value) else f"{value:.1e}"


def listed(items) -> str:
    """``a``, ``a and b``, ``a, b and c``; ``none`` for nothing."""
    items = [str(item) for item in items]
    if not items:
        return "none"
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)
