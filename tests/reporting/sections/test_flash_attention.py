"""What the section on FlashAttention-2 says."""

from dataclasses import replace

import numpy as np
from answers import check_answers
from flash_rows import SINGLE, constant, edited, failed, hosts, parts_of, red, slower
from synthetic import cpu_evidence, gpu_evidence

from lmperf.reporting.evidence import having
from lmperf.reporting.findings import SHORT, state
from lmperf.reporting.numbers import ratio, significant
from lmperf.reporting.sections import compose
from lmperf.reporting.sections.flash_attention import kinds, tables
from lmperf.reporting.sections.flash_attention.findings import FINDINGS
from lmperf.reporting.speedup import geometric_mean

STEM, CHECK = kinds.STEM, kinds.CHECK
NO_OTHER = dict.fromkeys(("error_out", "error_lse", "error_dk", "error_dv"), 0.0)


def dip(evidence):
    return edited(evidence, slower(3), implementation="triton", seq_len=256, **SINGLE)


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
    assert "float32*: Triton" in composed.head.notes
    assert "*" not in tables.head(cpu).notes


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


def test_a_leaderboards_cell_stands_for_itself_beside_the_published_time(gpu):
    frame = gpu.frame(STEM)
    cell = {"seq_len": 16384, "heads": 16, "d_head": 64, "phase": "forward_backward"}
    rows = having(frame, implementation="triton", **cell)
    sentence = said("flash_leaderboard", gpu)
    assert f"Triton {significant(rows['median_ms'].item())} ms, SDPA cuDNN " in sentence
    theirs = "5.36 ms (course leaderboard 2025, H100, with a sum and accumulated gradients)."
    assert sentence.endswith(f"; best published {theirs}")
    widths = {part.frame["d_head"].iloc[i] for part in parts_of(gpu, "F5") for i in range(4)}
    assert widths == {64, 80, 96, 256}
    assert not (kinds.filled(frame) & frame["d_head"].isin([80, 96, 256])).any()
