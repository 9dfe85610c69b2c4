"""The page of memory: peaks beside predictions, autocast, and tensors over time."""

import pandas as pd
import planted
import pytest

from lmperf.reporting.sections import section
from lmperf.reporting.sections.memory_timeline import OWNERS, thinned

SINGLE = "float32"


def peak(mib, context=512, **parts):
    cell = {"size": "0.13B", "context_length": context, "batch": 4, "dtype": SINGLE}
    parts = {f"{name}_mib": value for name, value in parts.items()}
    known = {"predicted_mib": mib, "workspace_mib": 0, "peak_mib": mib}
    about = {"implementation": "eager", "phase": "train_step"}
    return planted.row("memory", **cell, **about, **(known | parts))


@pytest.mark.parametrize("state, turns", [(0.51, True), (0.49, False)])
def test_the_model_turns_from_most_of_the_peak_to_little(state, turns):
    short = peak(1000, context=128, parameters=1000 * state, activations=100)
    long = peak(1000, context=512, parameters=400, activations=500)
    page = planted.page("memory", planted.evidence(short, long))
    assert ("They grow with the context, weights and moments do not." in page.text) == turns


@pytest.mark.parametrize("off, within", [(1.049, 10), (1.051, 9)])
def test_predictions_within_five_percent_count(off, within):
    rows = [peak(1000, context=n) for n in range(9)]
    page = planted.page("memory", planted.evidence(*rows, peak(1000 * off, predicted=1000)))
    said = "all 10 within 4.9 %." if within == 10 else "9 of 10 within 5 %."
    assert said in page.text


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
    peak_of = section(planted.evidence(*step(at, gradients)), "memory_timeline").peak
    assert peak_of.begins_backward == begins
    assert peak_of.owner == "activations"


def test_highest_point_of_a_thinned_curve_is_drawn_as_wide_as_others():
    names = [f"{name}_mib" for name in OWNERS]
    curve = pd.DataFrame(1.0, index=range(1000), columns=names).assign(position=range(1000))
    curve.loc[507, names] = 9.0
    drawn = thinned(curve)
    widths = drawn["position"].diff().shift(-1)
    assert drawn[names].max().eq(9.0).all() and widths[drawn[names[0]].idxmax()] == 8
    assert drawn["position"].iloc[[0, -1]].tolist() == [0, 999]


@pytest.mark.parametrize(("mib", "explains"), [(96, True), (98, False)])
def test_shape_explains_the_bytes_of_the_largest_tensor(mib, explains):
    block = point("block", tensor="float32[4, 12, 1024, 512]", size_mib=mib)
    found = section(planted.evidence(*step(), block), "course_model")
    assert found.shape_explains == explains
