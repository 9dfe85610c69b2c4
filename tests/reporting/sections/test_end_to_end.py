"""What the section end to end says, but for warm-up and ladder."""

import pandas as pd
import pytest
from answers import check_answers
from steps import (
    also_triton,
    cells,
    drawn,
    edited,
    level,
    said,
    scaled,
    timed,
    with_attention,
    with_frame,
    without,
)
from synthetic import cpu_evidence, gpu_evidence

from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.findings import statements
from lmperf.reporting.sections.end_to_end import SECTION, findings, ways
from lmperf.reporting.sections.end_to_end.tables import head

EAGER, BLOCKS, WHOLE, BF16 = ways.EAGER, ways.BLOCKS, ways.WHOLE, ways.BF16
COMPILED = (WHOLE, BLOCKS)
CELL = {"size": "small", "context_length": 512, "batch": 4}


def with_both(factor: float) -> MachineEvidence:
    """Evidence of SDPA and of a kernel that takes so many times as long."""
    return scaled(also_triton(with_attention()), factor, implementation="triton")


SDPA = {"implementation": "sdpa", "dtype": BF16}
PLAIN = {"implementation": EAGER, "dtype": BF16}
CASES = {
    "fastest_step": {
        "one": lambda: scaled(gpu_evidence(), 0.1, implementation=BLOCKS, dtype=BF16),
        "by_size": lambda: scaled(gpu_evidence(), 50, size="small", dtype=BF16),
        "base": lambda: scaled(gpu_evidence(), 1e-3, implementation=EAGER, dtype="float32"),
    },
    "compiling": {
        "all": lambda: scaled(gpu_evidence(), 0.2, implementation=BLOCKS),
        "some": lambda: scaled(
            scaled(gpu_evidence(), 0.2, implementation=BLOCKS),
            50,
            implementation=BLOCKS,
            size="small",
        ),
        "none": lambda: scaled(gpu_evidence(), 50, implementation=BLOCKS),
    },
    "mixed_precision": {
        "all": lambda: scaled(gpu_evidence(), 50, dtype="float32"),
        "some": lambda: scaled(
            scaled(gpu_evidence(), 50, dtype="float32"), 1e3, dtype=BF16, size="small"
        ),
        "none": lambda: scaled(gpu_evidence(), 1e3, dtype=BF16),
    },
    "attention_inside": {
        "all": with_attention,
        "some": lambda: level(with_attention(), SDPA, PLAIN, size="xl", context_length=1024),
        "none": lambda: with_attention(3.0),
    },
    "own_attention_inside": {"told": lambda: with_both(1.5), "open": lambda: with_both(1.0)},
    "tf32": {
        "all": lambda: scaled(gpu_evidence(), 0.1, dtype="tf32"),
        "some": lambda: scaled(
            scaled(gpu_evidence(), 0.1, dtype="tf32"), 1e3, dtype="tf32", size="small"
        ),
        "none": lambda: scaled(gpu_evidence(), 1e3, dtype="tf32"),
    },
    "share_of_ceiling": {
        "falls": lambda: scaled(scaled(gpu_evidence(), 2, dtype=BF16), 1.5, dtype="tf32"),
        "holds": lambda: scaled(gpu_evidence(), 20, dtype="float32"),
    },
    "whole_or_block": {
        "all": lambda: scaled(gpu_evidence(), 0.5, implementation=WHOLE),
        "some": lambda: scaled(
            scaled(gpu_evidence(), 0.5, implementation=WHOLE), 4, implementation=WHOLE, size="xl"
        ),
        "none": lambda: scaled(gpu_evidence(), 2, implementation=WHOLE),
    },
    "step_host": {
        "some": gpu_evidence,
        "none": lambda: edited(gpu_evidence(), {"host_ms": 1e-3}, phase="train_step"),
    },
}


def test_every_answer_is_reached():
    check_answers(findings.FINDINGS, CASES)


