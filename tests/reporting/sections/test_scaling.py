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
SPLIT, SHARDED = (
    scaled("sharded_optimizer_graph", ms, b, gib=47) for ms, b in ((160, 8), (320, 16))
)
PEER, SLOWER = scaled("ddp_bf16_compiled", 396, 16), scaled("ddp_compiled", 430, 16)
ALONE = scaled("one_rank_compiled", 352, ranks=1)
OF_COURSE = step("one_rank_compiled", 114), step("ddp_compiled", 112)


def text_of(*rows):
    return planted.page("report/several_gpus", evidence(*rows)).text


def test_steps_are_weak_or_strong_by_the_batch_of_one_rank():
    frame = section(evidence(ONE, WEAK, STRONG, *OF_COURSE), "scaling").steps.frame
    assert list(frame["scaling"].fillna("")) == ["", "strong", "weak"]
    assert list(frame["of_linear"]) == pytest.approx([1, 320 / 360, 320 / 330])


def test_strategy_has_one_line_for_strong_and_weak_scaling():
    text = text_of(ONE, WEAK, STRONG)
    assert "| recommended step, one rank | – | – | 320 | 100 |" in text
    assert "| recommended step, data parallel | 180 | 89 | 330 | 97 |" in text


def test_sentences_follow_from_the_rows():
    text = text_of(ONE, WEAK, STRONG, PEER, SLOWER, ALONE)
    assert "make 1.94 times as many tokens a second as one** (3.4B, 8 sequences on each" in text
    assert "with the 8 of one split over them 1.78 times" in text
    assert "take 10.0 ms more than one (330.0 and 320.0, recommended step, data parallel)" in text
    assert "it is 1.20x over DistributedDataParallel, compiled, bf16 gradients; with" in text
    assert "the recommended step is 1.10x over theirs already" in text


def test_strategy_to_use_is_the_sharded_one_unless_it_is_slower():
    text = text_of(ONE, WEAK, STRONG, SPLIT, SHARDED)
    assert "make 2.00 times" in text and "with the 8 of one split over them 2.00 times" in text
    assert "(ZeRO-1):** it takes a GPU from 66.0 to 47.0 GiB at 3.4B and is no slower (330" in text
    assert "--size 3.4B --vocab 10000 --batch 16 --zero1` trains so" in text
    slower = text_of(ONE, WEAK, STRONG, scaled("sharded_optimizer_graph", 400, 16, gib=47))
    assert "make 1.94 times" in slower and "--batch 16` trains so" in slower
    assert "**Sharding AdamW's state and float32 weights (ZeRO-1)** takes" in slower
    assert "no slower" not in slower


def test_share_of_linear_is_of_the_own_step_on_one_rank():
    frame = section(evidence(ONE, WEAK, PEER, ALONE), "scaling").steps.frame
    shares = frame.set_index("implementation")["of_linear"]
    assert shares["ddp_bf16_compiled"] == pytest.approx(352 / 396)
    assert shares["overlapped_graph"] == pytest.approx(320 / 330)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ((ONE, STRONG), "times as many tokens"),
        ((ONE, WEAK, STRONG, PEER), "AdamW's state"),
        ((ONE, WEAK, scaled("sharded_optimizer_graph", 320, 16, gib=70)), "(ZeRO-1):**"),
        ((ONE, WEAK, SPLIT), "Beside the fastest"),
    ],
)
def test_a_sentence_goes_without_its_rows(rows, words):
    assert words not in text_of(*rows)


@pytest.mark.parametrize(
    ("clock", "power", "said"), [(1485, 695, True), (1515, 695, False), (1485, 600, False)]
)
def test_cost_of_ranks_names_communication_and_a_lower_clock(clock, power, said):
    one = ONE | {"clock_mhz": 1515, "power_w": 695}
    weak = WEAK | {"clock_mhz": clock, "power_w": power}
    ledger = profiled("overlapped_graph", 330, 0.75, context_length=1024, batch=16)
    text = text_of(one, weak, ledger)
    assert "data parallel): communication without computation takes 12 (D3)" in text
    assert ("the clock is lower, too: 1,485 instead of 1,515 MHz." in text) is said


def test_first_page_says_whether_its_steps_were_measured_twice():
    again = {"distributed": [WEAK | {"measured_at": "2026-11-28T10:00"}]}
    for repeated, said in (({}, True), (again, False)):
        of = evidence(ONE, WEAK, STRONG, again=repeated)
        text = planted.page("report/several_gpus", of).text
        assert ("none of the table above" in text) is said


def test_hidden_share_comes_from_the_ledger():
    cell = {"context_length": 1024, "batch": 16}
    assert "| 75 |" in text_of(ONE, WEAK, profiled("overlapped_graph", 330, 0.75, **cell))


def test_table_of_strategies_leaves_these_steps_out():
    of = section(evidence(ONE, WEAK, PEER, *OF_COURSE), "distributed")
    assert of.cell["context_length"] == 512
    assert "times as fast as one" in text_of(*OF_COURSE)
    assert "times as fast as one" not in text_of(ONE, WEAK, PEER, *OF_COURSE), "D2 has them"
    assert not set(of.head.frame["implementation"]) & {"one_rank_graph", "ddp_bf16_compiled"}


@pytest.mark.parametrize("rows", [(WEAK, STRONG, *OF_COURSE), (ONE, *OF_COURSE)])
def test_without_steps_of_one_rank_and_several_there_is_no_table(rows):
    assert "of linear" not in text_of(*rows)
