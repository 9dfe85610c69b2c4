"""Findings of the report section on FlashAttention-2.

A finding prints one sentence that the measured rows choose. The filled grid is the set of shapes
whose batch and heads fill the GPU.
"""

from dataclasses import replace

import numpy as np
import pytest
from finding_checks import assert_answers_reached
from flash_evidence import (
    SINGLE,
    gate_failed,
    host_times_set,
    parts_of,
    times_scaled,
    times_set,
    with_changed_rows,
    with_failed_gate,
)
from synthetic import cpu_evidence, gpu_evidence

from lmperf.reporting.evidence import having
from lmperf.reporting.findings import SHORT, state
from lmperf.reporting.numbers import significant
from lmperf.reporting.sections import compose
from lmperf.reporting.sections.flash_attention import kinds, tables
from lmperf.reporting.sections.flash_attention.findings import FINDINGS

STEM, CHECK = kinds.STEM, kinds.CHECK
NO_OTHER = dict.fromkeys(("error_out", "error_lse", "error_dk", "error_dv"), 0.0)


def with_intensity(flops_per_byte, evidence=None, **where):
    """Evidence with this many FLOPs per byte in the selected rows; the device balances at 187."""
    change = lambda rows: rows.assign(bytes=rows["flops"] / flops_per_byte)  # noqa: E731
    return with_changed_rows(evidence or gpu_evidence(), change, STEM, **where)


def without_other_shapes(evidence):
    frame = evidence.frames[STEM]
    return replace(evidence, frames={**evidence.frames, STEM: frame[~kinds.other(frame)]})


def with_failed_kernel_test(evidence):
    return with_changed_rows(
        evidence, gate_failed, CHECK, seq_len=127, d_head=80, dtype="float32", causal=True
    )


CASES = {
    "flash_peers": {
        "each": gpu_evidence,
        "par": lambda: with_changed_rows(gpu_evidence(), times_set(5.0), status="ok"),
    },
    "flash_together": {"both": gpu_evidence, "is": lambda: without_other_shapes(gpu_evidence())},
    "flash_backward": {
        "most": gpu_evidence,
        "part": lambda: with_changed_rows(
            gpu_evidence(), times_scaled(90), implementation="triton", phase="forward"
        ),
    },
    "flash_bound": {
        "compute": lambda: with_intensity(1e3),
        "memory": lambda: with_intensity(150),
        "either": lambda: with_intensity(150, with_intensity(1e3), seq_len=1024),
        "neither": lambda: with_changed_rows(with_intensity(1e3), times_scaled(90), status="ok"),
    },
    "flash_authors": {"is": gpu_evidence},
    "flash_one_head": {
        "everywhere": gpu_evidence,
        "from": lambda: with_changed_rows(
            gpu_evidence(), times_scaled(90), implementation="triton", seq_len=256, **SINGLE
        ),
        "counted": lambda: with_changed_rows(
            cpu_evidence(), times_scaled(90), implementation="tiled", seq_len=1024
        ),
    },
    "flash_tf32": {"is": gpu_evidence},
    "flash_leaderboard": {"is": gpu_evidence},
    "flash_host": {
        "host": gpu_evidence,
        "device": lambda: with_changed_rows(gpu_evidence(), host_times_set(1e-4), **SINGLE),
    },
    "flash_checks": {
        "passed": gpu_evidence,
        "failed": lambda: with_failed_kernel_test(gpu_evidence()),
        "red": lambda: with_failed_kernel_test(with_failed_gate(gpu_evidence())),
    },
}


def sentence_of(name, evidence):
    return state(next(f for f in FINDINGS if f.name == name), evidence).sentence


@pytest.mark.slow
def test_findings_give_every_declared_answer():
    assert_answers_reached(FINDINGS, CASES)


def test_summary_sentences_have_at_most_20_words(gpu, cpu):
    short = [f for f in FINDINGS if f.place == SHORT]
    assert [f.name for f in short] == ["flash_peers"]
    for evidence in (gpu, cpu):
        for sentence in sentence_of("flash_peers", evidence).split(". "):
            assert len(sentence.split()) <= 20, sentence


def test_sentences_on_failures_stay_short(gpu):
    for statement in compose(STEM, with_failed_kernel_test(with_failed_gate(gpu))).statements:
        assert len(str(statement).split(". ")[0].split()) <= 25, str(statement)


