"""The largest error bound of md_lrpe_cosine, in a module that imports no torch."""

from lmperf.attention.rounding import UNIT_ROUNDOFF
from lmperf.benchmark import STRICT

# `inputs.FreshInputs` draws theta as a frequency of at most 1, times a factor of at most this.
_LARGEST_THETA = 1.5


def largest_bound(dtype: str, shape: str, tolerance: str | None) -> float:
    """The largest of `accuracy.error_bounds`; shape: as in "32x32"; tolerance: None if unknown."""
    largest_angle = _LARGEST_THETA * max(map(int, shape.split("x")))
    angle_error = 0.0 if tolerance == STRICT else largest_angle * UNIT_ROUNDOFF["float32"]
    rotation = 8 * UNIT_ROUNDOFF["float32"] + angle_error
    return 4 * (UNIT_ROUNDOFF[dtype] + rotation)
