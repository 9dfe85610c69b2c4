"""Findings of the report section on whole model steps, except warm-up and the ladder.

A finding prints one sentence that the measured rows choose. A way is a pair of implementation and
dtype, such as compiled in bf16 autocast.
"""

import functools
import re

import pandas as pd
import pytest
from finding_checks import assert_answers_reached
from step_evidence import (
    line_of,
    sentence_of,
    with_equal_times,
    with_rows,
    with_sdpa,
    with_times,
    with_times_scaled,
    with_triton_like_sdpa,
    with_values,
    without_rows,
)
from synthetic import cpu_evidence, small_gpu_evidence

from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.findings import statements
from lmperf.reporting.sections.end_to_end import SECTION, findings, ways

EAGER, BLOCKS, WHOLE, BF16 = ways.EAGER, ways.BLOCKS, ways.WHOLE, ways.BF16
CELL = {"size": "small", "context_length": 512, "batch": 4}


def with_both(factor: float) -> MachineEvidence:
    """Evidence of model steps with SDPA, and with Triton, ``factor`` times as slow as SDPA."""
    return with_times_scaled(with_triton_like_sdpa(with_sdpa()), factor, implementation="triton")


SDPA = {"implementation": "sdpa", "dtype": BF16}
PLAIN = {"implementation": EAGER, "dtype": BF16}
CASES = {
    "compiling": {
        "all": lambda: with_times_scaled(small_gpu_evidence(), 0.2, implementation=BLOCKS),
        "some": lambda: with_times_scaled(
            with_times_scaled(small_gpu_evidence(), 0.2, implementation=BLOCKS),
            50,
            implementation=BLOCKS,
            size="small",
        ),
        "none": lambda: with_times_scaled(small_gpu_evidence(), 50, implementation=BLOCKS),
    },
    "mixed_precision": {
        "all": lambda: with_times_scaled(small_gpu_evidence(), 50, dtype="float32"),
        "some": lambda: with_times_scaled(
            with_times_scaled(small_gpu_evidence(), 50, dtype="float32"),
            1e3,
            dtype=BF16,
            size="small",
        ),
        "none": lambda: with_times_scaled(small_gpu_evidence(), 1e3, dtype=BF16),
        "host": lambda: with_values(
            with_times_scaled(small_gpu_evidence(), 1e3, dtype=BF16, size="small"),
            {"host_ms": 1e9},
            dtype=BF16,
            size="small",
        ),
    },
    "attention_inside": {
        "all": with_sdpa,
        "some": lambda: with_equal_times(
            with_sdpa(), SDPA, PLAIN, size="2.0B", context_length=1024
        ),
        "none": lambda: with_sdpa(3.0),
    },
    "triton_attention_inside": {"told": lambda: with_both(1.5), "open": lambda: with_both(1.0)},
    "tf32": {
        "all": lambda: with_times_scaled(small_gpu_evidence(), 0.1, dtype="tf32"),
        "some": lambda: with_times_scaled(
            with_times_scaled(small_gpu_evidence(), 0.1, dtype="tf32"),
            1e3,
            dtype="tf32",
            size="small",
        ),
        "none": lambda: with_times_scaled(small_gpu_evidence(), 1e3, dtype="tf32"),
    },
    "share_of_ceiling": {
        "falls": lambda: with_times_scaled(
            with_times_scaled(small_gpu_evidence(), 2, dtype=BF16), 1.5, dtype="tf32"
        ),
        "holds": lambda: with_times_scaled(small_gpu_evidence(), 20, dtype="float32"),
    },
    "whole_or_block": {
        "all": lambda: with_times_scaled(small_gpu_evidence(), 0.5, implementation=WHOLE),
        "some": lambda: with_times_scaled(
            with_times_scaled(small_gpu_evidence(), 0.5, implementation=WHOLE),
            4,
            implementation=WHOLE,
            size="2.0B",
        ),
        "none": lambda: with_times_scaled(small_gpu_evidence(), 2, implementation=WHOLE),
    },
    "step_host": {
        "some": small_gpu_evidence,
        "none": lambda: with_values(small_gpu_evidence(), {"host_ms": 1e-3}, phase="train_step"),
    },
}


