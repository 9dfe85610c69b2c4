"""Tests of the ratios between the times of two machines."""

import math
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
from lmperf.reporting.sections.attention.bound import bounds


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
    assert "host" not in bound, "events on the device time a kernel without its launch"


def with_rows(evidence, stem, change):
    return replace(evidence, frames={**evidence.frames, stem: change(evidence.frames[stem])})


def test_ratio_is_the_quotient_of_the_times_beside_it(one):
    other = slower(one, 1.4)
    uneven = "1.0;1.0;1.0;9.0;9.0;9.0;9.0"
    changed = with_rows(other, "lrpe", lambda rows: rows.assign(rounds_ms=uneven))
    for table in ratio_tables(one, changed):
        found = columns_of(table)
        times = zip(found["one"], found["other"], found["one.over.other"], strict=True)
        for mine, theirs, ratio in times:
            assert ratio.value == pytest.approx(theirs.value / mine.value)
            assert theirs.value == 9.0


def test_steps_with_sustained_times_are_compared_by_these():
    one = only(synthetic.gpu_evidence(), "end_to_end")
    frame = having(one.frames["end_to_end"], phase="train_step", status="ok")
    rows = frame.iloc[:2].assign(rounds_ms="10.0;10.0", sustained_rounds_ms=["20.0;20.0", None])
    mine = with_rows(one, "end_to_end", lambda _: rows)
    burst, lasting = "11.0;11.0", ["30.0;30.0", "40.0;40.0"]
    theirs = rows.assign(rounds_ms=burst, sustained_rounds_ms=lasting)
    (table,) = ratio_tables(mine, with_rows(one, "end_to_end", lambda _: theirs))
    found = columns_of(table)
    assert {cell.value for cell in found["one"]} == {20.0, 10.0}
    assert {cell.value for cell in found["one.over.other"]} == {1.5, 1.1}
    assert "sustained" in table.notes


def test_kernel_that_the_host_queued_late_is_bound_by_the_host(one):
    late = with_rows(one, "lrpe", lambda rows: rows.assign(marks="host_bound"))
    (table,) = ratio_tables(late, slower(one, 1.4))
    assert all(cell.words.startswith("host") for cell in columns_of(table)["bound"])
    assert "*Host*" in table.notes


def test_plain_attention_is_bound_by_what_its_own_page_says():
    evidence = synthetic.gpu_evidence()
    one = only(evidence, "attention")
    (table,) = ratio_tables(one, one)
    found = columns_of(table)
    words = {time.row: cell.words for time, cell in zip(found["one"], found["bound"], strict=True)}
    rows = bounds(evidence)
    assert "memory" in {*rows["bound"]}
    assert [words[key] for key in rows["key"]] == rows["bound"].tolist()


def test_sum_leaves_out_stale_cells_and_counts_unresolved_ones(one):
    other = slower(one, 1.4)
    cells = sum(int(cell.value) for cell in columns_of(ratios_by_bound(one, other))["cells"])
    stale = lambda rows: rows.assign(stale=rows["implementation"] == "triton")  # noqa: E731
    left = columns_of(ratios_by_bound(with_rows(one, "lrpe", stale), other))["cells"]
    assert 0 < sum(int(cell.value) for cell in left) < cells
    single = with_rows(other, "lrpe", lambda rows: rows.assign(rounds_ms="1.0"))
    found = columns_of(ratios_by_bound(one, single))
    assert [c.value for c in found["unresolved"]] == [c.value for c in found["cells"]]


def test_shapes_are_sorted_by_their_numbers_of_positions(one):
    (table,) = ratio_tables(one, slower(one, 1.4))
    shapes = [cell.value for cell in columns_of(table)["shape"]]
    sizes = [math.prod(map(int, shape.split("x"))) for shape in shapes]
    assert sizes == sorted(sizes) and len({*sizes}) > 3


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
