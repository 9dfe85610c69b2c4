"""What the section on FlashAttention-2 says, shows and draws."""

from dataclasses import replace

import numpy as np
import pytest
from answers import check_answers
from synthetic import cpu_evidence, gpu_evidence

from lmperf.benchmark import load
from lmperf.reporting import coverage
from lmperf.reporting.evidence import having
from lmperf.reporting.figures import LIGHT, themed
from lmperf.reporting.findings import SHORT, state
from lmperf.reporting.numbers import ratio, significant
from lmperf.reporting.sections import compose
from lmperf.reporting.sections.flash_attention import SECTION, kinds, tables
from lmperf.reporting.sections.flash_attention.errors import error_tables
from lmperf.reporting.sections.flash_attention.findings import FINDINGS
from lmperf.reporting.speedup import geometric_mean

STEM, CHECK = kinds.STEM, kinds.CHECK
SINGLE = {"heads": 1, "cuda_graph": False}
NO_OTHER = dict.fromkeys(("error_out", "error_lse", "error_dk", "error_dv"), 0.0)


def edited(evidence, change, stem=STEM, **where):
    """The evidence with ``change(rows)`` in place of the rows that have these values."""
    frame = evidence.frames[stem].copy()
    rows = having(frame, **where)
    assert len(rows)
    new = change(rows.copy())
    frame.loc[rows.index, new.columns] = new
    return replace(evidence, frames={**evidence.frames, stem: frame})


def slower(factor):
    """A change that makes rows take ``factor`` times as long."""

    def change(rows):
        times = rows["rounds_ms"].str.split(";")
        rounds = [";".join(repr(float(t) * factor) for t in row) for row in times]
        return rows.assign(rounds_ms=rounds, median_ms=rows["median_ms"] * factor)

    return change


def constant(ms):
    """A change that makes every round of the rows take so many milliseconds."""

    def change(rows):
        rounds = [";".join([str(ms)] * (text.count(";") + 1)) for text in rows["rounds_ms"]]
        return rows.assign(rounds_ms=rounds, median_ms=ms)

    return change


def hosts(ms):
    """A change that makes the host take so many milliseconds a call."""
    return lambda rows: rows.assign(host_ms=ms)


def failed(rows):
    return rows.assign(status="failed_check", max_error=9.0)


def dip(evidence):
    return edited(evidence, slower(3), implementation="triton", seq_len=256, **SINGLE)


def red(evidence):
    return edited(evidence, failed, implementation="triton", seq_len=128, d_head=64, **SINGLE)


def failed_test(evidence):
    return edited(evidence, failed, CHECK, seq_len=127, d_head=80, dtype="float32", causal=True)


CASES = {
    "flash_peers": {"is": gpu_evidence},
    "flash_one_head": {
        "everywhere": gpu_evidence,
        "from": lambda: edited(
            gpu_evidence(), slower(90), implementation="triton", seq_len=256, **SINGLE
        ),
        "counted": lambda: edited(cpu_evidence(), slower(90), implementation="tiled", seq_len=1024),
    },
    "flash_dip": {"is": lambda: dip(gpu_evidence())},
    "flash_tf32": {"is": gpu_evidence},
    "flash_leaderboard": {"is": gpu_evidence},
    "flash_host": {
        "host": gpu_evidence,
        "device": lambda: edited(gpu_evidence(), hosts(1e-4), **SINGLE),
    },
    "flash_launch": {"is": gpu_evidence},
    "flash_checks": {
        "passed": gpu_evidence,
        "failed": lambda: failed_test(gpu_evidence()),
        "red": lambda: failed_test(red(gpu_evidence())),
    },
}


def said(name, evidence):
    return state(next(f for f in FINDINGS if f.name == name), evidence).sentence


def test_every_answer_has_evidence_that_reaches_it():
    check_answers(FINDINGS, CASES)


def test_the_line_of_the_first_screen_has_at_most_twenty_words(gpu, cpu):
    short = [f for f in FINDINGS if f.place == SHORT]
    assert [f.name for f in short] == ["flash_peers"]
    for evidence in (gpu, cpu):
        assert len(said("flash_peers", evidence).split()) <= 20


