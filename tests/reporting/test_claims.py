"""Claims: true, contradicted with their values, or not measured; never silently absent."""

import pandas as pd
import pytest

from lmperf.reporting import scaling
from lmperf.reporting.claims import Claim, judge
from lmperf.reporting.environment import environment
from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.sections import claims_of, judgements, stems

# Its times are proportional to the work, and what is gained is gained everywhere alike.
BEYOND_THE_SYNTHETIC_MACHINE = {
    "context_exponent",
    "context_doublings",
    "compiling_by_size",
    "paid_back",
    "mixed_precision_smallest",
    "autocast",
    "directions",
    "attention_gains_most",
    "matmul_share",
    "unfused",
    "matmul_rule",
    "backward_elementwise",
    "largest_tensor",
    "faster_units_are_harder_to_fill",
    "speedup_by_width",
    "goal_one_head_forward",
    "goal_graphed_forward",
}


def sentence(evidence, templates, stem, name):
    claim = next(claim for claim in claims_of(stem) if claim.name == name)
    return judge(claim, evidence, environment(templates))


def test_all_claims_hold_or_say_why_not_on_a_gpu(gpu, templates):
    judged = judgements(gpu, templates)
    assert len(judged) >= 20
    contradicted = {j.name for j in judged if j.state == "contradicted"}
    assert contradicted == BEYOND_THE_SYNTHETIC_MACHINE
    assert not [j.name for j in judged if j.state == "missing"]


def test_no_evidence_makes_every_claim_say_so(templates):
    judged = judgements(MachineEvidence("bare"), templates)
    assert {j.state for j in judged} == {"missing"}
    assert all(j.sentence.startswith("**Not measured:**") for j in judged)


# What they say rests on no timing or result that a gate could withhold: on dtypes that were looked
# at, on closed forms, on published figures or on what was recorded of the jobs.
UNGATED = {
    *("accumulator", "upcast", "kept", "norm", "logits", "loss", "block_outputs", "same_in_kind"),
    *("activations", "state_share", "range_or_precision", "other_share"),
    *("wall", "inside", "at_least"),
}


def test_with_every_gate_red_no_claim_is_true(gpu, templates):
    for frame in gpu.frames.values():
        frame[["max_error", "error_bound"]] = [1.0, 0.5]
    judged = judgements(gpu, templates)
    true = {j.name for j in judged if j.state == "true"}
    assert true <= UNGATED, sorted(true - UNGATED)


def test_backward_against_forward_is_computed(gpu, templates):
    said = sentence(gpu, templates, "end_to_end", "backward")
    assert said.state == "true" and "Backward takes 2.00 times" in said.sentence


def test_a_claim_that_the_data_contradict_is_marked_and_keeps_its_values(gpu, templates):
    frame = gpu.frames["end_to_end"]
    frame.loc[frame["phase"] == "backward", "median_ms"] *= 3
    said = sentence(gpu, templates, "end_to_end", "backward")
    assert said.state == "contradicted"
    assert said.sentence.startswith("**Contradicted by the data:**") and "6.00" in said.sentence


def test_a_claim_whose_phase_is_missing_is_not_measured(gpu, templates):
    frame = gpu.frames["end_to_end"]
    gpu.frames["end_to_end"] = frame[frame["phase"] != "backward"]
    said = sentence(gpu, templates, "end_to_end", "backward")
    assert said.state == "missing" and "backward" in said.sentence


def test_memory_that_is_off_by_more_than_allowed_is_contradicted(gpu, templates):
    frame = gpu.frames["memory"]
    frame.loc[0, "peak_mib"] = 2 * frame.loc[0, "predicted_mib"]
    said = sentence(gpu, templates, "memory", "prediction")
    assert said.state == "contradicted" and "+100.0 %" in said.sentence


def test_a_red_gate_is_in_the_claim_about_the_gates(gpu, templates):
    frame = gpu.frames["flash_attention"]
    frame.loc[frame.index[frame["implementation"] == "triton"][0], "max_error"] = float("nan")
    said = sentence(gpu, templates, "flash_attention", "worst_gate")
    assert said.state == "contradicted" and "1 of the rows" in said.sentence


