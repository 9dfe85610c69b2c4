"""The table of figures that others published beside our measurement of the same cell.

The table gives no verdict (faster, slower) between the two.
"""

import pytest

from lmperf.benchmarks import load, stems
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.markdown import markdown
from lmperf.reporting.published import STEMS, cell_of, figures_of
from lmperf.reporting.sections.published import MOST, beside

UNITS = {"", "s", "ms", "MB", "GB", "G", "%"}


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


def test_published_figures_come_from_all_write_ups():
    sources = set().union(*(figures_of(stem)["source"] for stem in STEMS))
    write_ups = [f"write-up 00{number}" for number in range(5)]
    assert sorted(sources) == ["course leaderboard 2025", *write_ups]


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
