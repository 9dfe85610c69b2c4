"""Losses with bf16 weights beside the range with float32 weights."""

import planted
import pytest
from planted_steps import loss, rung

from lmperf.reporting.sections import section
from lmperf.reporting.words import NotMeasured

SMALL, MEDIUM, LARGE = "0.13B", "0.42B", "0.97B"


def runs(*of_half, exact=(2.0, 2.1), size=LARGE):
    """Losses of runs with float32 weights, then of those with bf16 weights."""
    names = ["float32", "autocast"][: len(exact)] + ["bf16_weights", "bf16_graph"][: len(of_half)]
    return [loss(name, of, size) for name, of in zip(names, (*exact, *of_half), strict=True)]


def losses(*rows, **more):
    return section(planted.evidence(*rows, **more), "losses")


def what_to_run(*rows):
    """The part of the first page."""
    of = planted.evidence(*rows)
    values = {"run": section(of, "what_to_run"), "report": section(of, "report")}
    return planted.page("report/what_to_run", of, values)


@pytest.mark.parametrize(
    ("value", "outside", "harms"),
    [
        *((2.05, 0, False), (2.12, 2.12 / 2.1 - 1, False), (2.13, 2.13 / 2.1 - 1, True)),
        *((1.979, -0.0105, False), (4.2, 1, True)),
    ],
)
def test_loss_harms_from_one_percent_above_the_range_on(value, outside, harms):
    made = losses(*runs(value))
    assert made.bf16.by_size["large"] == pytest.approx(outside)
    assert bool(len(made.bf16.above)) is harms
    if not harms:
        assert made.bf16.harmless == ["large"]
        assert made.bf16.bound == pytest.approx(max(outside, 0), abs=1e-3)


def test_page_says_which_losses_are_above_the_range():
    rows = [*runs(2.1, size=SMALL), *runs(4.2, size=MEDIUM), *runs(1.0)]
    page = planted.page("mixed_precision", planted.evidence(*rows, mixed()))
    steps, apart, *above = planted.printed(page)
    assert (steps, apart) == (100, pytest.approx(0.05)) and above == [1, 1], "at medium"
    [table] = [table for table in page.tables if table.id == "M3"]
    [outside] = [column for column in table.columns if column.name.endswith("outside")]
    assert [cell.words for cell in outside.cells] == ["no", "+100.0 %", "-50.0 %"]


def test_graph_with_bf16_gradients_is_no_part_of_the_range():
    made = losses(*runs(2.05), loss("graph", 2.2, LARGE))
    assert made.bf16.harmless == ["large"]
    assert made.graph.above["large"] == pytest.approx(2.2 / 2.1 - 1)
    assert not len(losses(*runs(2.05), loss("graph", 2.11, LARGE)).graph.above)
    rows = [*runs(2.05), loss("graph", 2.2, LARGE), mixed()]
    ways = [rung(name, 10.0, LARGE) for name in ("graph", "bf16_graph")]
    for page in (
        planted.page("mixed_precision", planted.evidence(*rows)),
        what_to_run(*rows, *ways),
    ):
        assert pytest.approx(2.2 / 2.1 - 1, rel=1e-5) in planted.printed(page)


@pytest.mark.parametrize("name", ["fp8_graph", "fp8_tensorwise"])
@pytest.mark.parametrize(
    ("ms", "value", "advised"),
    [(6.0, 2.05, True), (6.0, 2.2, False), (9.0, 2.05, False), (6.0, None, False)],
)
def test_float8_is_advised_where_it_is_faster_and_its_loss_holds(ms, value, advised, name):
    rows = [rung("graph", 10.0), rung("bf16_graph", 8.0), rung(name, ms)]
    rows += [*runs(2.05, 2.05), *([loss(name, value)] if value else [])]
    made = what_to_run(*rows)
    numbers = planted.printed(made)
    assert (pytest.approx(8 / 6, rel=1e-5) in numbers) is (ms == 6.0)
    assert (pytest.approx(2.2 / 2.1 - 1, rel=1e-5) in numbers) is (value == 2.2)
    assert ("Its loss was not measured" in made.text) is (value is None)
    assert ("# float8 matmuls, too" in made.text) is (advised and name == "fp8_graph")
    assert losses(*rows).bf16.bound == 0  # the loss in float8 is none with bf16 weights alone


def test_stale_loss_of_float8_says_nothing():
    rows = [*runs(2.05, 2.05), loss("fp8_graph", 2.05, key="old")]
    assert losses(*rows).float8("fp8_graph").harmless == ["large"]
    with pytest.raises(NotMeasured):
        losses(*rows, stale=frozenset({"old"})).float8("fp8_graph")


def test_each_float8_step_is_judged_by_its_own_losses():
    rows = [rung("bf16_graph", 8.0), rung("fp8_graph", 6.0), rung("fp8_tensorwise", 6.5)]
    rows += [*runs(2.05, 2.05), loss("fp8_graph", 2.05), loss("fp8_tensorwise", 2.2)]
    made = losses(*rows)
    assert made.float8("fp8_graph").harmless == ["large"] and not made.float8("fp8_graph").above
    assert made.float8("fp8_tensorwise").above == {"large": pytest.approx(2.2 / 2.1 - 1)}
    text = what_to_run(rung("graph", 10.0), *rows).text
    assert "At large its loss does not end above" in text
    assert "At large the loss of FP8, tensorwise (torchao) ends" in text


def test_float8_whose_check_failed_is_named():
    failed = {"status": "failed_check", "max_error": 1.05, "error_bound": 0.8}
    rows = [rung("graph", 10.0), rung("bf16_graph", 8.0), rung("fp8_graph", 6.0, **failed)]
    said = "Without a time, since its check failed: FP8 (lmperf) at large, batch 4."
    assert said in what_to_run(*rows).text
    assert "its check failed" not in what_to_run(*rows[:2], rung("fp8_graph", 6.0)).text


@pytest.mark.parametrize("is_measured", [True, False])
def test_advice_names_a_loss_that_was_measured(is_measured):
    ways = [rung("graph", 10.0), rung("bf16_graph", 8.0)]
    text = what_to_run(*ways, *(runs(2.05, 2.05) * is_measured)).text
    assert (", if your loss allows it (the losses" in text) is is_measured
    assert ("the loss was not measured here." in text) is not is_measured


def test_steps_trained_several_times_are_compared_by_their_means():
    apart = {"float32": (1.9, 2.0), "autocast": (1.9, 2.3), "bf16_weights": (1.8, 2.4)}
    made = losses(
        *(loss(name, of, SMALL, run=n) for name, both in apart.items() for n, of in enumerate(both))
    )
    assert made.bf16.harmless == ["small"]  # though 2.4 is above every other run
    assert made.apart == {"small": pytest.approx(2.4 / 1.8 - 1)}
    assert (made.runs.low, made.runs.high) == (2, 2)


def mixed():
    return planted.row("mixed_precision", experiment="dtypes", status="crash")