def made_up() -> MachineEvidence:
    """Steps of round numbers, in milliseconds: the same in every cell."""
    evidence = gpu_evidence()
    for (dtype, name), ms in {
        ("float32", EAGER): 12.0,
        ("float32", BLOCKS): 6.0,
        ("float32", WHOLE): 3.0,
        ("tf32", EAGER): 4.0,
        (BF16, EAGER): 2.0,
        (BF16, BLOCKS): 1.0,
    }.items():
        evidence = timed(evidence, ms, dtype=dtype, implementation=name)
    evidence = edited(evidence, {"compile_s": 3.0}, implementation=BLOCKS)
    evidence = edited(evidence, {"compile_s": 12.0}, implementation=WHOLE)
    # Of 46.8 TFLOP/s in float32, sustained.
    return edited(evidence, {"flops": 0.5 * 46.8e12 * 12e-3}, phase="train_step")


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("fastest_step", ": 12.0x over eager float32; 2.7B: 4,100,000 tokens/s"),
        ("compiling", "float32 2.00x"),
        ("compiling", "; first calls with execution 3.00 s"),
        ("mixed_precision", ": 6.00x."),
        ("tf32", ": 3.00x; bf16 autocast over TF32: 2.00x, faster in 20 of 20"),
        ("tf32", ", where the host bounds 20 of its steps."),
        ("share_of_ceiling", "50.0 % of the matmul ceiling in float32"),
        ("whole_or_block", "take 4.00 times as long, at most 12.0 s"),
    ],
)
def test_numbers_are_those_of_the_medians(name, numbers):
    evidence = without(made_up(), implementation=WHOLE, dtype=["tf32", BF16])
    assert numbers in said(name, evidence)


def test_whole_over_block_is_the_time_by_block_over_the_time_of_the_whole():
    evidence = made_up()
    evidence = with_frame(evidence, having(evidence.frames[ways.STEM], dtype="float32"))
    assert ": 2.00x; its first" in said("whole_or_block", evidence)


def test_mixed_precision_is_said_with_its_best_and_its_worst_step():
    evidence = timed(timed(gpu_evidence(), 8.0, dtype="float32"), 2.0, dtype=BF16)
    evidence = timed(evidence, 1.0, dtype=BF16, size="xl")
    evidence = timed(evidence, 16.0, dtype=BF16, size="small", context_length=128)
    sentence = said("mixed_precision", evidence)
    assert ": 0.50x (small, context 128) to 8.00x (xl, context 128), faster in 19" in sentence


def test_other_attention_is_said_with_its_gain_and_the_memory_that_it_spares():
    sentence = said("attention_inside", with_attention(0.25, peak=0.6))
    assert "SDPA 4.00x" in sentence and "peak memory 40.0 % lower" in sentence


def test_the_projects_kernel_inside_the_model_is_held_against_pytorchs():
    sentence = said("own_attention_inside", with_both(2.0))
    assert sentence == (
        "Triton over SDPA in a bf16 autocast step (context 1024): eager 0.50x, faster in 0 of 5"
        " steps, slower in 5 of 5."
    )


def test_rates_are_of_the_median():
    evidence = timed(gpu_evidence(), 100.0, **CELL, dtype="float32", implementation=EAGER)
    line = cells(
        SECTION.tables[0].make(evidence)[0],
        **{"size": "small", "context": 512},
        implementation="eager",
    )
    assert line["tokens/s"] == "20,500"


def test_steps_that_wait_for_the_host_are_counted_by_way():
    evidence = edited(made_up(), {"host_ms": 1.7}, phase="train_step")
    evidence = with_frame(evidence, having(evidence.frames[ways.STEM], size="small"))
    # Of 2 ms in bf16 that is 85 %, of 1 ms compiled more; the rest takes longer.
    sentence = said("step_host", without(evidence, implementation=WHOLE))
    assert "bounds 4 of 24 train steps" in sentence
    assert sentence.endswith("after 90 % of the step): compiled by block 4 of 12.")
    lines = SECTION.tables[0].make(evidence)
    bf16 = next(part for part in lines if part.caption.startswith("bf16"))
    line = cells(bf16, context=512, implementation="eager")
    assert line["queued (% of the step)"] == "85.0" and "from 90 % on" in bf16.notes


