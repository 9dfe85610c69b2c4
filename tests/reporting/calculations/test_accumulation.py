"""The simulation of long sums rounds as PyTorch does, and tells what the additions did."""

import pytest
import torch

from lmperf.instruments.dtypes import accumulate
from lmperf.reporting.calculations.accumulation import BITS, Accumulation


def simulated(accumulator, addend_dtype, additions=1000, addend=0.01):
    return Accumulation.simulated(accumulator, addend_dtype, additions, addend)


@pytest.mark.parametrize("addend_dtype", BITS)
@pytest.mark.parametrize("accumulator", BITS)
def test_sums_are_those_of_torch(accumulator, addend_dtype):
    dtypes = [getattr(torch, name) for name in (accumulator, addend_dtype)]
    assert simulated(accumulator, addend_dtype).result == accumulate(*dtypes, upcast=True)


@pytest.mark.parametrize(("additions", "stalls"), [(1000, True), (100, False)])
def test_bf16_sum_stalls_where_half_a_spacing_exceeds_the_addend(additions, stalls):
    sum_ = simulated("bfloat16", "bfloat16", additions)
    assert sum_.stalls == stalls
    if stalls:
        assert (sum_.result, sum_.spacing) == (4.0, 2**-5)


def test_float16_increments_are_multiples_of_the_spacing():
    first, last = simulated("float16", "float16").worst
    assert (first.low, first.high, first.increment) == (4, 8, 3 * 2**-8)
    assert (last.low, last.increment) == (8, 2**-7)
    assert first.error == pytest.approx(0.586, abs=0.01) and last.error < 0


@pytest.mark.parametrize("additions", [780, 1000])
def test_errors_add_up_to_that_of_the_sum(additions):
    sum_ = simulated("float16", "float16", additions)
    errors = sum(one.error for one in sum_.worst) + sum_.rest
    assert errors == pytest.approx(sum_.result - additions * 0.01)
    assert additions < 1000 or sum_.rest == pytest.approx(-0.08, abs=0.005)


@pytest.mark.parametrize(
    ("sum_", "is_good"),
    [
        (("float32", "float16"), True),
        (("float32", "bfloat16"), True),
        (("float32", "float32"), False),
        (("bfloat16", "float16"), False),
        (("float32", "float16", 100_000), False),
    ],
)
def test_only_the_addend_is_rounded_in_a_good_wider_sum(sum_, is_good):
    assert simulated(*sum_).only_addend_is_rounded == is_good
