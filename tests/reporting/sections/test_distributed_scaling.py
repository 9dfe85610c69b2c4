"""Findings on the speed-up of several ranks over one, and on larger batches."""

import limits
import pandas as pd
import pytest
from finding_checks import assert_answers_reached
from rank_evidence import as_long_as, evidence, of, slower

from lmperf.names import implementation_words
from lmperf.reporting.findings import state
from lmperf.reporting.sections.distributed import overlap, scaling, sharding


def with_large_batch(others):
    """A function that adds compiled steps of batch 16, `others` times as long, on one rank 4."""

    def change(frame):
        more = frame[frame["implementation"].str.endswith("_compiled")].assign(batch=16)
        more = slower("one_rank", 4 / others)(more)
        for name in more["implementation"].str.removesuffix("_compiled").unique():
            more = slower(name, others)(more)
        return pd.concat([frame, more], ignore_index=True)

    return change


@pytest.mark.slow
def test_scaling_leads_to_every_answer():
    cases = {
        "distributed_scaling": {
            "faster": evidence,
            "no_faster": of("distributed", slower("one_rank", 0.2)),
        },
        "distributed_batch": {
            "higher": of("distributed", with_large_batch(3.0)),
            "alike": of("distributed", with_large_batch(4.0)),
        },
    }
    assert_answers_reached(scaling.FINDINGS, cases)


def test_no_strategy_is_called_the_best_beside_an_unresolved_one():
    def one_is_marked(frame):
        frame = slower("one_rank", 0.2)(frame)
        chosen = frame["implementation"] == "fully_sharded_compiled"
        return frame.assign(marks=chosen.map({True: "loaded", False: None}))

    assert state(scaling.FINDINGS[0], evidence(distributed=one_is_marked)) is None


def on_two_pairs(moved=(), profiled="GPU-a;GPU-b", eager=False, sending=1.0, working=1.0):
    """Evidence of jobs on two pairs of GPUs, in which no steps were timed in turn.

    moved: strategies that were timed on the second pair; profiled: the GPUs of the ledger;
    eager: whether there are eager steps; sending, working: factors of the times of communication
    and computation in the ledger.
    """
    first, second = "2026-11-24T10", "2026-11-24T20"

    def timed(frame):
        frame = frame[frame["implementation"].str.endswith("_compiled") | eager]
        hours = frame["implementation"].isin(moved).map({False: first, True: second})
        together = [f"p{row}" for row in range(len(frame))]
        return frame.assign(together=together, measured_at=hours + ":00:30Z")

    def ledger(frame):
        times = {
            "communication_ms": sending * frame["communication_ms"],
            "compute_ms": working * frame["compute_ms"],
        }
        return frame.assign(measured_at=f"{first}:00:30Z", **times)

    jobs = [
        ("distributed", first, "GPU-a;GPU-b"),
        ("distributed", second, "GPU-c;GPU-d"),
        ("distributed_overlap", first, profiled),
    ]
    columns = ("stem", "started_at", "finished_at", "gpus")
    found = evidence(distributed=timed, distributed_overlap=ledger)
    found.cost = pd.DataFrame(
        [(stem, f"{hour}:00:00Z", f"{hour}:01:00Z", gpus) for stem, hour, gpus in jobs],
        columns=columns,
    )
    return found


def test_shorter_steps_of_other_gpus_are_named_beside_the_scaling():
    (finding,) = (one for one in scaling.FINDINGS if one.name == "distributed_scaling")
    best = "overlapped_compiled"
    same = state(finding, on_two_pairs()).sentence
    assert f"({implementation_words(best)})" in same and "not compared" not in same
    apart = state(finding, on_two_pairs([best])).sentence
    assert f"not compared: {implementation_words(best)}." in apart
    assert f"({implementation_words(best)})" not in apart and limits.faults(apart) == []


def test_other_verdict_of_eager_steps_is_added():
    def change(frame):
        compiled = frame["implementation"].str.endswith("_compiled")
        parts = ((~compiled, 3.0), (compiled, 0.3))
        name = "fully_sharded"
        return pd.concat([slower(name, by)(frame[of].copy()) for of, by in parts]).sort_index()

    (finding,) = (
        one for one in sharding.FINDINGS if one.name == "distributed_fully_sharded_over_ddp"
    )
    said = state(finding, evidence(distributed=change))
    assert said.answer == "faster" and "in compiled steps" in said.sentence
    assert "In eager steps it is 0." in said.sentence and limits.faults(said.sentence) == []


@pytest.mark.parametrize("more", [16, None])
def test_comparison_names_its_batches_if_it_has_several(more):
    def change(frame):
        frame = as_long_as("fully_sharded", "ddp")(frame)
        found = slower("fully_sharded", 0.5)(frame[frame["dtype"] == "autocast_bfloat16"].copy())
        compiled = found["implementation"].str.endswith("_compiled") & (more is not None)
        return pd.concat([found, found[compiled].assign(batch=more)], ignore_index=True)

    (finding,) = (
        one for one in sharding.FINDINGS if one.name == "distributed_fully_sharded_over_ddp"
    )
    said = state(finding, evidence(distributed=change)).sentence
    assert ("compared at batch 4 and 16." in said) is (more is not None)
    assert limits.faults(said) == []


@pytest.mark.parametrize(
    ("changed", "is_known"),
    [
        ({}, True),
        ({"profiled": "GPU-c;GPU-d"}, False),
        ({"eager": True}, False),
        ({"working": 1.2}, False),
    ],
)
def test_scaling_limit_rests_on_decided_steps_of_one_gpu_pair(changed, is_known):
    (finding,) = (one for one in scaling.FINDINGS if one.name == "distributed_scaling")
    said = state(finding, on_two_pairs(**changed)).sentence
    assert ("hiding all communication" in said) == is_known


def test_scaling_limit_is_the_longer_communication():
    (finding,) = (one for one in scaling.FINDINGS if one.name == "distributed_scaling")
    assert "A rank still computes for" in state(finding, on_two_pairs()).sentence
    longer = state(finding, on_two_pairs(sending=100.0)).sentence
    assert "ms of computation" in longer and "A rank still computes" not in longer
    assert limits.faults(longer) == []


@pytest.mark.slow
def test_larger_batch_is_named_with_what_it_hides():
    def ledgers(frame):
        return pd.concat([frame, frame.assign(batch=16, hidden_share=0.97)], ignore_index=True)

    both = evidence(distributed=with_large_batch(3.0), distributed_overlap=ledgers)
    said = state(scaling.FINDINGS[1], both).sentence
    assert said.startswith("At batch 16, ") and limits.faults(said) == []
    assert "97 % of the communication at batch 16. At batch 4 they hide 93 %." in said
    assert "97 %" not in state(overlap.FINDINGS[0], both).sentence, "of the smallest batch"
    assert state(scaling.FINDINGS[1], evidence()) is None, "only one batch was measured"
