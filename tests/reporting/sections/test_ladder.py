"""Sentences on the ladder follow the data: faster, slower, the same, hidden, missing."""

import planted
import pytest
from planted_steps import AUTOCAST, loss, rung, step

from lmperf.reporting.sections import section
from lmperf.reporting.sections.ladder import HIDDEN, WAITING, WORKING
from lmperf.reporting.sections.steps import BETWEEN_GPUS, compared, steps
from lmperf.reporting.sections.ways import Way
from lmperf.transformer.rungs import RUNGS

TF32 = RUNGS[1]
WORDS = {rung.name: rung.name for rung in RUNGS}


def ladder(*rows, **more):
    return section("ladder", planted.evidence(*rows, **more))


def both(ms, base=100.0, **values):
    return ladder(rung("float32", base), rung("tf32", ms, **values))


@pytest.mark.parametrize(
    ("ms", "verdict"),
    [(50.0, "faster"), (200.0, "slower"), (104.0, "same"), (104.95, "unresolved")],
)
def test_verdict_of_rung_follows_times(ms, verdict):
    assert both(ms).verdict(TF32) == verdict


def test_rung_that_waits_is_hidden():
    assert both(50.0, waits=True).verdict(TF32) == HIDDEN


def test_verdict_needs_most_resolved_comparisons():
    rows = [rung("float32", 100.0, size) for size in ("0.13B", "0.42B", "0.97B")]
    rows += [rung("tf32", 50.0, "0.13B"), rung("tf32", 100.0, "0.42B")]
    assert ladder(*rows).verdict(TF32) == "same"
    assert ladder(*rows, rung("tf32", 50.0, "0.97B")).verdict(TF32) == "faster"


def test_larger_batches_count_for_a_verdict():
    names = ("fused_loss", "fused_blocks")
    small = [rung(name, 50.0, waits=True) for name in names]
    large = [rung(n, ms, batch=16) for n, ms in zip(names, (200.0, 150.0), strict=True)]
    fused = next(one for one in RUNGS if one.name == "fused_blocks")
    assert ladder(*small).verdict(fused) == HIDDEN
    assert ladder(*small, rung("float32", 400.0), *large).verdict(fused) == "faster"


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [(BETWEEN_GPUS + 1.02, "faster"), (1.04, "unresolved"), (1 / 1.2, "slower")],
)
def test_steps_of_two_gpus_compare_beyond_their_difference(ratio, verdict):
    rows = rung("float32", 100.0, gpus="GPU-2", together="two"), rung("tf32", 100.0 / ratio)
    found = compared(planted.evidence(*rows), Way("eager", "tf32"), Way("eager", "float32"))
    assert found["verdict"].item() == verdict
    assert found["ratio"].item() == pytest.approx(ratio)


def test_gain_is_of_the_whole_ladder():
    rows = [rung("float32", 100.0, size) for size in ("0.13B", "0.97B")]
    made = ladder(*rows, rung("bf16_graph", 10.0, "0.13B"), rung("bf16_graph", 8.0, "0.97B"))
    assert (made.gain.low, made.gain.high) == pytest.approx((10.0, 12.5))
    assert made.gained == ["small", "large"] == made.sizes


@pytest.mark.parametrize(("copies", "cost"), [(20.0, True), (9.0, False)])
def test_casts_cost_if_copies_take_longer_under_autocast(copies, cost):
    def kernel(dtype, ms):
        about = {"size": "0.97B", "dtype": dtype, "implementation": "eager", "phase": "train_step"}
        return planted.row("profiles", table="kernel", name="memcpy", total_ms=ms, **about)

    rows = kernel("float32", 10.0), kernel(AUTOCAST, copies)
    assert ladder(rung("float32", 100.0), rung("tf32", 50.0), *rows).casts_cost is cost


# The figure.


def test_bars_are_relative_to_float32():
    bars = both(50.0).bars(WORDS)
    assert [(bar["line"], bar["name"], bar["y"]) for bar in bars] == [
        ("float32", WORKING, 1.0),
        ("tf32", WORKING, 0.5),
    ]
    assert bars[1]["end"] == "50.0 ms"


def test_bar_of_profiled_step_has_two_parts():
    made = both(50.0, device_ms=40.0, launches=600, bound="host")
    assert made.shows_busy
    *_, busy, idle = made.bars(WORDS)
    assert (busy["name"], busy["y"], busy["end"]) == (WORKING, pytest.approx(0.4), "")
    assert (idle["name"], idle["y"], idle["end"]) == (WAITING, pytest.approx(0.1), "50.0 ms")


# Which steps.


def test_implementations_of_others_are_no_steps_of_ours():
    rows = rung("float32", 100.0), step("0.97B", "float32", "my_model", 10.0)
    assert [*steps(planted.evidence(*rows))["ms"]] == [100.0]


# Table E6.


def e6(*rows):
    page = planted.page("end_to_end", planted.evidence(*rows))
    [table] = [table for table in page.tables if table.id == "E6"]
    return {column.name: column.cells for column in table.columns}


def gains(*rows):
    """Technique -> speed-up over the rung below."""
    columns = e6(*rows)
    shown = zip(columns["implementation"], columns.get("over.below", ()), strict=False)
    return {name.value: cell.value for name, cell in shown if cell.value}


def test_each_rung_is_compared_with_the_line_above():
    rows = [rung("float32", 100), rung("tf32", 50), rung("autocast", 40), rung("fused_loss", 10)]
    assert gains(*rows) == pytest.approx({"tf32": 2, "autocast": 1.25, "fused_loss": 4})


def test_float8_is_compared_with_the_highest_rung():
    rows = [rung("fused_blocks", 50), rung("bf16_graph", 40), rung("fp8_rowwise", 20)]
    rows.append(rung("fp8_tensorwise", 80))
    found = gains(*rows)
    assert (found["fp8_rowwise"], found["fp8_tensorwise"]) == pytest.approx((2, 0.5))
    said = {name: gain.mean for name, gain in ladder(*rows).float8}
    assert said == pytest.approx({"fp8_rowwise": 2, "fp8_tensorwise": 0.5})


@pytest.mark.parametrize(("ms", "stands"), [(10, True), (100, False), (200, False)])
def test_whole_ladder_is_named_if_it_is_faster(ms, stands):
    page = planted.page("end_to_end", planted.evidence(rung("float32", 100), rung("graph", ms)))
    whole = [said for said in page.said if said.startswith("The whole ladder")]
    assert any("10.0 times as fast (large)" in said for said in whole) is stands


def test_loss_stands_beside_its_rung():
    losses = loss("float32", 2.0), loss("fused_loss", 2.25)
    cells = e6(rung("float32", 100), rung("fused_loss", 50), *losses)["loss"]
    assert [cell.words for cell in cells] == ["2.000", "2.250"]
