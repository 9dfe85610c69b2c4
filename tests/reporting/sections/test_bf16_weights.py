"""Sentences on bf16 weights: how much faster, at what loss."""

import planted
import pytest
from planted_steps import loss, rung, sdpa, step

from lmperf.reporting.sections import section
from lmperf.reporting.words import NotMeasured


@pytest.mark.parametrize(
    ("ms", "verdict", "gains"),
    [(50.0, "faster", True), (200.0, "slower", False), (100.0, "same", False)],
)
def test_verdict_over_sdpa_follows_times(ms, verdict, gains):
    rows = sdpa(100.0), rung("bf16_graph", ms)
    made = section(planted.evidence(*rows), "bf16_weights")
    assert {*made.over_peer["verdict"]} == {verdict}
    assert made.gains is gains


@pytest.mark.parametrize(("waits", "said"), [(False, True), (True, False)])
def test_gain_at_a_larger_batch_is_that_of_busy_graphs(waits, said):
    names = ("graph", 100.0, 400.0), ("bf16_graph", 80.0, 380.0)
    rows = [sdpa(110.0)]
    for name, ms, larger in names:
        rows += [rung(name, ms), rung(name, larger, batch=16, tokens=16384, waits=waits)]
    text = planted.page("report", planted.evidence(*rows)).text
    assert ("With bf16 weights the fused graph is 1.05 times as fast" in text) is said


def test_tokens_a_second_of_two_batches_are_compared_on_one_gpu():
    def growing(gpu):
        rows = [sdpa(110.0), rung("bf16_graph", 80.0, gpus="GPU-1")]
        rows += [rung("bf16_graph", 240.0, batch=16, tokens=16384, gpus=gpu)]
        return section(planted.evidence(*rows), "bf16_weights").growing

    assert [*growing("GPU-1")["size"]] == ["large"]
    with pytest.raises(NotMeasured, match="other GPUs"):
        growing("GPU-2")


def test_bf16_weights_stand_beside_sdpa_with_the_same_weights():
    rows = [step("0.97B", "autocast_bfloat16", "sdpa_copies_graph", 10.0), rung("bf16_graph", 8.0)]
    rows += [step("0.97B", "bfloat16", "sdpa_graph", 8.8)]
    larger = {"batch": 16, "tokens": 16384}
    rows += [rung("bf16_graph", 32.0, **larger)]
    rows += [step("0.97B", "bfloat16", "sdpa_graph", 40.0, **larger)]
    made = section(planted.evidence(*rows), "bf16_weights")
    assert made.over_peer["ratio"].tolist() == [pytest.approx(1.1)]
    assert made.run.pairs(made.way, made.peer, larger=True)["ratio"].tolist() == [
        pytest.approx(1.25)
    ]
    shown = made.lines.frame.set_index("implementation")["ms"]
    assert (shown["sdpa"], shown["step"]) == (8.8, 8.0)


def test_loss_beside_a_step_has_the_signs_of_the_loss():
    names = ("float32", "graph", "bf16_graph")
    losses = [loss(name, 2.0 + n) for n, name in enumerate(names)]
    steps = [rung(name, 10.0) for name in names]
    of = planted.evidence(sdpa(20.0), *steps, *losses, stale=frozenset({losses[-1]["key"]}))
    found = {
        (column.header, cell.value, cell.marks, cell.row)
        for page in ("report", "end_to_end")
        for table in planted.page(page, of).tables
        for column in table.columns
        for cell in column.cells
        if column.header.startswith("loss") and cell.value
    }
    first, graph, narrow = (row["key"] for row in losses)
    assert found == {
        *(("loss", 4.0, ("stale",), narrow), ("loss, graph above", 3.0, (), graph)),
        *(("loss", 3.0, (), graph), ("loss", 2.0, (), first)),
        ("loss, float32 (range)", 2.0, (), first),
    }