def test_dtypes_not_timed_in_turn_give_no_claim_about_their_ratio(gpu, templates):
    frame = gpu.frames["end_to_end"]
    frame["together"] = frame["together"] + frame["dtype"]
    said = sentence(gpu, templates, "end_to_end", "mixed_precision")
    assert said.state == "missing"


def test_an_exponent_is_fitted_over_the_longest_lengths():
    n = [64, 128, 256, 512, 1024]
    frame = pd.DataFrame({"d": [1] * 5 + [2] * 5, "n": n * 2})
    frame["t"] = [max(5.0, x**2 / 1e4) for x in n] + [float(x) ** 1.5 for x in n]
    found = scaling.exponents(frame, "n", "t", ["d"])
    assert found.loc[2] == pytest.approx(1.5)
    assert found.loc[1] == pytest.approx(2.0, abs=0.2)
    few = scaling.exponents(frame[frame["n"] > 512], "n", "t", ["d"])
    assert few.empty


def test_a_threshold_that_does_not_hold_further_on_is_not_steady():
    axis = pd.Series([1, 2, 3, 4], name="seq_len")
    steady = scaling.threshold(axis, pd.Series(["slower", "no difference", "faster", "faster"]))
    assert (steady.first, steady.steady, steady.slower, steady.same) == (3, True, [1], [2])
    broken = scaling.threshold(axis, pd.Series(["slower", "faster", "slower", "faster"]))
    assert (broken.first, broken.steady) == (2, False)
    torn = scaling.threshold(
        pd.Series([1, 1, 2], name="seq_len"), pd.Series(["slower", "faster", "faster"])
    )
    assert (torn.first, torn.mixed, torn.same) == (2, [1], [])
    never = scaling.threshold(axis, pd.Series(["slower"] * 4))
    assert (never.first, never.steady) == (None, True)


def test_every_claim_is_used_by_its_template(templates):
    for stem in stems(templates):
        text = (templates / "sections" / f"{stem}.md.j2").read_text()
        unused = [c.name for c in claims_of(stem) if f"claims.{c.name}" not in text]
        assert not unused, stem


def test_the_share_of_the_copy_is_that_of_the_rounds_at_large_sizes(gpu, templates):
    said = sentence(gpu, templates, "lrpe", "copy_share_forward")
    assert said.state == "true" and "forward of Triton" in said.sentence
    frame = gpu.frames["lrpe"]
    slow = (frame["implementation"] == "triton") & (frame["shape"] == "128x128")
    frame.loc[slow, "rounds_ms"] = frame.loc[slow, "rounds_ms"].map(
        lambda text: ";".join(str(2 * float(ms)) for ms in text.split(";"))
    )
    said = sentence(MachineEvidence("m", {}, gpu.frames), templates, "lrpe", "copy_share_forward")
    assert said.state == "contradicted" and "shape 128x128" in said.sentence


def test_cached_angles_that_pay_contradict_the_claim(gpu, templates):
    assert sentence(gpu, templates, "lrpe", "caching").state == "true"
    frame = gpu.frames["lrpe"]
    frame.loc[frame["implementation"] == "triton_cached", "median_ms"] /= 2
    said = sentence(MachineEvidence("m", {}, gpu.frames), templates, "lrpe", "caching")
    assert said.state == "contradicted" and "does pay" in said.sentence


def test_a_peak_of_lrpe_far_from_its_closed_form_contradicts_the_claim(gpu, templates):
    frame = gpu.frames["lrpe"]
    row = frame.index[(frame["implementation"] == "triton") & (frame["phase"] == "backward")][0]
    frame.loc[row, "peak_mib"] *= 2
    said = sentence(gpu, templates, "lrpe", "prediction")
    assert said.state == "contradicted" and "triton, backward" in said.sentence