@pytest.mark.slow
def test_findings_give_every_declared_answer():
    assert_answers_reached(findings.FINDINGS, CASES)


@functools.cache
def made_up() -> MachineEvidence:
    """Evidence with the same whole number of milliseconds per step for all sizes and contexts.

    The time depends only on dtype and implementation.
    """
    evidence = small_gpu_evidence()
    for (dtype, name), ms in {
        ("float32", EAGER): 12.0,
        ("float32", BLOCKS): 6.0,
        ("float32", WHOLE): 3.0,
        ("tf32", EAGER): 4.0,
        (BF16, EAGER): 2.0,
        (BF16, BLOCKS): 1.0,
    }.items():
        evidence = with_times(evidence, ms, dtype=dtype, implementation=name)
    evidence = with_values(evidence, {"compile_s": 3.0}, implementation=BLOCKS)
    evidence = with_values(evidence, {"compile_s": 12.0}, implementation=WHOLE)
    # Half of the sustained matmul rate in float32, 46.8 TFLOP/s, in 12 ms.
    return with_values(evidence, {"flops": 0.5 * 46.8e12 * 12e-3}, phase="train_step")


@functools.cache
def made_up_without_whole_tf32_and_bf16() -> MachineEvidence:
    return without_rows(made_up(), implementation=WHOLE, dtype=["tf32", BF16])


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("compiling", "float32 2.00x"),
        ("compiling", "; the first calls take 3.00 s with compilation"),
        ("mixed_precision", "step 6.00x as fast as float32 does (7 resolved comparisons)."),
        ("tf32", ": 3.00x; bf16 autocast over TF32: 2.00x, faster in 6 of 6"),
        ("tf32", "; 6 of its steps are host-bound."),
        ("whole_or_block", "take 4.00 times as long, at most 12.0 s"),
    ],
)
def test_findings_compute_numbers_from_medians(name, numbers):
    assert numbers in sentence_of(name, made_up_without_whole_tf32_and_bf16())


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("compiling", "Train step, compiled by block over eager: float32 "),
        ("tf32", "Eager train step, TF32 over float32 (contexts "),
        ("whole_or_block", "Train step, compiled as a whole over compiled by block ("),
    ],
)
def test_findings_on_steps_name_the_train_step(name, start):
    assert sentence_of(name, made_up_without_whole_tf32_and_bf16()).startswith(start)


def test_share_of_a_sustained_matmul_leaves_out_host_bound_steps():
    evidence = with_values(made_up(), {"host_ms": 1e-3}, phase="train_step")
    assert "50.0 % of a sustained matmul in float32" in sentence_of("share_of_ceiling", evidence)
    late = with_values(evidence, {"host_ms": 12.0}, phase="train_step", dtype="float32")
    assert "float32" not in sentence_of("share_of_ceiling", late)


def test_whole_model_compilation_is_compared_with_per_block():
    evidence = made_up()
    evidence = with_rows(evidence, having(evidence.frames[ways.STEM], dtype="float32"))
    assert ": 2.00x; its first" in sentence_of("whole_or_block", evidence)


def test_mixed_precision_finding_states_the_speedup_range():
    evidence = with_times(with_times(small_gpu_evidence(), 8.0, dtype="float32"), 2.0, dtype=BF16)
    evidence = with_times(evidence, 1.0, dtype=BF16, size="2.0B")
    evidence = with_times(evidence, 16.0, dtype=BF16, size="small", context_length=128)
    sentence = sentence_of("mixed_precision", evidence)
    assert "step 0.50x to 8.00x as fast as float32 does. " in sentence
    assert sentence.endswith("It is faster in 5 of 6 resolved comparisons.")


def test_sdpa_finding_states_speedup_and_saved_memory():
    sentence = sentence_of("attention_inside", with_sdpa(0.25, peak=0.6))
    assert "SDPA 4.00x" in sentence and "peak memory 40.0 % lower" in sentence


