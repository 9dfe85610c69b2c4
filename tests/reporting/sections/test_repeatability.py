"""Second times stand beside the first ones, by kind of row."""

import planted
import pytest
from planted_steps import step

from lmperf.reporting.sections import section
from lmperf.reporting.sections.repeatability import STEP


def twice(row, factor):
    """A row and its second measurement, so many times as long."""
    again = {}
    for name, text in row.items():
        times = text.split(";") if name.endswith("_ms") and text else []
        again[name] = ";".join(str(float(of) * factor) for of in times) or text
    return row, again


def kernel(ms):
    return planted.row("lrpe", ms)


def made(*pairs):
    rows = [first for first, _ in pairs]
    again = {}
    for first, second in pairs:
        again.setdefault(first["stem"], []).append(second)
    return section(planted.evidence(*rows, again=again), "repeatability")


def a_step(**values):
    return step("0.97B", "float32", "eager", 50.0, **values)


def test_second_times_of_earlier_rows_are_left_out():
    first, again = twice(a_step(), 1.01)
    assert not made((first, again | {"key": "f" * 16})).has_steps


def test_difference_is_that_of_its_kind():
    steps = [twice(a_step(), factor) for factor in (1.01, 0.95, 1.02)]
    found = made(*steps, twice(kernel(1.0), 2.0))
    assert found.apart(STEP).high == pytest.approx(0.05)
    assert found.has_steps


@pytest.mark.parametrize(("gpus", "said"), [("GPU-2", True), ("GPU-1", False), ("", False)])
def test_second_times_on_other_gpus_are_counted(gpus, said):
    first, again = twice(kernel(1.0) | {"gpus": "GPU-1"}, 1.0)
    of = planted.evidence(first, again={"lrpe": [again | {"gpus": gpus}]})
    text = planted.page("method", of).text
    assert ("In 1 of 1 pairs, the second ran on other GPUs" in text) is said


def test_rows_of_several_benchmarks_keep_their_names():
    found = made(twice(a_step(), 1.0), twice(kernel(1.0), 1.0)).lines.frame
    assert not found["cell"].str.contains(".0", regex=False).any()