def ratios(verdicts, flops):
    return pd.DataFrame({"verdict": verdicts, "flops": flops})


def test_something_starts_to_pay_where_the_run_of_faster_cells_begins():
    found = scaling.start(ratios(["faster", "slower", "faster", "faster"], [1, 4, 16, 8]))
    assert (found.first["flops"], found.last["flops"]) == (8, 4)
    assert (found.after, found.before, found.faster_before) == (2, 2, 1)
    never = scaling.start(ratios(["faster", "no difference"], [1, 2]))
    assert (never.first, never.after, never.faster_before) == (None, 0, 1)
    always = scaling.start(ratios(["faster", "faster"], [2, 1]))
    assert (always.first["flops"], always.last, always.before) == (1, None, 0)


def test_where_lower_precision_starts_to_pay_is_found_by_the_data(gpu, templates):
    frame = gpu.frames["end_to_end"]
    small = (frame["size"] == "small") & (frame["dtype"] == "autocast_bfloat16")
    for column in ("rounds_ms", "again_ms"):
        frame.loc[small, column] = frame.loc[small, column].map(
            lambda text: ";".join(str(90 * float(ms)) for ms in text.split(";")),
            na_action="ignore",
        )
    said = sentence(gpu, templates, "end_to_end", "mixed_precision_starts")
    assert said.state == "true" and "the last where it is not faster is size small" in said.sentence
    said = sentence(gpu, templates, "end_to_end", "mixed_precision_smallest")
    assert said.state == "true"


def test_first_calls_that_never_pay_back_contradict_the_claim(gpu, templates):
    frame = gpu.frames["end_to_end"]
    frame.loc[frame["implementation"] == "compiled_blocks", "compile_s"] = 1e6
    said = sentence(gpu, templates, "end_to_end", "paid_back")
    assert said.state == "contradicted"
    assert sentence(gpu, templates, "end_to_end", "regional").state == "contradicted"


def test_replayed_and_filled_cells_do_not_mix_with_those_of_one_head(gpu, templates):
    frame = gpu.frames["flash_attention"]
    apart = frame["cuda_graph"] | (frame["heads"] > 1)
    claims = ("faster_forward", "rate", "kernel_exponents", "speedup_by_length")

    def said_of(evidence):
        return [sentence(evidence, templates, "flash_attention", name).sentence for name in claims]

    before = said_of(gpu)
    alone = MachineEvidence("m", {}, {**gpu.frames, "flash_attention": frame[~apart]})
    assert before == [
        sentence(alone, templates, "flash_attention", name).sentence for name in claims
    ]
    said = sentence(alone, templates, "flash_attention", "filled_forward")
    assert said.state == "missing" and "filled grid" in said.sentence


@pytest.mark.parametrize(
    ("stated", "shown"),
    [
        ("in all {{ n }} cells", "in the one cell"),
        ("over {{ n }} fits, 2.{{ n }} rows", "over 1 fit, 2.1 rows"),
        ("{{ n }}{{ n }} cells", "11 cells"),
        ("{{ n }}.2× to {{ n }}.2×, {{ n }}.2 % to {{ n }}.2 %", "1.2×, 1.2 %"),
        ("{{ n }}.2 to {{ n }}.25 and {{ n }}0 to {{ n }}0 fits", "1.2 to 1.25 and 10 fits"),
    ],
)
def test_one_thing_is_counted_in_the_singular(stated, shown, gpu, templates):
    claim = Claim("counted", stated, lambda _: {"n": 1}, lambda _: True, "a count", "")
    assert judge(claim, gpu, environment(templates)).sentence == shown


def test_exponents_are_fitted_over_the_same_range():
    rows = pd.DataFrame(
        [("whole", n, n**2) for n in (128, 256, 512, 1024)]
        + [("withheld", n, n**3) for n in (128, 256, 512)],
        columns=["size", "n", "ms"],
    )
    found = scaling.exponents(rows, "n", "ms", ["size"])
    assert list(found.index) == ["whole"] and found["whole"] == pytest.approx(2)