def test_triton_attention_is_compared_with_sdpa_in_the_model():
    sentence = sentence_of("triton_attention_inside", with_both(2.0))
    assert sentence == (
        "Triton over SDPA in a bf16 autocast step (context 1024): eager 0.50x, faster in 0 of 2"
        " resolved steps, slower in 2 of 2."
    )


def test_burst_tokens_per_second_are_computed_from_the_median():
    evidence = with_times(
        small_gpu_evidence(), 100.0, **CELL, dtype="float32", implementation=EAGER
    )
    line = line_of(
        SECTION.tables[0].make(evidence)[0],
        **{"size": "small", "context": 512},
        implementation="eager",
    )
    assert line["tokens/s, burst"] == "20,500"


def test_host_bound_steps_are_counted_per_implementation():
    evidence = with_values(made_up(), {"host_ms": 1.7}, phase="train_step")
    evidence = with_rows(evidence, having(evidence.frames[ways.STEM], size="small"))
    # The host time is 85 % of the eager bf16 step (2 ms) and longer than the compiled one (1 ms).
    # All other steps take longer than 2 ms.
    sentence = sentence_of("step_host", without_rows(evidence, implementation=WHOLE))
    assert "3 of 18 train steps are host-bound" in sentence
    assert sentence.endswith(
        "after 90 % of the step. By technique: eager 0 of 9, compiled by block 3 of 9."
    )
    lines = SECTION.tables[0].make(evidence)
    bf16 = next(part for part in lines if part.caption.startswith("bf16"))
    line = line_of(bf16, context=512, implementation="eager")
    assert line["queued (% of the step)"] == "85.0" and "Beyond 90 %" in bf16.notes


def test_host_bound_count_excludes_other_models(gpu):
    frame = gpu.frames[ways.STEM]
    rows = having(frame, implementation=EAGER, dtype=BF16)
    other = rows.assign(
        implementation="gpt2", parameters=rows["parameters"] / 2, host_ms=rows["median_ms"]
    )
    both = with_rows(gpu, pd.concat([frame, other], ignore_index=True))
    known = sentence_of("step_host", gpu)
    assert re.fullmatch(
        re.escape(known) + r" Left out: \d+ of other models \(\d+ host-bound\)\.",
        sentence_of("step_host", both),
    )


def test_host_bound_steps_beside_a_slow_host_are_counted(gpu):
    where = {"size": "small", "context_length": 1024, "batch": 4, "implementation": "fused_blocks"}
    slow = sentence_of("step_host", with_values(gpu, {"host_ms": 1e6, "marks": "host"}, **where))
    assert " 2 of them ran beside a slow host. By technique: eager " in slow
    assert ", fused blocks 2 of " in slow
    assert "Left out" not in slow
    for others in ("loaded", "loaded;host"):
        marked = with_values(gpu, {"host_ms": 1e6, "marks": others}, **where)
        assert sentence_of("step_host", marked).endswith(" Left out: 2 marked (2 host-bound).")


def test_sizes_without_eager_float32_are_not_compared(gpu):
    lacking = without_rows(gpu, dtype="float32", implementation=EAGER, size=["2.0B", "3.4B"])
    over = {t.id: t for t in SECTION.tables}["E4"].make(lacking)[0]
    assert set(over.frame["size"]) == {"small", "medium", "large"}


@pytest.mark.slow
def test_cpu_tables_have_no_column_of_queued_time(cpu):
    assert not any("queued" in h for part in SECTION.tables[0].make(cpu) for h in part.frame)
    assert "Queued" not in SECTION.tables[0].make(cpu)[0].notes
    assert "step_host" not in {s.name for s in statements(SECTION.findings, cpu)}


def test_findings_are_omitted_without_their_rows():
    evidence = cpu_evidence()
    nothing = MachineEvidence("empty")
    assert statements(SECTION.findings, nothing) == []
    said = {s.name: str(s) for s in statements(SECTION.findings, evidence)}
    assert "tf32" not in said and "attention_inside" not in said
    assert not any("TF32" in sentence for sentence in said.values())
