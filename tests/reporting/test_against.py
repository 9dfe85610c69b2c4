"""Rows measured now, compared with the rows of a machine's evidence (`lmperf run --against`)."""

import copy

import pandas as pd
import pytest
import synthetic

from lmperf.benchmarks import load, stems
from lmperf.errors import UserError
from lmperf.evidence.keys import row_key
from lmperf.reporting.against import (
    DIFFERS,
    NOT_JUDGED,
    REPRODUCED,
    RESULTS,
    cell_of,
    judgements,
    require_comparable,
    table,
)
from lmperf.reporting.formats import FORMATS

KERNEL, STEP = "attention", "end_to_end"
ATTENTION = load(KERNEL)


def scaled(rounds, by):
    return ";".join(repr(float(ms) * by) for ms in rounds.split(";"))


def row_of(evidence, stem=KERNEL, by=1.0, **columns):
    """Evidence with one timed row of a benchmark, its times multiplied by a factor."""
    frame = evidence.frames[stem]
    row = frame[(frame["status"] == "ok") & (frame["implementation"] == "eager")].tail(1)
    changed = row.assign(
        rounds_ms=row["rounds_ms"].map(lambda rounds: scaled(rounds, by)),
        median_ms=row["median_ms"] * by,
        **columns,
    )
    return synthetic.with_frames(evidence, **{stem: changed.reset_index(drop=True)})


def with_facts(evidence, **facts):
    made = copy.copy(evidence)
    known = made.facts["environments"]["e1"]
    made.facts = {**made.facts, "environments": {"e1": {**known, **facts}}}
    return made


def with_todays_keys(evidence, stem=KERNEL):
    """The evidence with the keys that today's code would give to its rows."""
    benchmark, frame = load(stem), evidence.frames[stem]
    keys = [
        row_key(benchmark, {**row, **cell_of(benchmark, row)}, row["environment"])
        for row in frame.to_dict("records")
    ]
    return synthetic.with_frames(evidence, **{stem: frame.assign(key=keys)})


def judged(then, now, stem=KERNEL):
    (one,) = judgements(then, now, load(stem))
    return one


def test_time_within_the_noise_floor_is_reproduced(cpu):
    one = judged(cpu, row_of(cpu, by=1.004))
    assert one.verdict == REPRODUCED and one.words == "reproduced within 0.4 %"
    assert one.limit >= 0.01
    assert one.here == pytest.approx(1.004 * one.there)


def test_difference_names_what_else_differs(cpu):
    then = with_todays_keys(cpu)
    one = judged(then, row_of(then, by=1.5))
    assert one.words == "differs by 50.0 %: with the same code, software and clock"
    now = with_facts(row_of(then, by=1.5, clock_mhz=1755.0), torch="2.13.0")
    one = judged(
        synthetic.with_frames(then, attention=then.frames[KERNEL].assign(clock_mhz=1980.0)), now
    )
    assert one.words == (
        "differs by 50.0 %: other torch (2.11.0, here 2.13.0), other clock (1,980 MHz, here 1,755)"
    )
    assert "other code" in judged(cpu, row_of(cpu, by=1.5)).words
    assert one.verdict == DIFFERS


def test_wide_interval_is_unresolved(cpu):
    then = row_of(cpu)
    rounds = "10.0;20.0;40.0;15.0;25.0"
    then.frames[KERNEL] = then.frames[KERNEL].assign(rounds_ms=rounds, again_ms=None)
    one = judged(then, then)
    assert one.verdict == NOT_JUDGED and "unresolved, the interval reaches" in one.words


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"marks": "drift"}, "marked: drifted here"),
        ({"marks": "capped"}, "marked: capped here"),
        ({"rounds_ms": "1.0"}, "timed in a single round"),
        ({"seq_len": 3}, "cpu-example has no such row"),
    ],
)
def test_reason_is_given_if_it_cannot_be_judged(cpu, changes, why):
    now = row_of(cpu)
    now.frames[KERNEL] = now.frames[KERNEL].assign(**changes)
    one = judged(cpu, now)
    assert one.verdict == NOT_JUDGED and one.words == f"cannot be judged: {why}"