def test_other_sentences_have_at_most_thirty_five_words(gpu):
    for evidence in (dip(gpu), failed_test(red(gpu))):
        for statement in compose(STEM, evidence, drawn=False).statements:
            assert len(str(statement).split()) <= 35, str(statement)


def test_what_is_not_measured_is_not_said(gpu):
    bare = replace(gpu, frames={})
    assert all(state(finding, bare) is None for finding in FINDINGS)


def test_a_speedup_that_only_rises_is_not_worth_a_word(gpu, cpu):
    names = [s.name for e in (gpu, cpu) for s in compose(STEM, e, drawn=False).statements]
    assert "flash_dip" not in names and "flash_one_head" in names


def test_a_dip_is_said_with_what_both_take_there(gpu):
    rows = kinds.over(gpu, kinds.PLAIN, gpu.frame(STEM))
    rows = having(rows[kinds.single(rows)], phase="forward", dtype=kinds.HALF)
    before, there = (having(rows, seq_len=n) for n in (128, 256))
    sentence = said("flash_dip", dip(gpu))
    assert f"{ratio(geometric_mean(before['ratio']))} at length 128" in sentence
    took, takes = (geometric_mean(own["median_ms"]) for own in (before, there))
    assert sentence.endswith(f"as long as at 128, Triton {significant(3 * takes / took)}.")


def test_float32_of_the_kernel_is_starred_and_the_star_explained(gpu, cpu):
    assert "(float32*, bf16)" in said("flash_one_head", gpu)
    composed = compose(STEM, gpu, drawn=False)
    assert "float32*" in composed.parts["F1"][0].caption
    assert "float32*: Triton" in composed.head.note
    assert "*" not in tables.head(cpu).note


def lengthened(evidence, name, phase):
    """The evidence in which one head takes its length in microseconds on the device."""
    where = {"implementation": name, "phase": phase, "status": "ok", **SINGLE}
    change = lambda rows: rows.assign(median_ms=rows["seq_len"] / 1e3)  # noqa: E731
    return edited(evidence, change, STEM, **where)


def test_the_length_below_which_a_user_waits_for_the_host_is_said_of_each(gpu):
    for name, forward, backward in (("triton", 0.3, 0.6), ("sdpa_cudnn", 0.1, 70.0)):
        for phase, ms in (("forward", forward), ("backward", backward)):
            gpu = lengthened(gpu, name, phase)
            gpu = edited(gpu, hosts(ms), implementation=name, phase=phase, **SINGLE)
            where = {"implementation": name, "phase": phase, "seq_len": 128, **SINGLE}
            gpu = edited(gpu, hosts(ms / 10), **where)
    assert said("flash_host", gpu) == (
        "One head (bf16, d_head 64): the host (a median) outlasts the device"
        " with Triton below 512 forward (0.300 ms), below 1,024 backward (0.600 ms), with SDPA"
        " cuDNN nowhere (0.100 ms), at every length (70.0 ms)."
    )


def test_host_and_device_of_the_filled_grid_stand_in_one_sentence(gpu):
    frame = gpu.frame(STEM)
    grid = having(frame[kinds.filled(frame)], dtype="bfloat16", implementation="triton")
    host, device = (
        [significant(having(grid, phase=p)[column].median()) for p in kinds.PHASES]
        for column in ("host_ms", "median_ms")
    )
    assert f" Triton {'/'.join(host)} and {'/'.join(device)}, SDPA" in said("flash_launch", gpu)


def test_host_and_loop_stand_beside_the_device(gpu):
    gpu = edited(gpu, lambda rows: rows.assign(host_ms=0.25, eager_ms=0.5), phase="backward")
    backward = _parts(gpu, "Device, host and loop")[1]
    assert "backward" in backward.caption and "bf16" in backward.caption
    line = _line(backward.frame, length=128, **{"CUDA graph": False})
    row = having(gpu.frame(STEM), seq_len=128, d_head=64, dtype="bfloat16", phase="backward")
    row = having(row, implementation="sdpa_flash", **SINGLE).iloc[0]
    names = [f"SDPA flash, {time} (ms)" for time in ("device", "host", "loop")]
    assert list(line[names]) == [significant(row["median_ms"]), "0.250", "0.500"]
    assert set(backward.frame["length"]) == {2**power for power in range(7, 17)}


