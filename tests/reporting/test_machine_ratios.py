"""Tests of the ratios between the times of two machines."""

from dataclasses import replace

import pytest
import synthetic

from lmperf.reporting.evidence import having
from lmperf.reporting.machine_ratios import (
    data_sheets,
    ratio_tables,
    ratios_by_bound,
    unequal_software,
)


def only(evidence, stem, **facts):
    """The ceilings and one benchmark of this evidence, with other facts of its environment."""
    known = {name: {**of, **facts} for name, of in evidence.facts["environments"].items()}
    frames = {name: evidence.frames[name] for name in ("ceilings", stem)}
    return replace(evidence, frames=frames, facts={**evidence.facts, "environments": known})


@pytest.fixture
def one():
    return only(synthetic.gpu_evidence(), "lrpe")


def slower(evidence, factor, **facts):
    """Evidence of an H100 on which every kernel takes `factor` times as long."""
    made = only(evidence, "lrpe", device="NVIDIA H100 80GB HBM3", **facts)
    frame = made.frames["lrpe"]
    rounds = frame["rounds_ms"].map(
        lambda text: ";".join(str(factor * float(ms)) for ms in text.split(";")), na_action="ignore"
    )
    times = {name: factor * frame[name] for name in ("median_ms", "least_ms", "host_ms")}
    frames = {**made.frames, "lrpe": frame.assign(rounds_ms=rounds, **times)}
    return replace(made, machine="an-h100", frames=frames)


def columns_of(table):
    return {column.name: column.cells for column in table.columns}


def test_ratio_has_an_interval_and_stands_beside_the_data_sheets(one):
    (table,) = ratio_tables(one, slower(one, 1.4))
    found = columns_of(table)
    ratios = [cell for cell in found["one.over.other"] if cell.value is not None]
    assert len(ratios) == table.length > 100
    assert all(cell.low <= 1.4 <= cell.high for cell in ratios[:20])
    assert all(cell.value == pytest.approx(1.4) and cell.row for cell in ratios)
    bound = [cell.words for cell in found["bound"]]
    sheets = [cell.value for cell in found["sheets"]]
    memory = {sheet for sheet, what in zip(sheets, bound, strict=True) if what == "memory"}
    assert memory == {4800 / 3350}
    assert {sheet for sheet, what in zip(sheets, bound, strict=True) if what == "host"} <= {None}


def test_ratios_are_summed_up_by_what_bounds_the_cells(one):
    other = slower(one, 1.4)
    cells = sum(table.length for table in ratio_tables(one, other))
    found = columns_of(ratios_by_bound(one, other))
    sheets = dict(zip([cell.words for cell in found["bound"]], found["sheets"], strict=True))
    assert sheets["memory"].value == 4800 / 3350
    assert all(cell.value == pytest.approx(1.4) for cell in found["one.over.other"])
    assert sum(int(cell.value) for cell in found["cells"]) == cells
    frame = other.frames["lrpe"]
    loaded = frame.assign(marks=(frame["implementation"] == "triton").map({True: "loaded"}))
    marked = replace(other, frames={**other.frames, "lrpe": loaded})
    left = columns_of(ratios_by_bound(one, marked))["cells"]
    assert 0 < sum(int(cell.value) for cell in left) < cells
    elsewhere = {**other.frames, "lrpe": other.frames["lrpe"].assign(shape="7")}
    assert ratios_by_bound(one, replace(other, frames=elsewhere)) is None


@pytest.mark.slow
def test_cells_of_one_machine_have_no_ratio(one):
    other = slower(one, 2)
    other.frames["lrpe"] = having(other.frames["lrpe"], implementation="triton", shape="256")
    (table,) = ratio_tables(one, other)
    assert table.axes["implementation"] == "triton"
    elsewhere = {**other.frames, "lrpe": other.frames["lrpe"].assign(shape="7")}
    assert ratio_tables(one, replace(other, frames=elsewhere)) == []


def test_withheld_rows_have_no_ratio(one):
    other = slower(one, 2)
    other.frames["lrpe"] = other.frames["lrpe"].assign(status="failed_check")
    assert ratio_tables(one, other) == []


def test_unequal_software_is_named_with_every_table(one):
    other = slower(one, 1.4, torch="2.13.0")
    assert unequal_software(one, other) == ["torch: 2.11.0, 2.13.0"]
    assert "Unequal software" in ratio_tables(one, other)[0].notes
    assert unequal_software(one, slower(one, 1.4)) == []


def test_data_sheets_need_both_devices(one, cpu):
    (bandwidth, *_) = columns_of(data_sheets(one, slower(one, 1)))["ratio"]
    assert bandwidth.words == "1.43x"
    assert data_sheets(one, cpu) is None
