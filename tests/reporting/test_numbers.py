"""Format numbers, units, ranges and counts as the report prints them."""

import pytest

from lmperf.reporting import numbers


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.012345, "0.0123"),
        (1.005, "1.00"),
        (9.996, "10.0"),
        (12.34, "12.3"),
        (123.4, "123"),
        (12345.6, "12,346"),
        (0.0, "0"),
        (float("nan"), "–"),
    ],
)
def test_numbers_have_three_significant_digits(value, text):
    assert numbers.significant(value) == text


def test_deviation_has_the_decimals_of_the_mean():
    assert numbers.spread(12.345, 0.26) == "12.3 ± 0.3"
    assert numbers.spread(3.14159, 0.0123) == "3.14 ± 0.01"
    assert numbers.spread(119.0, 0.4) == "119 ± 0.4"
    assert numbers.spread(119.0, 0.0) == "119 ± 0"
    assert numbers.spread(5.0, float("nan")) == "5.00"


def test_percentages_keep_their_sign_unless_they_are_zero():
    assert numbers.signed_percent(0.031) == "+3.1 %"
    assert numbers.signed_percent(-0.031) == "-3.1 %"
    assert numbers.signed_percent(-0.00001) == numbers.signed_percent(0.00001) == "0.0 %"


def test_lists_are_joined_with_and():
    assert numbers.listed([]) == "none"
    assert numbers.listed(["a"]) == "a"
    assert numbers.listed(["a", "b", "c"]) == "a, b and c"


def test_bytes_use_binary_units():
    assert numbers.gib(3 * 2**30) == "3.0 GiB"
    assert numbers.gib(2**28) == "256 MiB"


def test_ratios_have_an_x_and_an_interval():
    assert numbers.ratio(1.416) == "1.42x" and numbers.ratio(12.34) == "12.3x"
    assert numbers.interval(1.416, 1.38, 1.4501) == "1.42x (1.38-1.45)"
    assert numbers.interval(1.02, 1.0009, 1.0049) == "1.02x (1.0009-1.005)", "on which side of one"
    assert numbers.interval(0.9, 0.71, 0.9986) == "0.90x (0.71-0.999)"
    assert numbers.interval(1.0, 1.0, 1.006) == "1.00x (1.00-1.01)"


def test_range_of_one_value_is_that_value():
    assert numbers.ranged(numbers.Spread.of([1.0, 2.0, 4.0])) == "1.00 to 4.00"
    assert numbers.ranged(numbers.Spread.of([1.001, 1.002]), numbers.ratio) == "1.00x"


@pytest.mark.parametrize(
    ("form", "words"), [(numbers.percent, "-50.0 to 50.0 %"), (numbers.ratio, "-0.50x to 0.50x")]
)
def test_range_names_its_unit_once(form, words):
    assert numbers.ranged(numbers.Spread.of([0.5, -0.5]), form) == words


@pytest.mark.parametrize(
    ("number", "noun", "words"),
    [
        (1, "cell", "1 cell"),
        (1200, "cell", "1,200 cells"),
        (2, "query", "2 queries"),
        (2, "pass", "2 passes"),
    ],
)
def test_counted_nouns_are_singular_or_plural(number, noun, words):
    assert numbers.counted(number, noun) == words


def test_count_tells_whether_it_is_all_or_none():
    assert str(numbers.Count(3, 4)) == "3 of 4"
    assert numbers.Count(4, 4).all and numbers.Count(0, 4).none
