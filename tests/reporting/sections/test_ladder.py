"""Sentences on the ladder follow the data: faster, slower, the same, hidden, missing."""

import planted
import pytest
from planted_steps import AUTOCAST, rung, step

from lmperf.reporting.columns import over
from lmperf.reporting.frames import having
from lmperf.reporting.sections import section
from lmperf.reporting.sections.ladder import MIXED, OF_SDPA, WORKING
from lmperf.reporting.words import sig
from lmperf.transformer.rungs import RUNGS

TF32 = RUNGS[1]
SMALL, LARGE = "0.13B", "0.97B"


def ladder(*rows):
    return section(planted.evidence(*rows), "ladder")


def page(*rows):
    return planted.page("report/ladder", planted.evidence(*rows))


def lines(page):
    """The cells of each line of the first table."""
    return page.tables[0].lines


def changes(page):
    """What the first table says of each line."""
    return [line[-1].words for line in lines(page)]


def both(ms, **values):
    return ladder(rung("float32", 100.0), rung("tf32", ms, **values))


@pytest.mark.parametrize(
    ("ms", "verdict"),
    [(50.0, "faster"), (200.0, "slower"), (104.0, "same"), (104.95, "unresolved")],
)
def test_verdict_without_a_gpu_follows_times(ms, verdict):
    rows = rung("float32", 100.0, device_ms=None), rung("tf32", ms, device_ms=None)
    assert ladder(*rows).verdict(TF32) == verdict


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize(
    ("device_ms", "verdict"),
    [
        ((98.8, 98.9), "faster"),
        ((101.0, 130.0), "slower"),
        ((99.8, 101.0), "same"),
        ((90.0, 101.0), MIXED),
    ],
)
def test_verdict_on_a_gpu_is_that_of_its_time_at_all_sizes(device_ms, verdict, waits):
    rows = [rung("float32", 100.0, size) for size in (SMALL, LARGE)]
    for size, ms in zip((SMALL, LARGE), device_ms, strict=True):
        rows.append(rung("tf32", 105.0, size, waits=waits, device_ms=ms))
    assert ladder(*rows).verdict(TF32) == verdict


@pytest.mark.parametrize(
    ("device_ms", "said"),
    [
        ({SMALL: 6.0, LARGE: 7.0}, "(GPU time -40.0 to -30.0 %); no faster where"),
        ({SMALL: 10.0, LARGE: 10.1}, "no gain (GPU time"),
        ({SMALL: 6.0, LARGE: 10.1}, "GPU time -40.0 to +1.0 %"),
        ({SMALL: 9.88, LARGE: 9.89}, "(GPU time -1.2 to -1.1 %)"),
    ],
)
def test_rung_that_waits_is_judged_by_the_time_of_the_gpu(device_ms, said):
    rows = []
    for size in (SMALL, LARGE):
        rows += [rung("compiled_blocks", 20.0, size, device_ms=10.0)]
        rows += [rung("flash_attention", 30.0, size, waits=True, device_ms=device_ms[size])]
    lower, line = lines(page(*rows))
    assert said in line[-1].words and lower[1].words == "20.0"
    assert line[1].words == f"30.0 ({sig(device_ms[SMALL])})" and line[1].waits


def test_larger_batches_are_in_no_change_of_the_gpu_time():
    rows = [rung("graph", 10.0, device_ms=10.0), rung("bf16_graph", 9.0, device_ms=9.0)]
    larger = [rung("graph", 80.0, batch=16, device_ms=80.0)]
    larger += [rung("bf16_graph", 78.0, batch=16, device_ms=78.0)]
    lowest = rung("float32", 100.0)
    assert changes(page(lowest, *rows, *larger))[-1].endswith("(GPU time -10.0 %)")


@pytest.mark.parametrize(("ms", "is_lost"), [(200.0, True), (90.0, True), (50.0, False)])
def test_gain_that_no_waiting_step_shows_is_lost(ms, is_lost):
    assert both(ms, waits=True, device_ms=40.0).is_lost_in_waiting(TF32) is is_lost
    below = rung("float32", 100.0, waits=True)
    assert not ladder(below, rung("tf32", ms)).is_lost_in_waiting(TF32)


def test_attention_of_pytorch_stands_beside_that_of_lmperf():
    rows = [rung("compiled_blocks", 20.0), rung("flash_attention", 15.0)]
    assert changes(page(*rows))[-1].endswith("(GPU time -25.0 %)")
    sdpa = step(LARGE, AUTOCAST, "sdpa_compiled_blocks", 16.0)
    assert changes(page(*rows, sdpa))[-1].endswith("(GPU time -25.0 %; with SDPA -20.0 %)")