def test_findings_are_omitted_without_their_rows(gpu):
    bare = replace(gpu, frames={})
    assert all(state(finding, bare) is None for finding in FINDINGS)


def test_float32_of_the_kernels_has_a_star(gpu, cpu):
    assert "(float32*, bf16)" in sentence_of("flash_one_head", gpu)
    composed = compose(STEM, gpu, drawn=False)
    assert "float32*" in composed.parts["F1"][0].caption
    assert "*" not in composed.head.notes and "*" not in tables.head(cpu).notes


def with_times_proportional_to_length(evidence, name, phase):
    """The evidence with a device time of 1 us per position in the one-head rows of ``name``."""
    where = {"implementation": name, "phase": phase, "status": "ok", **SINGLE}
    change = lambda rows: rows.assign(median_ms=rows["seq_len"] / 1e3)  # noqa: E731
    return with_changed_rows(evidence, change, STEM, **where)


def with_launches(evidence, name, phase, ms, **host):
    """The evidence with 1 us a position on the device in one-head rows, ``ms`` on the host."""
    evidence = with_times_proportional_to_length(evidence, name, phase)
    where = {"implementation": name, "phase": phase, **SINGLE}
    return with_changed_rows(evidence, lambda rows: rows.assign(host_ms=ms, **host), **where)


def test_length_with_a_longer_launch_is_stated_per_kernel(gpu):
    for name, forward, backward in (("triton", 0.3, 0.6), ("sdpa_cudnn", 0.1, 70.0)):
        gpu = with_launches(gpu, name, "forward", forward)
        gpu = with_launches(gpu, name, "backward", backward)
    assert sentence_of("flash_host", gpu) == (
        "One head (bf16, d_head 64) takes longer to launch than to run, Triton: forward up to"
        " length 256, backward up to length 512. SDPA cuDNN: backward at every measured length."
    )


def test_length_of_both_phases_is_stated_once(gpu):
    for name in ("triton", "sdpa_cudnn"):
        for phase in ("forward", "backward"):
            gpu = with_launches(gpu, name, phase, 0.6)
    assert sentence_of("flash_host", gpu).endswith(
        "Triton: forward and backward up to length 512. SDPA cuDNN: forward and backward up to"
        " length 512."
    )


def test_longer_launch_must_hold_with_the_host_at_its_best(gpu):
    for phase in ("forward", "backward"):
        gpu = with_launches(gpu, "triton", phase, 0.6, host_reference=1.5)
        gpu = with_launches(gpu, "sdpa_cudnn", phase, 0.2, host_reference=2.0)
    assert sentence_of("flash_host", gpu).endswith(
        "than to run, Triton: forward and backward up to length 256."
    ), "at 512 the host at its best, and for SDPA cuDNN at 128, is faster than the device"
    unknown = with_changed_rows(gpu, lambda rows: rows.assign(host_reference=np.nan), **SINGLE)
    finding = next(f for f in FINDINGS if f.name == "flash_host")
    assert state(finding, unknown) is None


def test_longer_launch_must_hold_at_every_shorter_length(gpu):
    for name in ("triton", "sdpa_cudnn"):
        for phase in ("forward", "backward"):
            gpu = with_launches(gpu, name, phase, 0.6)
    where = {"implementation": "triton", "seq_len": 256, **SINGLE}
    gpu = with_changed_rows(gpu, host_times_set(0.1), phase="forward", **where)
    gpu = with_changed_rows(gpu, host_times_set(0.1), phase="backward", **where)
    assert "Triton: forward and backward up to length 128." in sentence_of("flash_host", gpu)


def test_launches_of_a_single_length_do_not_speak_for_others(gpu):
    gpu = with_changed_rows(gpu, host_times_set(1e3), **SINGLE)
    frame = gpu.frames[STEM]
    gpu.frames[STEM] = frame[frame["seq_len"] == 128]
    assert sentence_of("flash_host", gpu).endswith(
        "SDPA cuDNN: forward and backward at length 128."
    )