def test_steps_of_another_model_are_none_of_the_projects_that_wait(gpu):
    frame = gpu.frames[ways.STEM]
    rows = having(frame, implementation=EAGER, dtype=BF16)
    other = rows.assign(
        implementation="gpt2", parameters=rows["parameters"] / 2, host_ms=rows["median_ms"]
    )
    both = with_frame(gpu, pd.concat([frame, other], ignore_index=True))
    assert said("step_host", both) == said("step_host", gpu)


def test_a_cell_without_the_base_has_no_line_and_the_sizes_of_a_speedup_are_said(gpu):
    lacking = without(gpu, dtype="float32", implementation=EAGER, size=["xl", "2.7B"])
    over = {t.id: t for t in SECTION.tables}["E4"].make(lacking)[0]
    assert set(over.frame["size"]) == {"small", "medium", "large"}
    assert "over eager float32 (small to large)" in said("fastest_step", lacking)
    assert "(small to" not in said("fastest_step", gpu)


def test_a_processor_has_no_queue_to_speak_of(cpu):
    assert not any("queued" in h for part in SECTION.tables[0].make(cpu) for h in part.frame)
    assert "Queued" not in SECTION.tables[0].make(cpu)[0].notes
    assert "step_host" not in {s.name for s in statements(SECTION.findings, cpu)}


def test_what_is_not_measured_is_silent():
    evidence = cpu_evidence()
    nothing = MachineEvidence("empty")
    assert statements(SECTION.findings, nothing) == []
    said = {s.name: str(s) for s in statements(SECTION.findings, evidence)}
    assert "tf32" not in said and "attention_inside" not in said
    assert not any("TF32" in sentence for sentence in said.values())


def test_the_fastest_is_one_of_two_at_least(cpu):
    alone = without(
        without(cpu, size="small", dtype=BF16), size="small", implementation=[*COMPILED]
    )
    said = {s.name: str(s) for s in statements(SECTION.findings, alone)}
    assert "; tiny: " in said["fastest_step"] and "small" not in said["fastest_step"]
    assert cells(head(alone), size="small")["best over eager float32"] == "–"
    assert [label.get_text() for label in drawn(alone).axes[0].get_xticklabels()] == ["tiny"]


def test_the_fastest_must_be_found_faster_than_eager_float32():
    """A median that is a hair shorter, within the noise, does not make a way the fastest."""
    evidence = with_frame(gpu_evidence(), having(gpu_evidence().frames[ways.STEM], dtype="float32"))
    evidence = level(
        without(evidence, implementation=WHOLE),
        {"implementation": BLOCKS},
        {"implementation": EAGER},
    )
    evidence = edited(evidence, {"median_ms": 0.1, "flops": None}, implementation=BLOCKS)
    assert set(ways.fastest(evidence)["implementation"]) == {EAGER}


def test_what_is_not_told_apart_from_the_fastest_is_named_with_it():
    evidence = scaled(with_attention(), 0.1, implementation=["sdpa", EAGER], dtype=BF16)
    alone = said("fastest_step", evidence)
    assert ": bf16 autocast, SDPA: " in alone and alone.startswith("Fastest step, ladder aside (")
    assert ": bf16 autocast, Triton or SDPA: " in said("fastest_step", also_triton(evidence))


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("sdpa",), "bf16 autocast, SDPA"),
        (
            ("sdpa_compiled_blocks", "triton_compiled_blocks"),
            "bf16 autocast, SDPA or Triton, compiled by block",
        ),
        ((EAGER, "sdpa"), "eager bf16 autocast or bf16 autocast, SDPA"),
        (("sdpa", BLOCKS), "bf16 autocast, SDPA or compiled by block"),
        (("sdpa", "triton_compiled"), "bf16 autocast, SDPA or bf16 autocast, Triton, compiled"),
    ],
)
def test_what_ways_share_is_said_once(names, words):
    assert ways.either([ways.Way(name, BF16) for name in names]) == words