def test_without_host_times_nothing_is_said_of_them(gpu, cpu):
    old = edited(gpu, hosts(np.nan), phase=["forward", "backward", "forward_backward"])
    for evidence in (old, cpu):
        composed = compose(STEM, evidence, drawn=False)
        assert not composed.parts["Device, host and loop"]
        assert not {"flash_host", "flash_launch"} & {s.name for s in composed.statements}


def test_the_worst_of_failed_kernel_tests_is_named(gpu):
    sentence = said("flash_checks", failed_test(gpu))
    assert "46 of 48 pass" in sentence and "no gate" in sentence
    assert "times its bound (Triton, float32*, length 127, d_head 80, causal)" in sentence
    crash = {"status": "crash", "max_error": np.nan}
    crashed = edited(gpu, lambda rows: rows.assign(**crash), CHECK, d_head=80)
    assert "the worst: crash (Triton" in said("flash_checks", crashed)


def test_the_first_length_is_the_one_after_the_last_slow_one(gpu):
    slow = edited(gpu, slower(90), implementation="triton", seq_len=256, d_head=64, **SINGLE)
    assert "in every cell from length 512 on" in said("flash_one_head", slow)


def test_what_is_slower_below_a_length_is_counted_of_the_cells_below_it(gpu):
    frame = gpu.frames[STEM]
    ours = frame["implementation"].eq("triton") & frame["heads"].eq(1) & ~frame["cuda_graph"]
    cells = frame[ours & frame["phase"].isin(["forward", "backward"])]
    slow, below = (cells["seq_len"] == 256).sum(), (cells["seq_len"] < 512).sum()
    sentence = said("flash_one_head", CASES["flash_one_head"]["from"]())
    assert f"from length 512 on and slower in {slow} of {below} below" in sentence


def test_speedups_are_the_times_of_the_peer_over_ours(gpu):
    for name, ms in {"triton": 2.0, "sdpa_cudnn": 3.0, "eager": 8.0}.items():
        gpu = edited(gpu, constant(ms), implementation=name, status="ok")
    assert "1.50x/1.50x over SDPA cuDNN" in said("flash_peers", gpu)
    assert "4.00x forward, 4.00x backward" in said("flash_one_head", gpu)


def test_tf32_is_said_with_its_errors_over_those_of_float32(gpu):
    for dtype, ms, error in (("tf32", 2.0, 8e-3), ("float32", 6.0, 2e-3)):
        rows = {"implementation": "triton", "dtype": dtype, "status": "ok"}
        gpu = edited(gpu, constant(ms), **rows)
        gpu = edited(gpu, lambda own, error=error: own.assign(error_dq=error, **NO_OTHER), **rows)
    sentence = said("flash_tf32", gpu)
    assert "(3.00x)" in sentence and "errors are 4.00 times as large" in sentence


def test_the_head_has_the_speedups_of_the_rounds(gpu):
    line = _line(tables.head(gpu).frame, d_head=64, mask="full", length=1024)
    row = _row(gpu, seq_len=1024, d_head=64, causal=False, dtype="bfloat16", phase="forward")
    cell = kinds.over(gpu, "flex", gpu.frame(STEM)).loc[row.name]
    assert line["forward, over FlexAttention"].split()[0] == ratio(cell["ratio"])
    assert line["forward, Triton (TFLOP/s)"].split()[0] == significant(_rate(row))
    assert not any("efficient" in column for column in line.index)
    caption = tables.head(gpu).caption
    assert "batch x length 16,384, heads x d_head 2,048" in caption


def test_the_head_of_a_machine_without_a_filled_grid_is_by_length(cpu):
    frame = tables.head(cpu).frame
    assert list(frame["length"]) == [128, 256, 512, 1024]
    assert {"forward, tiled PyTorch (ms)", "backward, over SDPA"} <= set(frame.columns)