def test_share_of_the_backward_states_its_cells(gpu):
    frame = gpu.frame(STEM)
    grid = having(frame[kinds.filled(frame)], dtype="bfloat16", implementation="triton")
    cells = len(grid[[*kinds.SHAPE, "causal"]].drop_duplicates())
    words = sentence_of("flash_backward", gpu)
    assert words.endswith(f"the forward's rate. Medians of {cells} cells (filled grid).")


def test_host_times_on_the_grid_are_in_a_table(gpu):
    frame = gpu.frame(STEM)
    grid = having(frame[kinds.filled(frame)], dtype="bfloat16", implementation="triton")
    table = parts_of(gpu, "Device, host and loop")[-1]
    line = table.frame[table.frame["implementation"] == "Triton"].iloc[0]
    for phase in kinds.PHASES:
        host = having(grid, phase=phase)["host_ms"].median()
        assert line[f"{phase} (ms)"] == significant(host)


def test_host_findings_need_host_times(gpu, cpu):
    old = with_changed_rows(
        gpu, host_times_set(np.nan), phase=["forward", "backward", "forward_backward"]
    )
    for evidence in (old, cpu):
        composed = compose(STEM, evidence, drawn=False)
        assert not composed.parts["Device, host and loop"]
        assert "flash_host" not in {s.name for s in composed.statements}


def test_finding_names_the_worst_failed_kernel_test(gpu):
    sentence = sentence_of("flash_checks", with_failed_kernel_test(gpu))
    assert "46 of 48 pass" in sentence and "no gate" in sentence
    assert "The worst: error" in sentence
    assert "times its bound (Triton, float32*, length 127, d_head 80, causal)" in sentence
    crash = {"status": "crash", "max_error": np.nan}
    crashed = with_changed_rows(gpu, lambda rows: rows.assign(**crash), CHECK, d_head=80)
    assert "The worst: crash (Triton" in sentence_of("flash_checks", crashed)


def test_wrong_result_of_a_timed_call_is_named_with_its_reason(gpu):
    """The row passed its gate, so that its error is within the bound."""
    where = {"seq_len": 128, "d_head": 64, "implementation": "triton", "dtype": "bfloat16"}
    late = {"status": "failed_check", "max_error": 1e-3, "error_bound": 2e-3}
    late |= {"reason": "a timed call returned a wrong dq for its inputs: error 0.02, bound 0.01"}
    change = lambda rows: rows.assign(**late)  # noqa: E731
    one = with_changed_rows(gpu, change, phase="backward", **where, **SINGLE)
    sentence = sentence_of("flash_checks", one)
    rows = having(one.frame(STEM), status="failed_check")
    assert len(rows) == 1 and "; 1 of " in sentence and "timed rows failed its gate." in sentence
    assert f"The worst: {late['reason']} (Triton, bf16, length 128, d_head 64" in sentence
    assert "times its bound" not in sentence
    several = sentence_of("flash_checks", with_changed_rows(gpu, change, **where, **SINGLE))
    assert "timed rows failed their gate." in several


def test_crossover_is_the_length_after_the_last_slower_one(gpu):
    slow = with_changed_rows(
        gpu, times_scaled(90), implementation="triton", seq_len=256, d_head=64, **SINGLE
    )
    assert "in every resolved cell from length 512 on." in sentence_of("flash_one_head", slow)


def test_finding_counts_slower_cells_below_the_crossover(gpu):
    frame = gpu.frames[STEM]
    ours = frame["implementation"].eq("triton") & frame["heads"].eq(1) & ~frame["cuda_graph"]
    cells = frame[ours & frame["phase"].isin(["forward", "backward"])]
    slow, below = (cells["seq_len"] == 256).sum(), (cells["seq_len"] < 512).sum()
    sentence = sentence_of("flash_one_head", CASES["flash_one_head"]["from"]())
    assert sentence.startswith("One head (F1, forward and backward separately): Triton is faster")
    assert f"from length 512 on. Below, it is slower in {slow} of {below}." in sentence


