"""Tables and figure of the report section on FlashAttention-2.

The head table is the one table of the section in the write-up; F1 to F5 are tables on its page. The
filled grid is the set of shapes whose batch and heads fill the GPU.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from flash_evidence import (
    SINGLE,
    gate_failed,
    line_of,
    parts_of,
    times_scaled,
    times_set,
    with_changed_rows,
    with_failed_gate,
)
from matplotlib.colors import to_hex

from lmperf.benchmarks import load
from lmperf.reporting import coverage, reproduce
from lmperf.reporting.ceilings import BURST, SUSTAINED, matmul_ceiling, sheet_ceiling
from lmperf.reporting.evidence import having
from lmperf.reporting.figures import LIGHT, themed
from lmperf.reporting.numbers import ratio, significant
from lmperf.reporting.sections import compose
from lmperf.reporting.sections.flash_attention import SECTION, kinds, tables
from lmperf.reporting.sections.flash_attention.errors import error_tables
from lmperf.reporting.speedup import geometric_mean

STEM, CHECK = kinds.STEM, kinds.CHECK


def test_host_and_loop_times_are_shown_beside_device_times(gpu):
    gpu = with_changed_rows(
        gpu, lambda rows: rows.assign(host_ms=0.25, eager_ms=0.5), phase="backward"
    )
    backward = parts_of(gpu, "Device, host and loop")[1]
    assert "backward" in backward.caption and "bf16" in backward.caption
    line = line_of(backward.frame, length=128, **{"CUDA graph": False})
    row = having(gpu.frame(STEM), seq_len=128, d_head=64, dtype="bfloat16", phase="backward")
    row = having(row, implementation="sdpa_flash", **SINGLE).iloc[0]
    names = [f"SDPA flash, {time} (ms)" for time in ("device", "host", "loop")]
    assert list(line[names]) == [significant(row["median_ms"]), "0.250", "0.500"]
    assert set(backward.frame["length"]) == {2**power for power in range(7, 17)}


def test_head_table_computes_speedups_from_timed_rounds(gpu):
    line = line_of(tables.head(gpu).frame, d_head=64, mask="full", length=1024)
    row = _row(gpu, seq_len=1024, d_head=64, causal=False, dtype="bfloat16", phase="forward")
    cell = kinds.over(gpu, "sdpa_cudnn", gpu.frame(STEM)).loc[row.name]
    assert line["forward, over SDPA cuDNN"].split()[0] == ratio(cell["ratio"])
    assert line["forward (TFLOP/s)"] == significant(_rate(row))
    assert not any("Flex" in column for column in line.index)
    caption = tables.head(gpu).caption
    assert "batch x length 16,384, heads x d_head 2,048" in caption


def test_cpu_head_table_has_one_line_per_length(cpu):
    frame = tables.head(cpu).frame
    assert list(frame["length"]) == [128, 256, 512, 1024]
    assert {"forward (ms)", "backward, over SDPA"} <= set(frame.columns)


def test_one_head_table_keeps_seven_columns_with_two_masks(cpu):
    frame = cpu.frames[STEM]
    both = [frame, frame.assign(causal=False)]
    frames = {**cpu.frames, STEM: pd.concat(both, ignore_index=True)}
    head = tables.head(replace(cpu, frames=frames))
    assert len(head.columns) <= 7 and not any("PyTorch" in c.header for c in head.columns)


def test_table_f2_means_are_geometric_over_the_cells(gpu):
    half = next(part for part in parts_of(gpu, "F2") if part.caption == "Triton over each, bf16")
    line = line_of(half.frame, work="filled grid", phase="backward")
    rows = kinds.over(gpu, "sdpa_cudnn", gpu.frame(STEM))
    rows = having(rows[kinds.filled(rows)], phase="backward")
    assert line["over SDPA cuDNN"].startswith(ratio(geometric_mean(rows["ratio"])))
    assert line["cells"] == len(rows) == 8
    both = line_of(half.frame, work="filled grid", phase="forward + backward")
    assert both["over SDPA cuDNN"].endswith(")")


def test_mean_of_one_cell_has_no_range_but_its_verdict(gpu):
    cell = {"seq_len": 1024, "dtype": "bfloat16", "d_head": 64, "causal": True}
    gpu = with_changed_rows(gpu, times_set(2.0), **cell, status="ok")
    frame = gpu.frames[STEM]
    small = frame["heads"].eq(1) | (frame["seq_len"].eq(1024) & frame["causal"])
    gpu.frames[STEM] = frame[small]
    half = next(part for part in parts_of(gpu, "F2") if part.caption == "Triton over each, bf16")
    line = line_of(half.frame, work="filled grid, d_head 64", phase="forward")
    assert line["cells"] == 1 and line["over SDPA cuDNN"] == "1.00x same"


@pytest.mark.slow
def test_table_f2_uses_the_fastest_sdpa_backend_per_cell(gpu):
    quick = with_changed_rows(
        gpu, times_scaled(0.6), implementation="sdpa_flash", dtype="bfloat16", seq_len=1024
    )
    half = next(part for part in parts_of(quick, "F2") if part.caption == "Triton over each, bf16")
    line = line_of(half.frame, work="filled grid, d_head 64", phase="forward")
    least = [line[f"over SDPA {name}"].split("(")[1][:4] for name in ("cuDNN", "flash")]
    assert line["over the fastest SDPA backend"].split("(")[1][:4] == min(least)


def test_fastest_sdpa_backend_is_unknown_where_one_is_withheld(gpu):
    """The only cell of the line leaves no mean: any other backend would be the fastest."""
    cell = {"seq_len": 1024, "dtype": "bfloat16", "d_head": 64, "causal": True, "heads": 32}
    frame = gpu.frames[STEM]
    small = frame["heads"].eq(1) | (frame["seq_len"].eq(1024) & frame["causal"])
    gpu = replace(gpu, frames={**gpu.frames, STEM: frame[small]})
    where = {"implementation": "sdpa_cudnn", "phase": "backward"}
    failed = with_changed_rows(gpu, gate_failed, **cell, **where)
    half = next(part for part in parts_of(failed, "F2") if part.caption == "Triton over each, bf16")
    forward, backward = (
        line_of(half.frame, work="filled grid, d_head 64", phase=phase) for phase in kinds.PHASES
    )
    assert forward["over the fastest SDPA backend"].endswith(("x", "same", "unresolved"))
    assert backward["over the fastest SDPA backend"] == "–"
    assert backward["over SDPA flash"] != "–"


def test_failed_accuracy_gate_withholds_time_and_speedup(gpu):
    part = compose(STEM, with_failed_gate(gpu), drawn=False).parts["F1"][0]
    line = line_of(part.frame, length=128, d_head=64)
    assert line["forward, Triton (ms)"] == "gate failed, withheld"
    assert line["forward, over PyTorch"] == "withheld"


def test_table_f1_shows_oom_of_plain_attention(gpu):
    part = compose(STEM, gpu, drawn=False).parts["F1"][0]
    line = line_of(part.frame, length=65536, d_head=64)
    assert line["forward, PyTorch (ms)"].startswith("OOM (asked 16.0 GiB")
    assert line["forward, over PyTorch"] == "–"


def test_table_f3_shows_rates_with_shares_of_the_ceiling(gpu):
    part = next(p for p in parts_of(gpu, "F3") if p.caption.startswith("Forward, bf16"))
    line = line_of(part.frame, length=16384, d_head=128, mask="causal")
    row = _row(gpu, seq_len=16384, d_head=128, causal=True, dtype="bfloat16", phase="forward")
    assert line["Triton (TFLOP/s)"] == f"{significant(_rate(row))} ({_rate(row) / 8:.1f} %)"


def test_table_f4_shows_triton_errors_beside_pytorch_errors(gpu):
    rows = having(gpu.frames[STEM], seq_len=512, d_head=64, dtype="bfloat16")
    ours, plain = (
        having(rows, implementation=name, **SINGLE)["error_dq"].max()
        for name in ("triton", "eager")
    )
    half = next(p for p in error_tables(gpu) if "bf16" in p.caption)
    line = line_of(half.frame, length=512, d_head=64)
    assert (line["dQ"], line["compared with"]) == (f"{ours:.1e} / {plain:.1e}", "plain PyTorch")
    grid = having(half.frame, length=1024, d_head=64, batch=16)
    assert set(grid["compared with"]) == {"SDPA efficient"}
    assert "times that of plain PyTorch" in half.notes


def test_table_f4_shows_failed_gates_beside_errors(gpu):
    half = next(p for p in error_tables(with_failed_gate(gpu)) if "bf16" in p.caption)
    gates = having(half.frame, **{"length": 128, "d_head": 64, "CUDA graph": False})["gate"]
    assert set(gates) == {"failed"}


def test_sdpa_efficient_is_not_measured_in_tf32(gpu):
    assert not [
        case
        for case in load(STEM).cases("gpu")
        if case.axes["dtype"] == "tf32" and case.implementation == "sdpa_efficient"
    ]
    part = next(p for p in parts_of(gpu, "F3") if p.caption.startswith("Forward, TF32"))
    assert [name for name in part.frame.columns if "(TFLOP/s)" in name] == ["Triton (TFLOP/s)"]
    errors_of_tf32 = next(p for p in parts_of(gpu, "F4") if "TF32" in p.caption)
    assert not errors_of_tf32.frame["dQ"].str.contains("/").any()


@pytest.mark.slow
def test_coverage_counts_the_cells_of_each_table(gpu):
    states = {s.table.id: s for s in coverage.states(gpu, [compose(STEM, gpu, drawn=False)])}
    frame = gpu.frame(STEM)
    grid = frame[kinds.filled(frame)]
    assert states["F3"].measured == states["F3"].owed == len(grid) / 3
    assert {state.words for state in states.values()} == {"measured"}


def test_kernel_tests_are_shown_without_timings(gpu):
    alone = replace(gpu, frames={CHECK: gpu.frames[CHECK]})
    composed = compose(STEM, alone, drawn=False)
    assert [name for name, parts in composed.parts.items() if parts] == ["Kernel tests"]


@pytest.mark.slow
def test_figure_has_a_panel_for_each_phase_d_head_and_mask(gpu, cpu):
    drawn = themed(lambda pen: SECTION.figure(gpu, pen), LIGHT)
    titles = ["d 64, causal", "d 64, full", "d 128, causal", "d 128, full"]
    assert [axis.get_title() for axis in drawn.axes] == [*titles, *[""] * 4]
    sides = [drawn.axes[0].get_ylabel(), drawn.axes[4].get_ylabel()]
    assert sides == ["forward (TFLOP/s)", "backward (TFLOP/s)"]
    drawn = themed(lambda pen: SECTION.figure(cpu, pen), LIGHT)
    titles = [axis.get_title() for axis in drawn.axes]
    assert titles == ["forward, d 64, causal", "backward, d 64, causal"]
    assert drawn.axes[0].get_ylim()[0] == 0


@pytest.mark.slow
def test_figure_shows_rates_by_length_with_numbers_at_the_ends(gpu):
    (first, *_) = themed(lambda pen: SECTION.figure(gpu, pen), LIGHT).axes
    triton = next(line for line in first.lines if line.get_label() == "Triton")
    where = {"phase": "forward", "dtype": kinds.HALF, "d_head": 64, "causal": True}
    rates = [_rate(_row(gpu, **where, seq_len=n)) for n in triton.get_xdata()]
    assert list(triton.get_ydata()) == rates and len(rates) == 2
    assert significant(rates[-1]) in [text.get_text() for text in first.texts]


@pytest.mark.slow
def test_figure_has_lines_at_peak_matmul_and_data_sheet(gpu, cpu):
    (first, *_) = themed(lambda pen: SECTION.figure(gpu, pen), LIGHT).axes
    names = [line.get_label() for line in first.lines]
    single, lasting = (matmul_ceiling(gpu, kinds.HALF, load) for load in (BURST, SUSTAINED))
    assert f"peak matmul, single calls: {significant(single)}" in names
    assert single != lasting and lasting not in [line.get_ydata()[0] for line in first.lines]
    assert f"data sheet: {significant(sheet_ceiling(gpu, kinds.HALF))}" in names
    (first, *_) = themed(lambda pen: SECTION.figure(cpu, pen), LIGHT).axes
    assert not any("data sheet" in line.get_label() for line in first.lines)


@pytest.mark.slow
def test_no_line_runs_through_a_number_of_the_figure(gpu):
    for axis in themed(lambda pen: SECTION.figure(gpu, pen), LIGHT).axes:
        for text in axis.texts:
            assert to_hex(text.get_bbox_patch().get_facecolor()) == LIGHT.background
            assert all(text.get_zorder() > line.get_zorder() for line in axis.lines)


@pytest.mark.slow
def test_figure_title_names_the_fastest_implementation(gpu):
    drawn = themed(lambda pen: SECTION.figure(gpu, pen), LIGHT)
    assert drawn.get_suptitle().startswith("Triton is the fastest (")


@pytest.mark.slow
def test_figure_title_counts_unresolved_cells(gpu):
    half = {"dtype": kinds.HALF, "status": "ok"}
    two = with_changed_rows(gpu, times_scaled(500), phase="backward", **half)
    two = with_changed_rows(
        two, times_set(50.0), phase="backward", implementation=("triton", "sdpa_cudnn"), **half
    )
    drawn = themed(lambda pen: SECTION.figure(two, pen), LIGHT)
    title = " ".join(drawn.get_suptitle().split())
    assert title.startswith("Triton is the fastest in 4 of 8 cases, 4 on par (")
    drawn = themed(
        lambda pen: SECTION.figure(with_changed_rows(gpu, times_set(50.0), **half), pen), LIGHT
    )
    title = " ".join(drawn.get_suptitle().split())
    assert title.startswith("The fastest implementations are on par")


def test_y_axis_covers_the_backward_panel(cpu):
    quick = with_changed_rows(cpu, times_scaled(0.1), phase="backward")
    drawn = themed(lambda pen: SECTION.figure(quick, pen), LIGHT)
    highest = max(np.nanmax(line.get_ydata()) for line in drawn.axes[1].lines)
    assert drawn.axes[1].get_ylim()[1] >= highest


def test_figure_is_omitted_without_a_valid_time(gpu):
    assert SECTION.figure(with_changed_rows(gpu, gate_failed), None) is None


def _rate(row):
    return row["flops"] / row["median_ms"] / 1e9


def _row(evidence, **where):
    frame = evidence.frame(STEM)
    return having(frame[kinds.filled(frame)], implementation="triton", **where).iloc[0]


def test_sustained_rates_stand_beside_single_calls(gpu, cpu):
    (table,) = parts_of(gpu, "Sustained rates of that grid")
    cells = zip(*(column.cells for column in table.columns), strict=True)
    lines = [dict(zip([one.name for one in table.columns], line, strict=True)) for line in cells]
    assert len(lines) == 4 * 2 * 2, "d_head and mask, phase, implementation"
    for line in lines:
        lost = 1 - line["sustained"].value / line["single"].value
        assert line["lost"].value == pytest.approx(lost) and 0.03 < lost < 0.07
        assert (line["clock"].value, line["power"].value) == (1575.0, 690.0)
    assert not parts_of(cpu, "Sustained rates of that grid")


def test_command_below_sustained_rates_measures_a_line_of_the_table(gpu):
    frame = gpu.frames[STEM]
    keyed = replace(
        gpu, frames={**gpu.frames, STEM: frame.assign(key=frame.index.map("k{}".format))}
    )
    composed = compose(STEM, keyed, drawn=False)
    name = "Sustained rates of that grid"
    group = next(one for one in composed.section.tables if one.name == name)
    (line,) = reproduce.lines(keyed, STEM, group, composed.parts[name])
    rows = frame[kinds.filled(frame) & frame["sustained_ms"].notna()]
    (length,), (dtype,) = set(rows["seq_len"]), set(rows["dtype"])
    assert f"seq_len={length}," in line and f"dtype={dtype}," in line
    assert "heads=1," not in line and "--phases forward_backward" not in line
