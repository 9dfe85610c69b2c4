"""Peaks by rung of the ladder and with activation checkpoints, and the first page's part."""

import planted
import pytest

from lmperf.reporting.sections import section
from lmperf.transformer.rungs import RUNGS

SAVING = {"float32": 10_000, "autocast": 10_000, "compiled_blocks": 7000, "flash_attention": 5000}


def rungs(mib, **values):
    """The steps of rungs. mib: rung -> its peak; None if it ran out of memory."""
    cell = {"size": "3.4B", "context_length": 1024, "batch": 4, "parameters": 2**30}
    return [
        planted.row(
            "end_to_end",
            dtype=rung.dtype,
            implementation=rung.implementation,
            phase="train_step",
            peak_mib=mib[rung.name],
            status="ok" if mib[rung.name] else "oom",
            **(cell | values),
        )
        for rung in RUNGS
        if rung.name in mib
    ]


def ladder(*rows):
    return section(planted.evidence(*rows), "memory_ladder")


@pytest.mark.parametrize("flash, saves", [(6290, True), (6310, False), (7500, False)])
def test_technique_saves_more_than_a_tenth(flash, saves):
    found = ladder(*rungs(SAVING | {"flash_attention": flash}))
    assert found.savers == ["compiling by block"] + ["flash attention"] * saves


def test_every_size_is_shown():
    sizes = ("0.13B", "0.42B", "0.97B", "2.0B", "3.4B")
    found = ladder(*(row for size in sizes for row in rungs(SAVING, size=size)))
    assert [*found.peaks.index] == ["small", "medium", "large", "2.0B", "3.4B"]


def test_pool_of_a_graph_counts():
    found = ladder(*rungs({"float32": 4096, "bf16_graph": 1024}, pool_mib=1024))
    assert found.peaks.loc["3.4B", "bf16_graph"] == 2.0
    assert found.every.frame["weights_gib"].tolist() == [12.0, 12.0]


@pytest.mark.parametrize(
    ("rungs_shown", "says"),
    [(("graph", "bf16_graph"), False), (("autocast", "bf16_graph"), True)],
)
def test_table_needs_two_peaks(rungs_shown, says):
    rows = rungs(dict.fromkeys(rungs_shown, 1024))
    page = planted.page("memory", planted.evidence(*rows)).text
    assert ('alt="Memory of a train step"' in page) == says and 'alt=""' not in page


def test_figure_has_one_size():
    small = rungs(SAVING | {"float32": 1000}, size="0.13B")
    found = ladder(*small, *rungs(SAVING), *rungs({"autocast": 9000, "graph": 9000}, size="8.1B"))
    assert {bar["end"] for bar in found.bars if "end" in bar} == {"9.77", "6.84", "4.88"}


def test_cell_has_two_peaks_of_the_table():
    rest = rungs(dict.fromkeys(("graph", "bf16_graph", "fused_blocks"), 1024))
    two = rungs(dict.fromkeys(("float32", "autocast"), 1024), context_length=512)
    assert ladder(*rest, *two).every.only("context_length") == 512
    one = rungs({"bf16_graph": 1024}, context_length=512, size="2.0B")
    assert [*ladder(*two, *one).peaks.index] == ["2.0B", "3.4B"]


def checkpoints(each=1.4, **none):
    """A step of 100 ms and 20,000 MiB without checkpoints, and steps with them."""
    cell = {"size": "0.97B", "context_length": 2048, "batch": 4, "dtype": "autocast_bfloat16"}
    plain = {"ms": 100, "peak_mib": 20_000} | none
    rows = [planted.row("checkpointing", implementation="eager", **cell, **plain)]
    for name, mib in (("checkpoint_1", 4096), ("checkpoint_2", 5120), ("nested_4", 4096)):
        known = {"ms": 100 * each, "implementation": name, "peak_mib": mib}
        rows.append(planted.row("checkpointing", **cell, **known))
    return rows


def saved(*rows):
    return section(planted.evidence(*rows), "checkpointing")


OOM = {"ms": None, "peak_mib": None, "status": "oom"}


def test_step_that_does_not_fit_has_its_predicted_peak():
    found = saved(*checkpoints(**OOM))
    assert not found.saved().fits
    assert found.saved().none == pytest.approx(104, abs=0.5)
    assert found.every.frame["predicted_mib"].notna().all()


def test_cost_is_that_of_a_forward():
    size, longer = saved(*checkpoints(1.25)).cost("checkpoint_1")
    assert (size, longer) == ("large", pytest.approx(0.25))


def test_rungs_of_equal_peaks_share_a_bar():
    found = ladder(*rungs(SAVING | {"tf32": 10_000, "fused_loss": 5001}))
    lines = [bar["line"] for bar in found.bars if "end" in bar]
    assert lines[0] == "float32, eager; TF32; bf16 autocast"
    assert lines[-1] == "+ lmperf's attention + loss in chunks"