def test_speedup_divides_peer_time_by_triton_time(gpu):
    """The four cells of length 16,384 are withheld: no device is as fast."""
    for name, ms in {"triton": 2.0, "sdpa_cudnn": 3.0, "eager": 8.0}.items():
        gpu = with_changed_rows(gpu, times_set(ms), implementation=name, status="ok")
    assert sentence_of("flash_peers", gpu) == (
        "Triton attention over SDPA cuDNN (filled grid, bf16): forward 1.50x. Backward: 1.50x."
        " Forward + backward: 1.50x. Compared in 4 of 8 cells, length 1,024."
    )
    assert sentence_of("flash_together", gpu) == (
        "Forward + backward over SDPA cuDNN (filled grid, bf16) at d_head 64 and 128: 1.50x. Left"
        " out as withheld, marked or with too wide an interval (F2) in a phase: 4 of 8 cells. Other"
        " widths and a leaderboard's cell (F5): 1.50x. Compared in 2 of 4 such cells."
    )
    one_head = sentence_of("flash_one_head", gpu)
    assert one_head.endswith("(float32*, bf16): 4.00x forward. Backward: 4.00x.")
    assert one_head.count(" At ") == 1


def test_means_count_the_cells_that_they_leave_out(gpu):
    cell = {"seq_len": 1024, "d_head": 64, "heads": 32, "phase": "forward_backward"}
    marked = with_changed_rows(
        gpu, lambda rows: rows.assign(marks="loaded", reference=1.0), **cell, dtype="bfloat16"
    )
    assert "Left out" not in sentence_of("flash_together", gpu)
    left_out = "withheld, marked or with too wide an interval (F2) in a phase: 2 of 8 cells."
    assert left_out in sentence_of("flash_together", marked)
    assert sentence_of("flash_peers", marked).endswith("Compared in 6 of 8 cells.")


def test_withheld_cell_of_the_grid_counts_as_left_out(gpu):
    """Counts of cells are of all lines of F3, also where a gate withholds one phase."""
    cell = {"seq_len": 1024, "d_head": 64, "causal": True, "heads": 32, "dtype": "bfloat16"}
    where = {"implementation": "sdpa_cudnn", "phase": "backward"}
    failed = with_changed_rows(gpu, gate_failed, **cell, **where)
    assert sentence_of("flash_peers", failed).endswith("Compared in 7 of 8 cells.")
    assert "in a phase: 1 of 8 cells." in sentence_of("flash_together", failed)


def test_unresolved_cells_of_other_widths_are_counted_apart(gpu):
    mark = lambda rows: rows.assign(marks="loaded", reference=1.0)  # noqa: E731
    marked = with_changed_rows(gpu, mark, d_head=96, phase="forward_backward", dtype="bfloat16")
    sentence = sentence_of("flash_together", marked)
    assert sentence.endswith(" Compared in 3 of 4 such cells.")
    assert "Left out" not in sentence


def test_means_of_all_phases_rest_on_the_same_cells(gpu):
    """A cell that is marked in its forward counts in no phase."""
    gpu = with_changed_rows(gpu, times_set(3.0), implementation="sdpa_cudnn", status="ok")
    gpu = with_changed_rows(gpu, times_set(2.0), implementation="triton", status="ok")
    assert "same" not in sentence_of("flash_peers", gpu)
    cell = {"seq_len": 1024, "d_head": 64, "heads": 32, "dtype": "bfloat16"}
    gpu = with_changed_rows(gpu, times_set(1.0), implementation="triton", **cell)
    assert "1.71x" not in sentence_of("flash_peers", gpu)
    marked = with_changed_rows(
        gpu, lambda rows: rows.assign(marks="loaded", reference=1.0), **cell, phase="forward"
    )
    sentence = sentence_of("flash_peers", marked)
    assert "forward 1.50x. Backward: 1.50x. Forward + backward: 1.50x." in sentence
    assert "Compared in 2 of 8 cells" in sentence


def with_speeds_over_peer(evidence, **speeds):
    """The evidence without second processes and with these speed-ups over SDPA cuDNN by d_head."""
    twins = {"again_ms": None, "marks": None}
    evidence = with_changed_rows(evidence, lambda rows: rows.assign(**twins), status="ok")
    for width, speed in speeds.items():
        cell = {"d_head": int(width[1:]), "dtype": "bfloat16", "status": "ok"}
        for name, ms in (("triton", 1.0), ("sdpa_cudnn", speed)):
            evidence = with_changed_rows(evidence, times_set(ms), implementation=name, **cell)
    return evidence


