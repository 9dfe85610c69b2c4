"""Statements that are commonly made by hand: each can be contradicted, and says so."""

import pytest

from lmperf.reporting.claims import judge
from lmperf.reporting.environment import environment
from lmperf.reporting.sections import claims_of


@pytest.fixture
def said(gpu, templates):
    """Judges a claim on the evidence with one frame changed in place."""
    made = environment(templates)

    def judged(stem, name, change=None):
        if change is not None:
            change(gpu.frames[stem])
            gpu.derived.clear()
        claim = next(claim for claim in claims_of(stem) if claim.name == name)
        return judge(claim, gpu, made)

    return judged


def test_kernels_that_are_far_from_the_wall_time_contradict_the_timer(said):
    assert said("profiles", "timer_agrees").state == "true"

    def twice_the_wall_time(frame):
        slow = (frame["dtype"] == "float32") & (frame["phase"] == "backward")
        frame.loc[slow, "wall_ms"] *= 2

    found = said("profiles", "timer_agrees", twice_the_wall_time)
    assert found.state == "contradicted" and "at most 10.0 %" in found.sentence


def test_a_matmul_in_the_optimizer_contradicts_that_there_is_none(said):
    assert said("profiles", "optimizer_without_matmuls").state == "true"

    def one_more(frame):
        matmul = (frame["table"] == "class") & (frame["name"] == "matmul")
        step = matmul & (frame["phase"] == "train_step")
        frame.loc[frame.index[step][0], "instances"] += 1

    found = said("profiles", "optimizer_without_matmuls", one_more)
    assert found.state == "contradicted" and "at most 1 are added" in found.sentence


def test_the_two_leading_kernels_do_not_count_the_rest(said):
    before = said("profiles", "leading_pair").sentence

    def all_is_rest(frame):
        frame.loc[frame["name"] == "rest", "time_share"] = 0.99

    assert said("profiles", "leading_pair", all_is_rest).sentence == before


def test_a_backward_with_more_elementwise_work_makes_the_claim_true(said):
    def more(frame):
        elementwise = (frame["table"] == "class") & (frame["name"] == "elementwise")
        frame.loc[elementwise & (frame["phase"] == "backward"), "time_share"] *= 2

    assert said("profiles", "backward_elementwise").state == "contradicted"
    assert said("profiles", "backward_elementwise", more).state == "true"


def test_compiled_attention_that_grows_linearly_contradicts_the_square(said):
    assert said("attention", "compiled_exponent").state == "true"

    def linear(frame):
        compiled = frame["implementation"] == "compiled"
        frame.loc[compiled, "median_ms"] = frame.loc[compiled, "seq_len"] / 1e3

    found = said("attention", "compiled_exponent", linear)
    assert found.state == "contradicted" and "exponent 1.00" in found.sentence


def test_the_matrices_that_attention_holds_are_counted(said):
    assert "holds 2 matrices" in said("attention", "matrices").sentence

    def one_less(frame):
        frame["saved_mib"] -= (frame["saved_mib"] - frame["resident_mib"]) / 2

    assert "holds one matrix" in said("attention", "matrices", one_less).sentence

    def half_of_another(frame):
        frame["saved_mib"] += (frame["saved_mib"] - frame["resident_mib"]) / 3

    assert said("attention", "matrices", half_of_another).state == "contradicted"


def test_a_compiled_attention_that_holds_less_contradicts_the_claim(said):
    def less(frame):
        compiled = frame["implementation"] == "compiled"
        frame.loc[compiled, "saved_mib"] = frame.loc[compiled, "resident_mib"]

    found = said("attention", "compiling_memory", less)
    assert found.state == "contradicted" and "100.0 %" in found.sentence


def test_axes_and_extra_tokens_that_cost_time_contradict_the_claims(said):
    assert said("lrpe", "axes").state == said("lrpe", "extra_tokens").state == "true"

    def slower(frame):
        frame.loc[frame["shape"] == "32x32x32", "median_ms"] *= 1.7
        frame.loc[frame["extra_tokens"] > 0, "median_ms"] *= 1.2

    axes = said("lrpe", "axes", slower)
    assert axes.state == "contradicted" and "70." in axes.sentence
    assert said("lrpe", "extra_tokens").state == "contradicted"


def test_a_single_number_of_extra_tokens_is_no_comparison(said):
    def without(frame):
        frame["extra_tokens"] = 0

    found = said("lrpe", "extra_tokens", without)
    assert found.state == "missing" and "with and without" in found.sentence


def test_another_dtype_of_logits_loss_or_norm_is_named(said):
    names = ("logits", "loss", "block_outputs", "same_in_kind")
    assert {said("mixed_precision", name).state for name in names} == {"true"}

    def odd(frame):
        half = (frame["dtype"] == "bfloat16") & (frame["implementation"] == "compiled")
        frame.loc[half & frame["kind"].isin(["logits", "loss"]), "observed_dtype"] = "float16"
        frame.loc[half & (frame["tensor"] == "attention_norm"), "observed_dtype"] = "bfloat16"

    found = {name: said("mixed_precision", name, odd) for name in names}
    assert {judged.state for judged in found.values()} == {"contradicted"}
    assert "bf16 autocast, compiled (float16)" in found["logits"].sentence
    assert "`attention_norm`" in found["block_outputs"].sentence
    assert "`attention_norm` and `loss`" in found["same_in_kind"].sentence


def test_a_peak_late_in_the_backward_contradicts_the_claim(said):
    def late(frame):
        backward = (frame["table"] == "phase") & (frame["name"] == "backward")
        frame.loc[backward, "position"] //= 2

    assert said("memory_timeline", "peak_early_in_backward").state == "true"
    found = said("memory_timeline", "peak_early_in_backward", late)
    assert found.state == "contradicted" and "in 0 of 4" in found.sentence


def test_an_autocast_forward_that_saves_memory_contradicts_the_claim(said):
    def smaller(frame):
        frame.loc[frame["dtype"] == "autocast_bfloat16", "peak_mib"] /= 4

    assert said("memory", "autocast_forward").state == "true"
    found = said("memory", "autocast_forward", smaller)
    assert found.state == "contradicted" and "in 0 of 20" in found.sentence


def test_a_forward_that_was_not_profiled_is_not_measured(said):
    def without(frame):
        frame.loc[frame["phase"] == "forward", "phase"] = "inference"

    assert said("profiles", "leading_pair", without).state == "missing"
    assert said("profiles", "spreading").state == "missing"
