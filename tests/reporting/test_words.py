"""Numbers and lists as text."""

import math

import pytest

from lmperf.reporting import words
from lmperf.reporting.words import Count, NotMeasured, Range


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (8.6, "8.60"),
        (0.9996, "1.00"),
        (162.3, "162"),
        (12345.6, "12,346"),
        (0.00123, "0.00123"),
        (-2.5, "-2.50"),
        (math.nan, "–"),
        (None, "–"),
        (math.inf, "inf"),
    ],
)
def test_significant_digits_keep_the_integer_part(value, text):
    assert words.sig(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(1.0, "1.00"), (1.003, "1.003"), (0.9996, "0.9996"), (12.34, "12.3")]
)
def test_end_of_an_interval_differs_from_one(value, text):
    assert words.end(value) == text


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        ((1.002, 1.0037, 1.01), "1.004"),
        ((0.99, 1.0037, 1.01), "1.00"),
        ((12.32, 12.34, 13.0), "12.3"),
    ],
)
def test_ratio_stands_within_its_interval(ratio, text):
    assert words.between(*ratio) == text


def test_range_names_its_unit_once():
    assert words.range_(Range(0.1, 0.2, 0.3), "percent") == "10.0 to 30.0 %"
    assert words.range_(Range(1.9, 2.0, 2.1), "ratio") == "1.90x to 2.10x"
    assert words.range_(Range(2.001, 2.002, 2.003)) == "2.00"


def test_range_of_nothing_is_not_measured():
    with pytest.raises(NotMeasured):
        Range.of([math.nan])


def test_lists_and_counts_read_as_text():
    assert words.listed(["a", "b", "c"]) == "a, b and c"
    assert words.listed([4, 16.0], "or") == "4 or 16"
    assert words.listed([]) == "none"
    assert words.count(1, "row") == "1 row" and words.count(1200, "row") == "1,200 rows"
    assert str(Count(3, 12)) == "3 of 12"


def test_names_are_said_in_words():
    said = [words.name(v) for v in ("sdpa_cudnn", "forward_backward", "tf32", "0.13B", "mine")]
    assert said == ["SDPA cuDNN", "forward + backward", "TF32", "small", "mine"]