def test_host_bound_and_capped_steps_are_judged(gpu):
    now = row_of(gpu, STEP, marks="host_bound;capped")
    one, *_ = judgements(gpu, now, load(STEP))
    assert one.verdict == REPRODUCED


def test_sustained_time_of_a_step_is_compared_too(gpu):
    frame = gpu.frames[STEP]
    frame = frame[frame["sustained_ms"].notna()].tail(1).reset_index(drop=True)
    now = synthetic.with_frames(gpu, **{STEP: frame})
    burst, sustained = judgements(gpu, now, load(STEP))
    assert (burst.what, sustained.what) == ("time", "sustained")
    assert {burst.verdict, sustained.verdict} == {REPRODUCED}


def test_other_device_of_one_kind_is_not_judged(gpu):
    now = with_facts(row_of(gpu, by=1.3), device="NVIDIA H100")
    one = judged(gpu, now)
    assert one.words == "cannot be judged: other device (NVIDIA H200, here NVIDIA H100)"
    assert one.here == pytest.approx(1.3 * one.there)


def test_status_is_compared_where_there_is_no_time(gpu):
    frame = gpu.frames[KERNEL]
    oom = frame[frame["status"] == "oom"].head(1).reset_index(drop=True)
    ran_out = synthetic.with_frames(gpu, attention=oom)
    assert judged(gpu, ran_out).verdict == REPRODUCED
    now = row_of(gpu)
    now.frames[KERNEL] = now.frames[KERNEL].assign(status="crash", reason="it died")
    assert judged(gpu, now).words == "differs: crash here"
    assert judged(now, row_of(gpu)).words == "cannot be judged: no result there (crash)"


def test_observed_values_are_compared(cpu):
    peak = cpu.frames["memory"].head(1)
    one = judged(cpu, synthetic.with_frames(cpu, memory=peak), "memory")
    assert one.verdict == REPRODUCED and one.what == "peak_mib"
    now = synthetic.with_frames(cpu, memory=peak.assign(peak_mib=2 * peak["peak_mib"]))
    assert judged(cpu, now, "memory").words.startswith("differs by 100.0 %: ")
    dtypes = cpu.frames["mixed_precision"]
    dtypes = dtypes[dtypes["observed_dtype"].notna()]
    changed = dtypes.assign(observed_dtype="float64")
    for frame, verdict in ((dtypes, REPRODUCED), (changed, DIFFERS)):
        now = synthetic.with_frames(cpu, mixed_precision=frame)
        found = judgements(cpu, now, load("mixed_precision"))
        assert {one.verdict for one in found} == {verdict}


@pytest.mark.parametrize(
    "stem", [stem for stem in stems() if load(stem).cases("cpu") and load(stem).least_devices == 1]
)
def test_every_benchmark_is_reproduced_by_itself(cpu, stem):
    found = judgements(cpu, cpu, load(stem))
    assert REPRODUCED in {one.verdict for one in found}
    assert DIFFERS not in {one.verdict for one in found}


def test_results_of_observations_are_declared_columns():
    for stem, columns in RESULTS.items():
        assert {*columns} <= load(stem).kinds.keys(), stem


def test_evidence_of_another_kind_of_device_is_refused(gpu, cpu):
    require_comparable(cpu, KERNEL, "cpu")
    with pytest.raises(UserError, match=r"NVIDIA H200 \(cuda\); this machine measures on cpu"):
        require_comparable(gpu, KERNEL, "cpu")
    bare = synthetic.with_frames(cpu, attention=pd.DataFrame())
    with pytest.raises(UserError, match="has no rows of attention"):
        require_comparable(bare, KERNEL, "cpu")


def test_table_names_a_single_row_in_its_caption(cpu):
    now = row_of(cpu)
    text = FORMATS["text"](table(judgements(cpu, now, ATTENTION), "cpu-example"))
    assert text.startswith("Against cpu-example: batch=4, seq_len=512")
    assert "reproduced within" in text