@pytest.mark.parametrize(
    ("ms", "said"), [(3.0, "PyTorch's fused one, -1.0 ms"), (4.0, ", -2.0 ms of GPU time at large")]
)
def test_copies_gain_what_profiles_show(ms, said):
    cell = {"size": LARGE, "context_length": 1024, "batch": 4, "dtype": AUTOCAST}
    cell |= {"phase": "train_step", "table": "kernel", "instances": 1}
    times = {("fused_graph", "Memcpy DtoD"): 2.5, ("fused_graph", "adamw"): 4.0}
    times |= {("graph", "Memcpy DtoD"): 0.5, ("graph", "adamw"): ms}
    kernels = [
        planted.row("profiles", implementation=name, name=kernel, total_ms=of, **cell)
        for (name, kernel), of in times.items()
    ]
    steps = rung("fused_graph", 12.0, device_ms=12.0), rung("graph", 10.0, device_ms=10.0)
    assert f"{said} (GPU time" in changes(page(*steps, rung("tf32", 20.0), *kernels))[-1]


def test_gain_is_of_the_whole_ladder():
    rows = [rung("float32", 100.0, size) for size in ("0.13B", "0.97B")]
    made = ladder(*rows, rung("bf16_graph", 10.0, "0.13B"), rung("bf16_graph", 8.0, "0.97B"))
    assert (made.gain.low, made.gain.high) == pytest.approx((10.0, 12.5))
    assert made.gained == ["small", "large"] == made.sizes


def test_graphs_of_the_first_tables_alone_are_no_ladder():
    rows = [rung("graph", 10.0), rung("bf16_graph", 9.0)]
    why = "## Why"
    assert why not in page(*rows).text
    assert why in page(*rows, rung("fused_blocks", 12.0)).text


# The figure.


def test_bars_on_a_gpu_are_in_ms_without_float32_and_beside_sdpa():
    rows = [rung("float32", 100.0), rung("tf32", 50.0), rung("graph", 10.0)]
    rows += [rung("float32", 30.0, SMALL), rung("tf32", 20.0, SMALL)]
    peer = step(LARGE, AUTOCAST, "sdpa_graph", 12.0)
    bars = ladder(*rows, peer).bars
    assert [(bar["panel"], bar["line"], bar["name"], bar["y"]) for bar in bars] == [
        ("large", "TF32", WORKING, 50.0),
        ("large", "+ graph, bf16 copies", WORKING, 10.0),
        ("large", "SDPA, compiled, graph", OF_SDPA, 12.0),
    ]
    assert bars[1]["end"] == "10.0 ms"


def test_first_sentence_and_title_are_over_sdpa_in_a_graph():
    rows = [rung("float32", 100.0), rung("bf16_graph", 10.0, peak_mib=1024)]
    assert planted.printed(page(*rows)) == [10]
    made = page(*rows, step(LARGE, AUTOCAST, "sdpa_graph", 12.0, peak_mib=2048))
    assert planted.printed(made) == [1.2, 10], "over SDPA, over float32"
    assert "1.20 times as fast" in " ".join(made.figures["end_to_end"]["title"]["text"])


def test_copies_have_a_line_beside_the_graph_without_them():
    rows = [rung("fused_blocks", 20.0, waits=True), rung("graph", 10.0, device_ms=9.0)]
    both = page(*rows, rung("fused_graph", 12.0, device_ms=10.0))
    for made, names in (
        (page(*rows), ["+ graph, bf16 copies"]),
        (both, ["+ graph", "+ bf16 copies"]),
    ):
        assert [line[0].words for line in lines(made)[-len(names) :]] == names
    graph, copies = changes(both)[-2:]
    assert graph.startswith("one launch") and copies.endswith("(GPU time -10.0 %)")


def test_gain_is_of_sizes_whose_ends_ran_on_one_gpu():
    rows = [rung("float32", 100.0), rung("bf16_graph", 10.0), rung("float32", 10.0, SMALL)]
    rows.append(rung("bf16_graph", 1.0, SMALL, gpus="2", together="two"))
    assert planted.printed(page(*rows)) == [10]


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
    rows = [rung("fused_blocks", 50), rung("bf16_graph", 40)]
    rows += [rung("fp8_graph", 20), rung("fp8_tensorwise", 25)]
    found = gains(*rows)
    assert (found["fp8_graph"], found["fp8_tensorwise"]) == (pytest.approx(2), pytest.approx(1.6))
    assert ladder(*rows).over("fp8_tensorwise", "bf16_graph").mean == pytest.approx(1.6)


def test_bar_of_a_stale_step_has_its_sign():
    rows = rung("tf32", 50.0), rung("graph", 10.0, key="old")
    bars = section(planted.evidence(*rows, stale=frozenset({"old"})), "ladder").bars
    assert [bar["end"] for bar in bars] == ["50.0 ms", "10.0 msˢ"]


def test_column_of_one_rung_is_over_the_one_in_its_header():
    names = {"float32": 100.0, "compiled_blocks": 40.0, "fused_loss": 35.0, "fused_blocks": 30.0}
    every = ladder(*(rung(name, ms) for name, ms in names.items())).every
    column = over("fused_blocks", "compiled_blocks")
    (cell,) = column.make(every, having(every.frame, implementation="fused_blocks"))
    assert cell.value == pytest.approx(40 / 30), "not over the rung below it"
