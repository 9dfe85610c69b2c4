"""Axes that several benchmarks share: the size of the model and the dtype."""

from __future__ import annotations

from lmperf.benchmark import Axis
from lmperf.dtypes import dtype_of
from lmperf.transformer.sizes import FORMER, SIZES

SIZE = Axis(
    "size",
    str,
    tuple(SIZES),
    aliases={alias: name for name, size in SIZES.items() for alias in size.aliases},
    former=FORMER,
    meaning=lambda name: SIZES[name].dimensions,
)


def dtype_axis(choices: tuple[str, ...]) -> Axis:
    """Return the axis `dtype` with these values, which are keys of `lmperf.dtypes.DTYPES`."""
    return Axis("dtype", str, choices, meaning=lambda name: dtype_of(name).meaning)