def test_means_below_the_noise_floor_are_not_called_faster(gpu):
    close = with_speeds_over_peer(gpu, d64=1.004, d128=1.004)
    assert sentence_of("flash_peers", close).endswith(
        "(filled grid, bf16): on par in 4 of 8 cells."
    )
    mixed = with_speeds_over_peer(gpu, d64=1.2, d128=1 / 1.2)
    words = "1.00x in the geometric mean, within the noise floor (cells: 0.83x to 1.20x)."
    assert f"forward {words} Backward: {words}" in sentence_of("flash_peers", mixed)
    one = with_speeds_over_peer(gpu, d64=1.5, d128=1.0)
    assert sentence_of("flash_together", one).startswith(
        "Forward + backward over SDPA cuDNN (filled grid, bf16) at d_head 64: 1.50x. At d_head 128:"
        " on par."
    )


def test_mean_and_range_of_the_cells_are_told_apart(gpu):
    fast = with_speeds_over_peer(gpu, d64=1.2, d128=1.5)
    words = "1.34x in the geometric mean (cells: 1.20x to 1.50x)."
    assert sentence_of("flash_peers", fast) == (
        f"Triton attention over SDPA cuDNN (filled grid, bf16): forward {words} Backward: {words}"
        f" Forward + backward: {words} Compared in 4 of 8 cells, length 1,024."
    )


def with_noise_floor(evidence, floor):
    """The evidence with second processes of the same code that are slower by ``floor``."""

    def change(rows):
        again = [
            ";".join(repr(float(ms) * (1 + floor)) for ms in text.split(";"))
            for text in rows["rounds_ms"]
        ]
        return rows.assign(again_ms=again)

    return with_changed_rows(evidence, change, dtype="bfloat16", status="ok")


def test_deficit_of_all_cells_below_the_noise_floor_is_not_on_par(gpu):
    behind = with_noise_floor(with_speeds_over_peer(gpu, d64=0.96, d128=0.97), 0.06)
    words = "0.96x to 0.97x in all cells, within the noise floor."
    assert f"Forward + backward: {words} Compared in 4 of 8 cells" in sentence_of(
        "flash_peers", behind
    )
    assert sentence_of("flash_together", behind).startswith(
        "Forward + backward over SDPA cuDNN (filled grid, bf16) at d_head 64: 0.96x in all cells,"
        " within the noise floor. At d_head 128: 0.97x in all cells, within the noise floor."
    )
    assert "Noise floor: 6.0 %." in sentence_of("flash_together", behind)
    either = with_noise_floor(with_speeds_over_peer(gpu, d64=0.96, d128=1.04), 0.06)
    assert sentence_of("flash_peers", either).endswith("on par in 4 of 8 cells.")


def test_single_length_of_the_means_is_stated(gpu):
    assert sentence_of("flash_peers", gpu).endswith("Compared in 8 cells.")
    frame = gpu.frames[STEM]
    one = frame[(frame["heads"] == 1) | (frame["seq_len"] == 1024)]
    sentence = sentence_of("flash_peers", replace(gpu, frames={**gpu.frames, STEM: one}))
    assert sentence.endswith("Compared in 4 cells, length 1,024.")


def test_other_shapes_finding_spans_every_cell(gpu):
    for width, ms in ((64, 1.0), (80, 2.0), (96, 4.0), (256, 5.0)):
        frame = gpu.frame(STEM)
        heads = frame[kinds.other(frame)].query(f"d_head == {width}")["heads"].iloc[0]
        cell = {"d_head": width, "heads": heads, "dtype": "bfloat16", "phase": "forward_backward"}
        for name, time in (("triton", 10.0), ("sdpa_cudnn", 10.0 * ms)):
            gpu = with_changed_rows(gpu, times_set(time), implementation=name, **cell)
    assert "(F5): 1.00x to 5.00x." in sentence_of("flash_together", gpu)


def test_authors_are_cited_only_where_their_kernel_did_not_run(gpu, cpu):
    finding = next(f for f in FINDINGS if f.name == "flash_authors")
    assert "not installed here" in sentence_of("flash_authors", gpu)
    assert "up to 740 TFLOP/s forward on an H100" in sentence_of("flash_authors", gpu)
    assert state(finding, cpu) is None
    ran = with_changed_rows(
        gpu, lambda rows: rows.assign(implementation="flash_attn_3"), implementation="flex"
    )
    assert state(finding, ran) is None


