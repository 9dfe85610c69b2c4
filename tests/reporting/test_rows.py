"""Rows as templates speak of them."""

import pytest
from planted import evidence, row

from lmperf.errors import UserError
from lmperf.reporting.sections import Section
from lmperf.reporting.words import NotMeasured


@pytest.fixture(scope="module")
def steps():
    made = [
        row("end_to_end", ms, size=size, dtype=dtype, phase="train_step")
        for size, dtype, ms in (
            ("0.13B", "float32", 100),
            ("0.13B", "tf32", 50),
            ("0.97B", "float32", 800),
            ("0.97B", "tf32", 200),
        )
    ]
    return Section(evidence(*made)).rows("end_to_end")


def test_rows_are_selected_by_values(steps):
    assert len(steps.where(size="small")) == 2
    assert len(steps.where(size=["small", "large"], dtype="tf32")) == 2
    assert not steps.where(size="medium")
    assert steps.query("ms > 100 and size == 'large'").frame["ms"].tolist() == [800, 200]


@pytest.mark.parametrize("axes", [{"sise": "small"}, {"size": "smal"}, {"dtype": "int8"}])
def test_misspelt_axis_or_value_is_an_error(steps, axes):
    with pytest.raises(UserError):
        steps.where(**axes)


def test_rows_say_ranges_and_counts(steps):
    assert steps.range("ms") == (50, 150, 800)
    assert str(steps.count("ms > 100")) == "2 of 4"
    assert steps.where(size="small").values("dtype") == ["float32", "tf32"]
    assert steps.where(size="small", dtype="tf32").one["ms"] == 50


def test_rows_are_compared_by_any_axis(steps):
    gain = steps.where(dtype="tf32").over(dtype="float32")
    assert gain.range == (2.0, 3.0, 4.0) and gain.is_faster


def test_no_rows_say_nothing(steps):
    none = steps.where(size="medium")
    for ask in (lambda: none.one, lambda: none.range("ms"), lambda: none.over("compiled")):
        with pytest.raises(NotMeasured):
            ask()


def test_condition_holds_up_to_a_value():
    made = [row("lrpe", ms, shape=str(n)) for n, ms in ((256, 1), (512, 2), (1024, 9))]
    rows = Section(evidence(*made)).rows("lrpe")
    assert rows.until("ms < 3", "shape") == "512" and rows.until("ms < 1", "shape") is None
