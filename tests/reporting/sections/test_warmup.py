"""Report on warm-up: the first train steps of a process in table E2, compared with table E1.

Table E1 has train steps timed after warm-up.
"""

import pandas as pd
from finding_checks import assert_answers_reached
from step_evidence import line_of, sentence_of, with_rows, with_times, with_values
from synthetic import cpu_evidence, gpu_evidence

from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.findings import statements
from lmperf.reporting.numbers import spread
from lmperf.reporting.sections.end_to_end import warmup, ways

EAGER, BF16 = ways.EAGER, ways.BF16


def with_warm_steps(factor: float) -> MachineEvidence:
    """Evidence whose warm steps in table E2 take ``factor`` times as long as in table E1.

    One GPU gave both. In E1 the steps of size small in bf16 autocast are host-bound.
    """
    evidence = with_times(gpu_evidence(), 100.0, implementation=EAGER)
    evidence = with_values(evidence, {"gpus": "GPU-a"})
    evidence = with_values(evidence, {"gpus": "GPU-a"}, warmup.STEM)
    evidence = with_values(evidence, {"host_ms": 10.0}, implementation=EAGER)
    evidence = with_values(
        evidence, {"host_ms": 95.0}, implementation=EAGER, size="small", dtype=BF16
    )
    return with_values(evidence, {"step_ms": 100.0 * factor}, warmup.STEM)


CASES = {
    "first_step": {
        "reserves": gpu_evidence,
        "longer": cpu_evidence,
        "not_always": lambda: with_values(cpu_evidence(), {"step_ms": 0.1}, warmup.STEM, step=1),
    },
    "warm_again": {
        "near": lambda: with_warm_steps(1.05),
        "apart": lambda: with_warm_steps(2.0),
    },
}


def test_findings_give_every_declared_answer():
    assert_answers_reached(warmup.FINDINGS, CASES)


def test_finding_compares_the_first_step_with_the_second(cpu):
    first = with_values(cpu, {"step_ms": 300.0}, warmup.STEM, step=1)
    second = with_values(first, {"step_ms": 100.0}, warmup.STEM, step=2)
    assert "takes 3.00 times as long as the second" in sentence_of("first_step", second)


def test_finding_names_the_part_with_most_of_the_excess(gpu):
    def first(forward, backward):
        later = {"forward_ms": 100.0, "backward_ms": 40.0, "optimizer_ms": 10.0}
        parts = {"forward_ms": forward, "backward_ms": backward, "optimizer_ms": 110.0}
        return with_values(with_values(gpu, later, warmup.STEM), parts, warmup.STEM, step=1)

    said = sentence_of("first_step", first(900.0, 140.0))
    assert "The forward pass takes 80.0 % of the excess." in said
    assert "pass takes" not in sentence_of("first_step", first(500.0, 440.0))


def test_table_e2_statistics_exclude_the_warm_up_steps(gpu):
    rows = having(gpu.frame(warmup.STEM), size="small", dtype="float32").set_index("step")
    parts = warmup.tables(gpu)
    line = line_of(parts[0], size="small", dtype="float32")
    timed = rows["step_ms"].loc[2:11]
    assert line["after 1 (ms)"] == spread(timed.mean(), timed.std())
    assert float(line["std / mean after 0"]) > float(line["std / mean after 1"])
    assert line_of(parts[1], size="small", dtype="float32")["step 1"] == f"{rows['step_ms'][1]:.0f}"
    first = line_of(parts[2], size="small", dtype="float32")
    assert first["forward (ms)"].startswith(f"{rows['forward_ms'][1]:.0f} / ")
    assert [h for h in first.index if "reserved in step" in h][1:] == ["reserved in step 2 (MiB)"]


def test_table_e2_shows_the_status_if_every_row_failed(gpu):
    (table,) = warmup.tables(with_values(gpu, {"status": "crash"}, warmup.STEM, batch=4))
    assert set(table.frame["status"]) == {"crash"}


def test_custom_model_has_lines_but_changes_no_finding(gpu):
    frame = gpu.frames[warmup.STEM]
    both = [frame, frame.assign(implementation="mine", step_ms=3 * frame["step_ms"])]
    after = with_rows(gpu, pd.concat(both), warmup.STEM)
    assert "implementation" not in warmup.tables(gpu)[0].frame
    for old, new in zip(warmup.tables(gpu), warmup.tables(after), strict=True):
        lines = new.frame
        assert set(lines["implementation"]) == {"eager", "mine"}
        theirs = lines[lines["implementation"] == "eager"].drop(columns="implementation")
        assert theirs.to_numpy().tolist() == old.frame.to_numpy().tolist()
    before, said = (statements(warmup.FINDINGS[:1], e)[0].sentence for e in (gpu, after))
    assert said == before


def test_warm_steps_are_compared_with_the_steps_of_table_e1():
    assert sentence_of("warm_again", with_warm_steps(1.05)) == (
        "Warm steps that are not host-bound take 1.05x as long in E2 as in E1."
    )
    sentence = sentence_of("warm_again", with_warm_steps(2.0))
    assert "take 2.00x as long" in sentence
    assert sentence.endswith(": 7 of 7 differ by more than 10 %."), "one is host-bound"


def test_warm_steps_of_another_gpu_are_not_compared():
    evidence = with_warm_steps(1.05)
    other = with_values(evidence, {"gpus": "GPU-b"}, warmup.STEM)
    assert not statements(warmup.FINDINGS[1:], other)
    one = with_values(other, {"gpus": "GPU-a", "step_ms": 110.0}, warmup.STEM, size="large")
    assert "take 1.10x as long" in sentence_of("warm_again", one)
    unknown = with_values(evidence, {"gpus": ""}, warmup.STEM)
    assert not statements(warmup.FINDINGS[1:], unknown)


def test_warm_steps_that_may_be_host_bound_in_e2_are_not_compared():
    evidence = with_values(with_warm_steps(1.05), {"host_ms": 60.0}, implementation=EAGER)
    assert not statements(warmup.FINDINGS[1:], evidence)