def test_tf32_finding_compares_errors_with_float32(gpu):
    for dtype, ms, error in (("tf32", 2.0, 8e-3), ("float32", 6.0, 2e-3)):
        rows = {"implementation": "triton", "dtype": dtype, "status": "ok"}
        gpu = with_changed_rows(gpu, times_set(ms), **rows)
        gpu = with_changed_rows(
            gpu, lambda own, error=error: own.assign(error_dq=error, **NO_OTHER), **rows
        )
    sentence = sentence_of("flash_tf32", gpu)
    assert "The speed-ups are 3.00x." in sentence and "prefer" not in sentence
    assert "The error of a tensor (F4) in TF32 is 4.00 times as large" in sentence


def with_tf32(evidence, ms, **errors):
    """The evidence with these times and errors of Triton in TF32; in float32 6 ms and 2e-3."""
    for dtype, own, found in (("float32", 6.0, dict.fromkeys(errors, 2e-3)), ("tf32", ms, errors)):
        rows = {"implementation": "triton", "dtype": dtype, "status": "ok"}
        evidence = with_changed_rows(evidence, times_set(own), **rows)
        change = lambda of, found=found: of.assign(**{**NO_OTHER, **found})  # noqa: E731
        evidence = with_changed_rows(evidence, change, **rows)
    return evidence


def test_error_ratios_of_tf32_include_every_tensor(gpu):
    sentence = sentence_of("flash_tf32", with_tf32(gpu, 8.0, error_dq=8e-3, error_out=4e-3))
    assert "is 2.00 to 4.00 times as large" in sentence


def test_float32_is_advised_where_tf32_is_slower_and_less_exact(gpu):
    sentence = sentence_of("flash_tf32", with_tf32(gpu, 8.0, error_dq=8e-3))
    assert "slower in TF32 than in float32* in" in sentence
    assert "resolved comparisons: prefer float32*. The speed-ups are 0.75x." in sentence
    for other in (with_tf32(gpu, 5.0, error_dq=8e-3), with_tf32(gpu, 8.0, error_dq=1e-3)):
        assert "prefer" not in sentence_of("flash_tf32", other)


def test_leaderboard_cell_is_shown_with_the_published_time(gpu):
    frame = gpu.frame(STEM)
    cell = {"seq_len": 16384, "heads": 16, "d_head": 64, "phase": "forward_backward"}
    rows = having(frame, implementation="triton", **cell)
    sentence = sentence_of("flash_leaderboard", gpu)
    assert f"Triton {significant(rows['median_ms'].item())} ms, SDPA cuDNN " in sentence
    assert ". Triton over SDPA cuDNN: " in sentence
    theirs = "5.36 ms (course leaderboard 2025, H100, with a sum and accumulated gradients)."
    assert sentence.endswith(f". Best published: {theirs}")
    widths = {part.frame["d_head"].iloc[i] for part in parts_of(gpu, "F5") for i in range(4)}
    assert widths == {64, 80, 96, 256}
    assert not (kinds.filled(frame) & frame["d_head"].isin([80, 96, 256])).any()


def test_leaderboard_times_stand_with_their_verdict(gpu):
    where = {"seq_len": 16384, "heads": 16, "d_head": 64, "phase": "forward_backward"}
    cells = {name: {**where, "implementation": name} for name in ("triton", "sdpa_cudnn")}
    equal = with_changed_rows(gpu, times_set(10.0), **cells["triton"])
    slower = with_changed_rows(equal, times_set(15.0), **cells["sdpa_cudnn"])
    assert "ms, SDPA cuDNN 15.0. Triton over SDPA cuDNN: 1.50x. Best" in sentence_of(
        "flash_leaderboard", slower
    )
    equal = with_changed_rows(equal, times_set(10.0), **cells["sdpa_cudnn"])
    assert "Triton over SDPA cuDNN: on par. Best" in sentence_of("flash_leaderboard", equal)
    apart = with_changed_rows(slower, lambda rows: rows.assign(together="x"), **cells["triton"])
    assert "Triton over SDPA cuDNN: not compared." in sentence_of("flash_leaderboard", apart)
