"""Findings on why a technique makes a train step faster or slower."""

import pytest
from finding_checks import assert_answers_reached
from step_evidence import sentence_of, with_times_scaled, with_values
from synthetic import cpu_evidence, gpu_evidence

from lmperf.reporting.evidence import having
from lmperf.reporting.findings import state
from lmperf.reporting.sections.end_to_end import ways, why

BF16 = ways.BF16


def slower(instances: float):
    """Evidence whose small bf16 steps are slow because of the host, with launches per kernel."""
    evidence = with_times_scaled(gpu_evidence(), 50, dtype=BF16, size="small")
    evidence = with_values(evidence, {"host_ms": 1e9}, dtype=BF16, size="small")
    return with_values(evidence, {"instances": instances}, "profiles", dtype=BF16)


def slow_fused_kernels():
    """Evidence whose profiles of compiled bf16 steps have longer kernels around the matmuls."""
    evidence = gpu_evidence()
    frame = evidence.frames["profiles"].copy()
    rows = having(frame, dtype=BF16, implementation=ways.BLOCKS)
    around = ~rows["name"].str.contains("gemm")
    frame.loc[rows.index[around], "total_ms"] *= 100
    evidence.frames["profiles"] = frame
    return evidence


def fewer_launches():
    """Evidence whose profiles of eager bf16 steps have 1,000 launches of each kernel."""
    where = {"dtype": BF16, "implementation": ways.EAGER}
    return with_values(gpu_evidence(), {"instances": 1000.0}, "profiles", **where)


CASES = {
    "matmul_alone": {
        "less": lambda: with_times_scaled(gpu_evidence(), 1.5, dtype=BF16),
        "as_much": gpu_evidence,
    },
    "slower_in_bf16": {"casts": lambda: slower(1000.0), "host": lambda: slower(1.0)},
    "compiling_saves": {"fused": fewer_launches, "is": slow_fused_kernels},
}


@pytest.mark.slow
def test_findings_give_every_declared_answer():
    assert_answers_reached(why.FINDINGS, CASES)


def test_slower_bf16_step_is_explained_by_launches_and_host():
    sentence = sentence_of("slower_in_bf16", slower(1000.0))
    assert sentence.startswith("At small, context ") and "the host is busy for" in sentence
    assert "Autocast adds casts: " in sentence and " launches become " in sentence


def test_profile_of_a_cpu_explains_no_launches():
    said = {finding.name: state(finding, cpu_evidence()) for finding in why.FINDINGS}
    assert said["slower_in_bf16"] is said["compiling_saves"] is None


def test_gain_of_a_step_is_held_against_that_of_a_matmul():
    sentence = sentence_of("matmul_alone", CASES["matmul_alone"]["less"]())
    assert sentence.startswith(
        "Back to back, a large matmul runs at 720 TFLOP/s in bf16, 15.4x float32's"
    )
    assert sentence.endswith("An eager step gains at most 10.3x: it is more than matmuls.")