def test_means_are_those_of_the_cells(gpu):
    half = next(part for part in _parts(gpu, "F2") if part.caption == "Triton over each, bf16")
    line = _line(half.frame, work="filled grid", phase="backward")
    rows = kinds.over(gpu, "sdpa_cudnn", gpu.frame(STEM))
    rows = having(rows[kinds.filled(rows)], phase="backward")
    assert line["over SDPA cuDNN"].startswith(ratio(geometric_mean(rows["ratio"])))
    assert line["cells"] == len(rows) == 8


def test_the_fastest_backend_is_that_of_each_cell(gpu):
    quick = edited(gpu, slower(0.1), implementation="sdpa_flash", dtype="bfloat16", seq_len=1024)
    half = next(part for part in _parts(quick, "F2") if part.caption == "Triton over each, bf16")
    line = _line(half.frame, work="filled grid, d_head 64", phase="forward")
    least = [line[f"over SDPA {name}"].split("(")[1][:4] for name in ("cuDNN", "flash")]
    assert line["over the fastest SDPA backend"].split("(")[1][:4] == min(least)


def test_a_red_gate_withholds_its_time_and_speedup(gpu):
    part = compose(STEM, red(gpu), drawn=False).parts["F1"][0]
    line = _line(part.frame, length=128, d_head=64)
    assert line["forward, Triton (ms)"] == "gate failed, withheld"
    assert line["forward, over PyTorch"] == "withheld"


def test_plain_attention_out_of_memory_is_said(gpu):
    part = compose(STEM, gpu, drawn=False).parts["F1"][0]
    line = _line(part.frame, length=65536, d_head=64)
    assert line["forward, PyTorch (ms)"].startswith("OOM (asked 16.0 GiB")
    assert line["forward, over PyTorch"] == "–"


def test_rates_stand_beside_shares_of_the_ceiling(gpu):
    part = next(p for p in _parts(gpu, "F3") if p.caption.startswith("Forward, bf16"))
    line = _line(part.frame, length=16384, d_head=128, mask="causal")
    row = _row(gpu, seq_len=16384, d_head=128, causal=True, dtype="bfloat16", phase="forward")
    assert line["Triton (TFLOP/s)"] == f"{significant(_rate(row))} ({_rate(row) / 8:.1f} %)"


def test_errors_are_ours_over_those_of_pytorch(gpu):
    rows = having(gpu.frames[STEM], seq_len=512, d_head=64, dtype="bfloat16")
    ours, plain = (
        having(rows, implementation=name, **SINGLE)["error_dq"].max()
        for name in ("triton", "eager")
    )
    half = next(p for p in error_tables(gpu) if "bf16" in p.caption)
    line = _line(half.frame, length=512, d_head=64)
    assert (line["dQ"], line["compared with"]) == (f"{ours:.1e} / {plain:.1e}", "plain PyTorch")
    grid = having(half.frame, length=1024, d_head=64, batch=16)
    assert set(grid["compared with"]) == {"SDPA efficient"}
    assert "times the error of plain PyTorch" in half.note


def test_a_failed_gate_is_said_beside_its_errors(gpu):
    half = next(p for p in error_tables(red(gpu)) if "bf16" in p.caption)
    gates = having(half.frame, **{"length": 128, "d_head": 64, "CUDA graph": False})["gate"]
    assert set(gates) == {"failed"}


def test_sdpa_efficient_has_no_tf32(gpu):
    assert not [
        case
        for case in load(STEM).cases("gpu")
        if case.axes["dtype"] == "tf32" and case.implementation == "sdpa_efficient"
    ]
    part = next(p for p in _parts(gpu, "F3") if p.caption.startswith("Forward, TF32"))
    assert [name for name in part.frame.columns if "(TFLOP/s)" in name] == ["Triton (TFLOP/s)"]
    errors_of_tf32 = next(p for p in _parts(gpu, "F4") if "TF32" in p.caption)
    assert not errors_of_tf32.frame["dQ"].str.contains("/").any()


