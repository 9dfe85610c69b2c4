"""Published figures: as printed, with source and device, beside the same cell, never a verdict."""

import pytest

from lmperf.benchmark import load, stems
from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.sections import claims_of
from lmperf.reporting.sections.published import RESTS_ON, figures_of, tables

UNITS = {"", "s", "ms", "MB", "GB", "G", "%"}


@pytest.mark.parametrize("stem", RESTS_ON)
def test_every_figure_has_source_device_value_and_a_known_unit(stem):
    figures = figures_of(stem)
    assert (figures[["source", "device", "metric", "value"]] != "").all(axis=None)
    assert set(figures["unit"]) <= UNITS
    printed = figures.loc[figures["value"] != "OOM", "value"].astype(float)
    assert (printed > -1).all() and len(printed)
    keys = [name for name in figures if name not in ("value", "spread", "unit", "note")]
    assert not figures.duplicated(keys).any()


@pytest.mark.parametrize("stem", sorted(set(RESTS_ON) & set(stems())))
def test_the_cells_of_figures_are_cells_of_the_benchmark(stem):
    benchmark = load(stem)
    # What a write-up names beside the cell: a kernel, a number of warm-up steps.
    beside = ("kernel", "warmup_steps")
    names = [*(axis.name for axis in benchmark.axes), *benchmark.index, *beside]
    columns = list(figures_of(stem))
    axes = columns[columns.index("device") + 1 : columns.index("implementation")]
    assert set(axes) <= set(names)


def test_all_write_ups_are_there():
    sources = set().union(*(figures_of(stem)["source"] for stem in RESTS_ON))
    assert sorted(sources) == [f"write-up 00{number}" for number in range(5)]


def line_of(text, *parts):
    return next(x for x in text.splitlines() if x.startswith("|") and all(p in x for p in parts))


def test_a_figure_stands_beside_the_same_cell(gpu):
    text = tables(gpu)["beside"]
    line = line_of(text, "2.7B", "512", "TF32", "compiled", "train step")
    assert "0.393300" in line and "±" in line
    assert "write-up 003, H100 80 GB (unit not stated)" in text
    oom = line_of(text, "32768", "16 |", "float32 IEEE", "PyTorch (eager)", "backward")
    assert "OOM" in oom


def test_seconds_are_shown_in_milliseconds(gpu):
    line = line_of(tables(gpu)["beside"], "small", "256", "float32 IEEE", "eager", "| forward  ")
    assert "293 ± 10.1" in line


def test_without_a_counterpart_a_figure_is_counted_only():
    found = tables(MachineEvidence("bare"))
    assert found["beside"] == ""
    assert "write-up 004" in found["sources"]


def test_no_claim_rests_on_a_published_figure():
    assert claims_of("published") == ()
