"""Sentences on the ladder follow the data: faster, slower, the same, hidden, missing."""

import planted
import pytest
from planted_steps import rung

from lmperf.reporting.sections import section
from lmperf.reporting.sections.ladder import HIDDEN, WORKING
from lmperf.transformer.rungs import RUNGS

TF32 = RUNGS[1]
SMALL, LARGE = "0.13B", "0.97B"
WORDS = {rung.name: rung.name for rung in RUNGS}


def ladder(*rows):
    return section(planted.evidence(*rows), "ladder")


def both(ms, **values):
    return ladder(rung("float32", 100.0), rung("tf32", ms, **values))


@pytest.mark.parametrize(
    ("ms", "verdict"),
    [(50.0, "faster"), (200.0, "slower"), (104.0, "same"), (104.95, "unresolved")],
)
def test_verdict_of_rung_follows_times(ms, verdict):
    assert both(ms).verdict(TF32) == verdict


def test_rung_that_waits_is_hidden():
    assert both(50.0, waits=True).verdict(TF32) == HIDDEN


@pytest.mark.parametrize(
    ("device_ms", "said"),
    [
        (
            {SMALL: 6.0, LARGE: 7.0},
            "memory, but the CPU launches it more slowly (GPU time -40.0 to",
        ),
        ({SMALL: 10.0, LARGE: 10.1}, "no gain, and the CPU launches it more slowly (GPU time"),
        ({SMALL: 6.0, LARGE: 10.1}, "| GPU time -40.0 to +1.0 %"),
    ],
)
def test_rung_that_waits_is_judged_by_the_time_of_the_gpu(device_ms, said):
    rows = []
    for size in (SMALL, LARGE):
        rows += [rung("compiled_blocks", 20.0, size, device_ms=10.0)]
        rows += [rung("flash_attention", 30.0, size, waits=True, device_ms=device_ms[size])]
    page = planted.page("report", planted.evidence(*rows)).text
    assert said in page and ("*30.0 (6.00)*" in page) == (device_ms[SMALL] == 6.0)
    assert "20.0 (" not in page


@pytest.mark.parametrize(("ms", "longer"), [(200.0, True), (100.0, False)])
def test_longer_wait_than_below_is_seen(ms, longer):
    assert both(ms, waits=True, device_ms=90.0).takes_longer_to_launch(TF32) is longer
    below = rung("float32", 100.0, waits=True)
    assert not ladder(below, rung("tf32", ms)).takes_longer_to_launch(TF32)


def test_verdict_needs_most_resolved_comparisons():
    rows = [rung("float32", 100.0, size) for size in ("0.13B", "0.42B", "0.97B")]
    rows += [rung("tf32", 50.0, "0.13B"), rung("tf32", 100.0, "0.42B")]
    assert ladder(*rows).verdict(TF32) == "same"
    assert ladder(*rows, rung("tf32", 50.0, "0.97B")).verdict(TF32) == "faster"


def test_gain_is_of_the_whole_ladder():
    rows = [rung("float32", 100.0, size) for size in ("0.13B", "0.97B")]
    made = ladder(*rows, rung("bf16_graph", 10.0, "0.13B"), rung("bf16_graph", 8.0, "0.97B"))
    assert (made.gain.low, made.gain.high) == pytest.approx((10.0, 12.5))
    assert made.gained == ["small", "large"] == made.sizes


def test_graphs_of_the_first_tables_alone_are_no_ladder():
    rows = [rung("graph", 10.0), rung("bf16_graph", 9.0)]
    why = "## Why"
    assert why not in planted.page("report", planted.evidence(*rows)).text
    assert why in planted.page("report", planted.evidence(*rows, rung("fused_blocks", 12.0))).text


# The figure.


def test_bars_are_relative_to_float32():
    bars = both(50.0).bars(WORDS)
    assert [(bar["line"], bar["name"], bar["y"]) for bar in bars] == [
        ("float32", WORKING, 1.0),
        ("tf32", WORKING, 0.5),
    ]
    assert bars[1]["end"] == "50.0 ms"


def test_size_whose_ends_ran_on_two_gpus_is_named():
    rows = [rung("float32", 100.0), rung("bf16_graph", 10.0), rung("float32", 10.0, SMALL)]
    page = planted.page(
        "report", planted.evidence(*rows, rung("bf16_graph", 1.0, SMALL, gpus="2", together="two"))
    )
    assert (
        "10.0 times as fast at large.** No GPU ran the first and the last step of small."
        in page.text
    )


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


def test_float8_is_compared_with_the_highest_rung():
    rows = [rung("fused_blocks", 50), rung("bf16_graph", 40), rung("fp8_rowwise", 20)]
    rows.append(rung("fp8_tensorwise", 80))
    found = gains(*rows)
    assert (found["fp8_rowwise"], found["fp8_tensorwise"]) == pytest.approx((2, 0.5))
    said = {name: gain.mean for name, gain in ladder(*rows).float8}
    assert said == pytest.approx({"fp8_rowwise": 2, "fp8_tensorwise": 0.5})