def test_a_leaderboards_cell_stands_for_itself_beside_the_published_time(gpu):
    frame = gpu.frame(STEM)
    cell = {"seq_len": 16384, "heads": 16, "d_head": 64, "phase": "forward_backward"}
    rows = having(frame, implementation="triton", **cell)
    sentence = said("flash_leaderboard", gpu)
    assert f"Triton {significant(rows['median_ms'].item())} ms, SDPA cuDNN " in sentence
    theirs = "5.36 ms (course leaderboard 2025, H100, with a sum and accumulated gradients)."
    assert sentence.endswith(f"; best published {theirs}")
    widths = {part.frame["d_head"].iloc[i] for part in _parts(gpu, "F5") for i in range(4)}
    assert widths == {64, 80, 96, 256}
    assert not (kinds.filled(frame) & frame["d_head"].isin([80, 96, 256])).any()


def test_the_index_counts_the_cells_of_each_table(gpu):
    states = {s.table.id: s for s in coverage.states(gpu, [compose(STEM, gpu, drawn=False)])}
    frame = gpu.frame(STEM)
    grid = frame[kinds.filled(frame)]
    assert states["F3"].measured == states["F3"].owed == len(grid) / 3
    assert {state.words for state in states.values()} == {"measured"}


def test_kernel_tests_alone_are_shown(gpu):
    alone = replace(gpu, frames={CHECK: gpu.frames[CHECK]})
    composed = compose(STEM, alone, drawn=False)
    assert [name for name, parts in composed.parts.items() if parts] == ["Kernel tests"]


@pytest.mark.parametrize("make", [gpu_evidence, cpu_evidence])
def test_a_figure_is_drawn_in_two_panels(make):
    drawn = themed(lambda pen: SECTION.figure(make(), pen), LIGHT)
    assert [axis.get_title() for axis in drawn.axes] == ["forward", "backward"]
    assert drawn.axes[0].get_ylim()[0] == 0


def test_the_title_counts_the_highest_bars(gpu):
    drawn = themed(lambda pen: SECTION.figure(gpu, pen), LIGHT)
    tops = [max(bar.get_height() for bar in bars) for bars in drawn.axes[0].containers]
    assert np.argmax(tops) == 0
    assert drawn.get_suptitle().endswith("Triton is the fastest")


def test_the_title_names_none_where_two_are_not_told_apart(gpu):
    half = {"dtype": kinds.HALF, "status": "ok"}
    two = edited(gpu, slower(500), phase="backward", **half)
    two = edited(
        two, constant(50.0), phase="backward", implementation=("triton", "sdpa_cudnn"), **half
    )
    drawn = themed(lambda pen: SECTION.figure(two, pen), LIGHT)
    bars = [len(panel.containers[0]) for panel in drawn.axes]
    title = drawn.get_suptitle()
    assert title.endswith(f"Triton fastest in {bars[0]} of {sum(bars)}, {bars[1]} not told apart")
    drawn = themed(lambda pen: SECTION.figure(edited(gpu, constant(50.0), **half), pen), LIGHT)
    assert drawn.get_suptitle().endswith("which is the fastest is not told apart")


def test_a_rate_of_the_second_panel_above_all_of_the_first_is_drawn(cpu):
    quick = edited(cpu, slower(0.1), phase="backward")
    drawn = themed(lambda pen: SECTION.figure(quick, pen), LIGHT)
    highest = max(np.nanmax(line.get_ydata()) for line in drawn.axes[1].lines)
    assert drawn.axes[1].get_ylim()[1] >= highest


def test_without_a_time_nothing_is_drawn(gpu):
    assert SECTION.figure(edited(gpu, failed), None) is None


def _parts(evidence, table):
    return compose(STEM, evidence, drawn=False).parts[table]


def _rate(row):
    return row["flops"] / row["median_ms"] / 1e9


def _line(frame, **where):
    found = having(frame, **where)
    assert len(found) == 1
    return found.iloc[0]


def _row(evidence, **where):
    frame = evidence.frame(STEM)
    return having(frame[kinds.filled(frame)], implementation="triton", **where).iloc[0]
