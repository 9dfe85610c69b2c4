"""The page of memory: peaks beside predictions, autocast, and tensors over time."""

import planted
import pytest

from lmperf.reporting.sections import section

SINGLE, HALF = "float32", "autocast_bfloat16"


def peak(mib, dtype=SINGLE, size="0.13B", context=512, phase="train_step", **parts):
    cell = {"size": size, "context_length": context, "batch": 4, "dtype": dtype, "phase": phase}
    parts = {f"{name}_mib": value for name, value in parts.items()}
    known = {"predicted_mib": mib, "workspace_mib": 0, "peak_mib": mib}
    return planted.row("memory", implementation="eager", **cell, **(known | parts))


def peaks(*rows):
    return section("memory", planted.evidence(*rows))


def both(half, copies=1024, saved=1024, size="0.13B"):
    """A step of 10,000 MiB in float32, and one with autocast."""
    return (
        peak(10_000, size=size, activations=5000, weight_copies=0),
        peak(half, HALF, size=size, activations=5000 - saved, weight_copies=copies),
    )


@pytest.mark.parametrize("half, nothing", [(10_290, True), (10_310, False), (9_690, False)])
def test_autocast_within_three_percent_changes_nothing(half, nothing):
    assert peaks(*both(half)).autocast(512).changes_nothing == nothing


@pytest.mark.parametrize("copies, saves", [(490, True), (510, False), (0, False)])
def test_autocast_saves_if_activations_shrink_by_more(copies, saves):
    assert peaks(*both(9000, copies, saved=1000)).autocast(512).saves == saves


@pytest.mark.parametrize("state, turns", [(0.51, True), (0.49, False)])
def test_the_model_turns_from_most_of_the_peak_to_little(state, turns):
    short = peak(1000, context=128, parameters=1000 * state, activations=100)
    long = peak(1000, context=512, parameters=400, activations=500)
    found = peaks(short, long)
    assert found.state_yields == turns and found.activations_grow
    assert not peaks(long, peak(1000, context=128, activations=500)).activations_grow


@pytest.mark.parametrize("off, within", [(1.049, 10), (1.051, 9)])
def test_predictions_within_five_percent_count(off, within):
    rows = [peak(1000, context=n) for n in range(9)]
    found = peaks(*rows, peak(1000 * off, predicted=1000)).prediction
    assert (found.within.k, found.within.n, found.is_close) == (within, 10, True)
    assert found.holds_for_all is (within == 10)


def point(kind, position=0, **values):
    cell = {"size": "2.0B", "context_length": 512, "batch": 4, "dtype": SINGLE}
    kinds = {"phase": "train_step", "table": kind, "position": position}
    empty = dict.fromkeys(("optimizer_mib", "inputs_mib", "temporary_mib"), 0)
    return planted.row("memory_timeline", **(cell | empty | kinds | values))


def step(at=110, gradients=4.0):
    """A step of 1,100 events whose peak of 100 MiB is at a position of it."""
    levels = {"parameters_mib": 30, "gradients_mib": 0, "activations_mib": 0}
    top = {"gradients_mib": gradients, "activations_mib": 70 - gradients}
    names = {10: "forward", 100: "backward", 1100: "optimizer", 1101: "end"}
    phases = [point("phase", position, name=name) for position, name in names.items()]
    curve = [point("curve", n, **levels) for n in (10, 50, 1000)]
    return [*phases, *curve, point("curve", at, **levels | top)]


@pytest.mark.parametrize(
    "at, gradients, begins",
    [(149, 4.9, True), (151, 4.9, False), (149, 5.1, False), (99, 0, False)],
)
def test_peak_at_the_beginning_of_the_backward(at, gradients, begins):
    peak_of = section("memory_timeline", planted.evidence(*step(at, gradients))).peak
    assert peak_of.begins_backward == begins
    assert peak_of.owner == "activations"
