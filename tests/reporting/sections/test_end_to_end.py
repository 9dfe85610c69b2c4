"""The page on whole steps: which sentences stand, and their numbers."""

import planted
import pytest

from lmperf.reporting.sections import section
from lmperf.reporting.words import NotMeasured

AUTOCAST = "autocast_bfloat16"


def step(ms, implementation="eager", dtype=AUTOCAST, **values):
    """A train step of `large` at context 1024."""
    cell = {"size": "0.97B", "context_length": 1024, "batch": 4, "phase": "train_step"}
    known = {"parameters": 1e9, "tokens": 4096, "flops": 1e12, "peak_mib": 2048, "host_ms": 0.1}
    more = {"dtype": dtype, "implementation": implementation}
    return planted.row("end_to_end", **cell | known | more | {"ms": ms} | values)


def section_of(*rows):
    return section(planted.evidence(*rows), "end_to_end")


def sentence(page, start):
    return next((said for said in page.said if said.startswith(start)), None)


def page_of(*rows, **more):
    return planted.page("end_to_end", planted.evidence(*rows, **more))


@pytest.mark.parametrize(
    ("ms", "spread", "said"),
    [(50, 1, "2.00x"), (200, 1, "0.50x"), (100, 1, "on par"), (100, 100, None), (None, 1, None)],
    ids=["faster", "slower", "equal", "noisy", "missing"],
)
def test_sentence_on_compiling_follows_the_data(ms, spread, said):
    ours = [step(ms, "compiled_blocks", spread=spread, compile_s=5)] if ms else []
    page = page_of(step(100, spread=spread), *ours, facts=planted.CPU)
    found = sentence(page, "Step compiled by block over eager")
    assert said in found if said else found is None


@pytest.mark.parametrize(("whole_s", "stands"), [(6, True), (4, False)])
def test_first_calls_are_paid_back_after_their_seconds(whole_s, stands):
    rows = [step(100), step(50, "compiled_blocks", compile_s=5)]
    rows += [step(100, batch=8), step(200, "compiled_blocks", batch=8, compile_s=50)]
    rows.append(step(100, size="0.42B"))
    rows.append(step(90, "compiled_blocks", size="0.42B", compile_s=0.1))
    found = section_of(*rows).repaid
    assert found["compile_s"] == 5 and found["steps"] == pytest.approx(100)
    said = sentence(page_of(*rows, step(50, "compiled", compile_s=whole_s)), "A step")
    assert "after at least 100 steps" in said and ("as a whole" in said) is stands
    with pytest.raises(NotMeasured):
        section_of(*rows[2:4]).repaid  # noqa: B018


def test_waiting_steps_are_left_out_of_sentences():
    waits = [step(100, size="0.13B"), step(50, "compiled_blocks", size="0.13B", bound="host")]
    rows = [step(100), step(80, "compiled_blocks"), *waits]
    found = section_of(*rows)
    assert found.over("compiled_blocks", "eager").mean == pytest.approx(1.25)
    assert sentence(page_of(*rows), "1 of 4 train steps of lmperf's model wait")


def test_cpu_has_no_waiting_steps_and_no_mfu():
    page = page_of(step(100, dtype="float32"), facts=planted.CPU)
    assert not any(word in page.text for word in ("wait for the CPU", "MFU", "GPU", "CUDA"))


@pytest.mark.parametrize(("peak", "saves"), [(1024, True), (2048, False)])
def test_attention_saves_memory_if_every_peak_is_lower(peak, saves):
    rows = step(100, "compiled_blocks"), step(50, "sdpa_compiled_blocks", peak_mib=peak)
    said = sentence(page_of(*rows), "SDPA over plain attention")
    assert f"context 1,024: large 2.00x, with a peak {100 - peak / 20.48:.1f} %" in said
    assert ("The matrix of scores is never stored." in said) is saves


def test_passes_of_two_models_are_not_compared():
    forward, backward = (step(10, phase=phase) for phase in ("forward", "backward"))
    assert "takes" in sentence(page_of(forward, backward), "Where the GPU is the limit")
    assert sentence(page_of(forward, backward | {"batch": "8"}), "Where the GPU") is None


def test_step_has_its_time_in_e1_or_as_a_technique_in_e6():
    rows = [step(100), step(50, "compiled_blocks"), step(40, "fused_graph")]
    tables = page_of(*rows).tables
    shown = {id: {c.row for t in tables if t.id == id for c in t.cells} for id in ("E1", "E6")}
    eager, compiled, graph = (row["key"] for row in rows)
    assert {eager, compiled} < shown["E1"] and graph not in shown["E1"]
    assert {eager, compiled, graph} <= shown["E6"]


def test_mfu_is_of_the_bf16_peak_on_every_line():
    rows = section_of(step(100, dtype="float32"), step(100)).steps.frame
    assert rows["mfu"].tolist() == [pytest.approx(10 / 989.5)] * 2


def test_steps_that_wait_pay_nothing_back():
    rows = [step(100), step(50, "compiled_blocks", compile_s=5, bound="host")]
    with pytest.raises(NotMeasured):
        section_of(*rows).repaid  # noqa: B018
