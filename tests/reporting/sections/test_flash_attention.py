"""Findings of the report section on FlashAttention-2.

A finding prints one sentence that the measured rows choose. The filled grid is the set of shapes
whose batch and heads fill the GPU.
"""

from dataclasses import replace

import numpy as np
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


def with_failed_kernel_test(evidence):
    return with_changed_rows(
        evidence, gate_failed, CHECK, seq_len=127, d_head=80, dtype="float32", causal=True
    )


CASES = {
    "flash_peers": {"is": gpu_evidence},
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
    "flash_launch": {"is": gpu_evidence},
    "flash_checks": {
        "passed": gpu_evidence,
        "failed": lambda: with_failed_kernel_test(gpu_evidence()),
        "red": lambda: with_failed_kernel_test(with_failed_gate(gpu_evidence())),
    },
}


def sentence_of(name, evidence):
    return state(next(f for f in FINDINGS if f.name == name), evidence).sentence


def test_findings_give_every_declared_answer():
    assert_answers_reached(FINDINGS, CASES)


def test_summary_sentence_has_at_most_20_words(gpu, cpu):
    short = [f for f in FINDINGS if f.place == SHORT]
    assert [f.name for f in short] == ["flash_peers"]
    for evidence in (gpu, cpu):
        assert len(sentence_of("flash_peers", evidence).split()) <= 20


def test_other_sentences_have_at_most_35_words(gpu):
    for evidence in (gpu, with_failed_kernel_test(with_failed_gate(gpu))):
        for statement in compose(STEM, evidence, drawn=False).statements:
            assert len(str(statement).split()) <= 35, str(statement)


def test_findings_are_omitted_without_their_rows(gpu):
    bare = replace(gpu, frames={})
    assert all(state(finding, bare) is None for finding in FINDINGS)


def test_float32_of_the_kernels_has_a_star_and_a_note(gpu, cpu):
    assert "(float32*, bf16)" in sentence_of("flash_one_head", gpu)
    composed = compose(STEM, gpu, drawn=False)
    assert "float32*" in composed.parts["F1"][0].caption
    assert "float32*: Triton" in composed.head.notes
    assert "*" not in tables.head(cpu).notes


def with_times_proportional_to_length(evidence, name, phase):
    """The evidence with a device time of 1 us per position in the one-head rows of ``name``."""
    where = {"implementation": name, "phase": phase, "status": "ok", **SINGLE}
    change = lambda rows: rows.assign(median_ms=rows["seq_len"] / 1e3)  # noqa: E731
    return with_changed_rows(evidence, change, STEM, **where)


def test_host_bound_length_is_stated_per_implementation(gpu):
    for name, forward, backward in (("triton", 0.3, 0.6), ("sdpa_cudnn", 0.1, 70.0)):
        for phase, ms in (("forward", forward), ("backward", backward)):
            gpu = with_times_proportional_to_length(gpu, name, phase)
            gpu = with_changed_rows(
                gpu, host_times_set(ms), implementation=name, phase=phase, **SINGLE
            )
            where = {"implementation": name, "phase": phase, "seq_len": 128, **SINGLE}
            gpu = with_changed_rows(gpu, host_times_set(ms / 10), **where)
    assert sentence_of("flash_host", gpu) == (
        "Host time (median) exceeds device time for one head (bf16, d_head 64): Triton forward"
        " below 512 (0.300 ms), backward below 1,024 (0.600 ms); SDPA cuDNN forward nowhere"
        " (0.100 ms), backward at every length (70.0 ms)."
    )


def test_launch_finding_states_host_times(gpu):
    frame = gpu.frame(STEM)
    grid = having(frame[kinds.filled(frame)], dtype="bfloat16", implementation="triton")
    host = [significant(having(grid, phase=p)["host_ms"].median()) for p in kinds.PHASES]
    assert f" Triton {'/'.join(host)}, SDPA" in sentence_of("flash_launch", gpu)


