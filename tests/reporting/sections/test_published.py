"""The table of figures that others published beside our measurement of the same cell.

The table gives no verdict (faster, slower) between the two.
"""

import pytest

from lmperf.benchmarks import load, stems
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.markdown import markdown
from lmperf.reporting.published import STEMS, cell_of, figures_of, sources
from lmperf.reporting.sections.published import MOST, beside, counts, source_table

UNITS = {"", "s", "ms", "MB", "GB", "G", "%", "TFLOP/s"}


@pytest.mark.parametrize("stem", STEMS)
def test_published_figures_have_source_device_and_known_unit(stem):
    figures = figures_of(stem)
    assert (figures[["source", "device", "metric", "value"]] != "").all(axis=None)
    assert set(figures["unit"]) <= UNITS
    assert len(figures.loc[figures["value"] != "OOM", "value"].astype(float))
    keys = [name for name in figures if name not in ("value", "spread", "unit", "note")]
    assert not figures.duplicated(keys).any()


@pytest.mark.parametrize("stem", sorted(set(STEMS) & set(stems())))
def test_published_figures_use_axes_of_their_benchmark(stem):
    benchmark = load(stem)
    # A published write-up may also state a kernel or a number of warm-up steps.
    known = {"kernel", "warmup_steps", "implementation", *benchmark.index}
    assert set(cell_of(figures_of(stem))) <= known | {axis.name for axis in benchmark.axes}


def test_every_source_of_a_figure_has_author_and_title():
    named = set().union(*(figures_of(stem)["source"] for stem in STEMS))
    assert named >= {f"write-up 00{number}" for number in range(5)}
    table = source_table(MachineEvidence("bare"))[0].frame.set_index("source")
    assert set(table.index) == named == set(sources()["source"])
    assert (table[["author", "title", "devices"]] != "").all(axis=None)
    assert table.loc["write-up 003", "devices"] == "A100 40 GB; H100 80 GB"
    assert table.loc["write-up 000", "author"] == table.loc["write-up 000", "devices"]
    assert table.loc["write-up 000", "author"] == "not stated"
    assert table["figures"].sum() == sum(len(figures_of(stem)) for stem in STEMS)


def test_figures_without_a_row_are_counted_by_reason(gpu):
    (table,) = counts(gpu)
    frame = table.frame.set_index("benchmark")
    assert set(frame.index) == set(STEMS)
    reasons = ["cell not stated in full", "quantity not measured here", "cell not measured here"]
    assert (frame[["with a row here", *reasons]].sum(axis=1) == frame["figures"]).all()
    assert frame.loc["profiles", "with a row here"] == 0
    without = int(frame[reasons].to_numpy().sum())
    assert f", {without:,} have none." in table.notes


def with_flops(gpu, flops):
    frame = gpu.frames["attention"]
    gpu.frames["attention"] = having(frame, seq_len=16384).assign(causal=False, flops=flops)
    return lines_of(gpu).loc[("attention", "write-up 003, H100 80 GB")].set_index("quantity")


def test_time_above_the_data_sheet_is_called_impossible(gpu_copy):
    line = with_flops(gpu_copy, 4.0 * 8 * 16384**2 * 128).loc["forward / backward"]
    assert line["remark"].endswith(
        "6.3116 as ms cannot be: it would be 174 TFLOP/s, the data sheet has 67.0 in float32"
    )


def test_time_below_the_data_sheet_has_no_remark(gpu_copy):
    line = with_flops(gpu_copy, 1e9).loc["forward / backward"]
    assert "cannot be" not in line["remark"]


def lines_of(evidence):
    (table,) = beside(evidence)
    return table.frame.set_index(["benchmark", "source"])


def test_table_shows_the_largest_cell_of_each_source(gpu):
    lines = lines_of(gpu)
    assert len(lines) <= MOST
    lrpe = lines.loc[("lrpe", "write-up 004, A800")].set_index("quantity")
    time = lrpe.loc["forward / backward"]
    assert time["cell"].endswith("shape 32768, d_head 128, extra tokens 10, bf16, Triton")
    assert time["published"] == "4.002055 / 6.994319" and time["here"].endswith(" ms")
    assert "no unit stated" in time["remark"]
    assert lrpe.loc["peak memory, forward / backward", "here"] == "3,492 / 6,983 MiB"


def test_seconds_are_shown_in_milliseconds(gpu):
    line = lines_of(gpu).loc[("end_to_end", "write-up 002, MacBook Air, CPU")]
    assert line["cell"] == "large, context 256, batch 4, float32, PyTorch"
    assert line["published"] == "2,517 / 5,547 / 8,064 ms"


def test_published_oom_has_no_unit(gpu_copy):
    frame = gpu_copy.frames["attention"]
    gpu_copy.frames["attention"] = having(frame, seq_len=16384).assign(causal=False)
    line = lines_of(gpu_copy).loc[("attention", "write-up 000")].set_index("quantity")
    assert line.loc["forward / backward", "published"] == "OOM / OOM"


def test_rows_with_a_failed_gate_are_not_shown(gpu_copy):
    frame = gpu_copy.frames["flash_attention"]
    frame["max_error"] = 1.0
    assert "flash_attention" not in {stem for stem, _ in lines_of(gpu_copy).index}


def test_table_is_not_folded_and_links_every_source(gpu):
    text = markdown(beside(gpu)[0])
    assert "<details>" not in text
    assert all(f"[{stem}](" in text for stem in STEMS)


def test_nothing_is_shown_without_a_matching_cell():
    assert beside(MachineEvidence("bare")) == []


def test_remarks_state_impossible_times_and_differences(gpu):
    assert "a backward of -2.75 ms (write-up 002, small, context 256)" in beside(gpu)[0].notes
    lines = lines_of(gpu)
    assert lines.loc[("memory", "write-up 003, A100 40 GB"), "remark"] == (
        "the forward here is without gradients"
    )
    assert "input resident twice" in lines.loc[("lrpe", "write-up 004, A800"), "remark"].iloc[0]


def test_number_of_a_marked_row_has_its_marks(gpu_copy):
    frame = gpu_copy.frames["lrpe"]
    gpu_copy.frames["lrpe"] = frame.assign(marks="drift", stale=True)
    (table,) = beside(gpu_copy)
    columns = {column.name: column.cells for column in table.columns}
    found = {
        (stem.value, quantity.value.startswith("peak memory")): cell.marks
        for stem, quantity, cell in zip(
            *(columns[name] for name in ("benchmark", "quantity", "here")), strict=True
        )
    }
    assert found["lrpe", False] == ("drift", "stale")
    assert found["lrpe", True] == ("stale",), "a mark concerns times"
    assert {marks for (stem, _), marks in found.items() if stem != "lrpe"} == {()}
