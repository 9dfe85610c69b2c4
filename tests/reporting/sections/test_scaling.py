"""How the recommended step scales: the table of several GPUs, and its sentences."""

import planted
import pytest
from planted_ranks import evidence, profiled, step

from lmperf.reporting.sections import section


def scaled(name, ms, batch=8, ranks=2, gib=66, **values):
    cell = {"context_length": 1024, "batch": batch, "ranks": ranks, "tokens": 1024 * batch}
    return step(name, ms, **cell, peak_mib=1024 * gib, **values)


ONE = scaled("one_rank_graph", 320, ranks=1, gib=94)
WEAK, STRONG = scaled("overlapped_graph", 330, 16), scaled("overlapped_graph", 180)
SPLIT = scaled("sharded_optimizer_graph", 160, gib=47)
PEER, SLOWER = scaled("ddp_bf16_compiled", 396, 16), scaled("ddp_compiled", 430, 16)
OF_COURSE = step("one_rank_compiled", 114), step("ddp_compiled", 112)


def text_of(*rows):
    return planted.page("report/several_gpus", evidence(*rows)).text


def test_steps_are_weak_or_strong_by_the_batch_of_one_rank():
    frame = section(evidence(ONE, WEAK, STRONG, *OF_COURSE), "scaling").steps.frame
    assert list(frame["scaling"].fillna("")) == ["", "strong", "weak"]
    assert list(frame["of_linear"]) == pytest.approx([1, 320 / 360, 320 / 330])


def test_sentences_follow_from_the_rows():
    text = text_of(ONE, WEAK, STRONG, SPLIT, PEER, SLOWER)
    assert "make 1.94 times as many tokens a second as one** (3.4B, 8 sequences on each" in text
    assert "with the 8 of one split over them 1.78 times" in text
    assert "takes a GPU from 66.0 to 47.0 GiB**, and the step on a split batch from 180 to" in text
    assert "1.20x over its fastest peer, DistributedDataParallel, compiled, bf16 grad" in text


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ((ONE, STRONG), "times as many tokens"),
        ((ONE, WEAK, STRONG, PEER), "Sharding AdamW"),
        ((ONE, WEAK, STRONG, scaled("sharded_optimizer_graph", 178, gib=47)), "on a split batch"),
        ((ONE, WEAK, STRONG, scaled("sharded_optimizer_graph", 170, gib=70)), "ZeRO-1)"),
        ((ONE, WEAK, SPLIT), "1.20x over"),
    ],
)
def test_a_sentence_goes_without_its_rows(rows, words):
    assert words not in text_of(*rows)


def test_hidden_share_comes_from_the_ledger():
    cell = {"context_length": 1024, "batch": 16}
    assert "| 75 (75-75) |" in text_of(ONE, WEAK, profiled("overlapped_graph", 330, 0.75, **cell))


def test_table_of_strategies_leaves_these_steps_out():
    of = section(evidence(ONE, WEAK, PEER, *OF_COURSE), "distributed")
    assert of.cell["context_length"] == 512
    assert not set(of.head.frame["implementation"]) & {"one_rank_graph", "ddp_bf16_compiled"}


@pytest.mark.parametrize("rows", [(WEAK, STRONG, *OF_COURSE), (ONE, *OF_COURSE)])
def test_without_steps_of_one_rank_and_several_there_is_no_table(rows):
    assert "of linear" not in text_of(*rows)
