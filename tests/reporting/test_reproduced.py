"""Rows measured now, compared with the rows of a machine's evidence."""

import planted
import pytest

from lmperf.benchmarks import load
from lmperf.errors import UserError
from lmperf.reporting.evidence import ASSUMED_FLOORS
from lmperf.reporting.judging import KERNEL
from lmperf.reporting.reproduced import (
    DIFFERS,
    NOT_JUDGED,
    REPRODUCED,
    judgements,
    require_comparable,
)

HERE = {"measured_at": "later"}


def kernel(ms=10.0, **columns):
    return planted.row("attention", ms, implementation="eager", phase="forward", **columns)


def judged(now, then=None, stale=False, **facts):
    then = then or kernel()
    # Rows that tell the noise floor of the evidence: two processes are hardly apart.
    others = [kernel(ms, seq_len=7 + ms) for ms in range(10, 20)]
    evidence = planted.evidence(then, *others, machine="there", again={"attention": others})
    if stale:
        evidence.stale = frozenset([then["key"]])
    here = planted.evidence(now, facts=planted.H200 | facts)
    (one,) = judgements(evidence, here, load("attention"))
    return one


def test_time_within_the_noise_floor_is_reproduced():
    one = judged(kernel(10.04, **HERE))
    assert one.verdict == REPRODUCED and one.words == "reproduced within 0.4 %"
    assert (one.there, one.here) == (pytest.approx(10), pytest.approx(10.04))
    assert one.limit == 0.01 < ASSUMED_FLOORS[KERNEL], "that of the stored evidence"


@pytest.mark.slow
def test_difference_names_what_else_differs():
    slow = {"clock_mhz": 1755, **HERE}
    one = judged(kernel(15.0, **HERE))
    assert one.verdict == DIFFERS
    assert one.words == "differs by 50.0 %: another run, of the same code and software"
    one = judged(kernel(15.0, **slow), kernel(clock_mhz=1980), torch="2.13.0")
    assert one.words.endswith("clock 1,980 to 1,755 MHz")
    assert "code (0123abc to 0123abc)" in judged(kernel(15.0, **HERE), stale=True).words


def test_wide_interval_is_not_judged():
    wide = kernel(20.0, **HERE, rounds_ms="10.0;20.0;40.0;15.0;25.0")
    one = judged(wide, kernel(20.0, rounds_ms="10.0;20.0;40.0;15.0;25.0"))
    assert one.verdict == NOT_JUDGED and "unresolved, the interval reaches" in one.words


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"marks": "loaded"}, "measured beside other load here"),
        ({"rounds_ms": "1.0"}, "timed in a single round"),
        ({"seq_len": 3}, "there has no such row"),
    ],
)
def test_reason_is_given_if_it_cannot_be_judged(changes, why):
    one = judged(kernel(**HERE | changes))
    assert one.verdict == NOT_JUDGED and one.words == f"cannot be judged: {why}"


@pytest.mark.slow
def test_status_is_compared_where_there_is_no_time():
    oom = kernel(None, status="oom", seq_len=99)
    assert judged(oom, oom).words == "reproduced: out of memory again"
    crash = kernel(None, status="crash", reason="it died")
    assert judged(crash).words == "differs: crash here"
    assert judged(kernel(**HERE), crash).words == "cannot be judged: no result there (crash)"


def observed(stem, **values):
    return planted.evidence(planted.row(stem, key="k", **values), machine="there")


@pytest.mark.parametrize(("peak", "verdict"), [(1009, REPRODUCED), (1011, DIFFERS)])
def test_observed_numbers_may_differ_by_one_percent(peak, verdict):
    then, now = (observed("memory", peak_mib=of) for of in (1000, peak))
    (one,) = judgements(then, now, load("memory"))
    assert one.verdict == verdict and one.column == "peak_mib"


@pytest.mark.parametrize(("dtype", "words"), [("float16", "equal"), ("float32", "in 1 of 1")])
def test_observed_texts_must_be_equal(dtype, words):
    then, now = (observed("mixed_precision", observed_dtype=of) for of in ("float16", dtype))
    (one,) = judgements(then, now, load("mixed_precision"))
    assert words in one.words and (one.verdict == REPRODUCED) == (dtype == "float16")


def test_evidence_of_another_kind_of_device_is_refused():
    there = planted.evidence(kernel(), machine="there")
    require_comparable(there, "attention", "cuda")
    with pytest.raises(UserError, match=r"NVIDIA H200 \(cuda\); this machine measures on cpu"):
        require_comparable(there, "attention", "cpu")
    with pytest.raises(UserError, match="has no rows of lrpe"):
        require_comparable(there, "lrpe", "cuda")