def test_host_findings_need_host_times(gpu, cpu):
    old = with_changed_rows(
        gpu, host_times_set(np.nan), phase=["forward", "backward", "forward_backward"]
    )
    for evidence in (old, cpu):
        composed = compose(STEM, evidence, drawn=False)
        assert not composed.parts["Device, host and loop"]
        assert not {"flash_host", "flash_launch"} & {s.name for s in composed.statements}


def test_finding_names_the_worst_failed_kernel_test(gpu):
    sentence = sentence_of("flash_checks", with_failed_kernel_test(gpu))
    assert "46 of 48 pass" in sentence and "no gate" in sentence
    assert "times its bound (Triton, float32*, length 127, d_head 80, causal)" in sentence
    crash = {"status": "crash", "max_error": np.nan}
    crashed = with_changed_rows(gpu, lambda rows: rows.assign(**crash), CHECK, d_head=80)
    assert "the worst: crash (Triton" in sentence_of("flash_checks", crashed)


def test_crossover_is_the_length_after_the_last_slower_one(gpu):
    slow = with_changed_rows(
        gpu, times_scaled(90), implementation="triton", seq_len=256, d_head=64, **SINGLE
    )
    assert "in every resolved cell from length 512 on" in sentence_of("flash_one_head", slow)


def test_finding_counts_slower_cells_below_the_crossover(gpu):
    frame = gpu.frames[STEM]
    ours = frame["implementation"].eq("triton") & frame["heads"].eq(1) & ~frame["cuda_graph"]
    cells = frame[ours & frame["phase"].isin(["forward", "backward"])]
    slow, below = (cells["seq_len"] == 256).sum(), (cells["seq_len"] < 512).sum()
    sentence = sentence_of("flash_one_head", CASES["flash_one_head"]["from"]())
    assert f"from length 512 on and slower in {slow} of {below} below" in sentence


def test_speedup_divides_peer_time_by_triton_time(gpu):
    for name, ms in {"triton": 2.0, "sdpa_cudnn": 3.0, "eager": 8.0}.items():
        gpu = with_changed_rows(gpu, times_set(ms), implementation=name, status="ok")
    assert "1.50x/1.50x over SDPA cuDNN" in sentence_of("flash_peers", gpu)
    assert "4.00x forward, 4.00x backward" in sentence_of("flash_one_head", gpu)


def test_tf32_finding_compares_errors_with_float32(gpu):
    for dtype, ms, error in (("tf32", 2.0, 8e-3), ("float32", 6.0, 2e-3)):
        rows = {"implementation": "triton", "dtype": dtype, "status": "ok"}
        gpu = with_changed_rows(gpu, times_set(ms), **rows)
        gpu = with_changed_rows(
            gpu, lambda own, error=error: own.assign(error_dq=error, **NO_OTHER), **rows
        )
    sentence = sentence_of("flash_tf32", gpu)
    assert "(3.00x)" in sentence and "errors in TF32 are 4.00 times as large" in sentence


def test_leaderboard_cell_is_shown_with_the_published_time(gpu):
    frame = gpu.frame(STEM)
    cell = {"seq_len": 16384, "heads": 16, "d_head": 64, "phase": "forward_backward"}
    rows = having(frame, implementation="triton", **cell)
    sentence = sentence_of("flash_leaderboard", gpu)
    assert f"Triton {significant(rows['median_ms'].item())} ms, SDPA cuDNN " in sentence
    theirs = "5.36 ms (course leaderboard 2025, H100, with a sum and accumulated gradients)."
    assert sentence.endswith(f"; best published {theirs}")
    widths = {part.frame["d_head"].iloc[i] for part in parts_of(gpu, "F5") for i in range(4)}
    assert widths == {64, 80, 96, 256}
    assert not (kinds.filled(frame) & frame["d_head"].isin([80, 96, 256])).any()
