"""Losses with bf16 weights beside the range with float32 weights."""

import planted
import pytest
from planted_steps import loss, step

from lmperf.reporting.sections import section
from lmperf.reporting.words import NotMeasured

SMALL, MEDIUM, LARGE = "0.13B", "0.42B", "0.97B"


def runs(*of_half, exact=(2.0, 2.1), size=LARGE):
    """Losses of runs with float32 weights, then of those with bf16 weights."""
    names = ["float32", "autocast"][: len(exact)] + ["bf16_weights", "bf16_graph"][: len(of_half)]
    return [loss(name, of, size) for name, of in zip(names, (*exact, *of_half), strict=True)]


def losses(*rows):
    return section("losses", planted.evidence(*rows))


@pytest.mark.parametrize(
    ("value", "outside", "side"),
    [
        *((2.05, 0, "near"), (2.12, 2.12 / 2.1 - 1, "near"), (2.13, 2.13 / 2.1 - 1, "above")),
        *((1.981, -0.0095, "near"), (1.979, -0.0105, "below"), (4.2, 1, "above")),
    ],
)
def test_loss_is_near_within_one_percent_of_range(value, outside, side):
    made = losses(*runs(value))
    assert made.outside["large"] == pytest.approx(outside)
    sides = {"above": made.above, "below": made.below}
    assert [name for name, sizes in sides.items() if len(sizes)] == [side] * (side != "near")
    if side == "near":
        assert made.near == ["large"]


@pytest.mark.parametrize(("value", "bound"), [(2.05, 0.0), (2.1001, 0.001), (2.119, 0.01)])
def test_bound_of_near_losses_is_rounded_up(value, bound):
    assert losses(*runs(value)).bound == pytest.approx(bound)


def test_worse_one_of_two_losses_counts_for_a_size():
    assert losses(*runs(2.1, 4.2)).outside["large"] == pytest.approx(1)


@pytest.mark.parametrize("rows", [runs(2.05, exact=(2.0,)), runs()], ids=["no range", "no bf16"])
def test_losses_without_a_range_or_bf16_weights_say_nothing(rows):
    with pytest.raises(NotMeasured):
        losses(*rows).outside  # noqa: B018


@pytest.mark.parametrize(
    ("exact", "autocast", "half", "hurts"),
    [(1.8, 2.1, 2.2, True), (1.8, 1.81, 2.2, False), (1.8, 2.1, 1.7, False)],
)
def test_bf16_hurts_if_every_run_ends_higher(exact, autocast, half, hurts):
    made = losses(*runs(half, exact=(exact, autocast), size=SMALL))
    assert made.hurt == (["small"] if hurts else [])
    assert bool(len(made.above)) is not (half == 1.7)


@pytest.mark.parametrize(("value", "higher"), [(2.2, True), (2.05, False)])
def test_bf16_weights_end_higher_still(value, higher):
    assert losses(*runs(value, exact=(1.8, 2.1))).is_higher_still("large") is higher


@pytest.mark.parametrize(("value", "worse"), [(2.11, True), (2.09, False)])
def test_loss_is_worse_beyond_five_percent_of_float32(value, worse):
    rows = runs(value, exact=(2.0, 2.5))
    assert [*losses(*rows).worse.index] == ["large"] * worse


@pytest.mark.parametrize(("seeds", "number"), [((1,), 1), ((1, 2), 2)])
def test_losses_are_counted_by_seed(seeds, number):
    made = losses(*(loss(name, 2.0, seed=s) for s in seeds for name in ("float32", "graph")))
    assert (made.seeds, made.tokens, made.step) == (number, [256], 100)


def test_loss_of_float32_alone_compares_nothing():
    with pytest.raises(NotMeasured):
        losses(loss("float32", 2.0)).seeds  # noqa: B018


def test_page_says_near_and_far_losses_by_size():
    rows = [*runs(2.1, size=SMALL), *runs(4.2, size=MEDIUM), *runs(1.0)]
    page = planted.page("mixed_precision", planted.evidence(*rows, mixed()))
    [said] = [said for said in page.said if "bf16 weights" in said]
    assert "within the range with float32 weights (small" in said
    assert "At medium" in said and "100.0 % above" in said
    assert "At large" in said and "50.0 % below" in said
    [table] = [table for table in page.tables if table.id == "M3"]
    assert [cell.words for cell in table.columns[-1].cells] == ["no", "+100.0 %", "-50.0 %"]


def mixed():
    return planted.row("mixed_precision", experiment="dtypes", status="crash")


def test_first_page_names_losses_of_steps_with_bf16_weights():
    graph = step(LARGE, "bfloat16", "graph", 50.0)
    page = planted.page("report", planted.evidence(graph, *runs(2.1, 2.05), *runs(4.2, size=SMALL)))
    assert "its loss after 100 steps stays in the range" in page.text


def test_all_pages_state_the_same_bound():
    graph = step(LARGE, "bfloat16", "graph", 50.0)
    of = planted.evidence(graph, *runs(2.1 * 1.00107), mixed())
    for name in ("report", "end_to_end", "mixed_precision"):
        assert "within 0.2 % of" in planted.page(name, of).text
