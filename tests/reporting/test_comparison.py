"""Results whose true differences are known are compared row by row."""

import json

import numpy as np
import planted
import pytest
from markdown_it import MarkdownIt

from lmperf.reporting.comparison import compare
from lmperf.reporting.comparison_forms import as_json, as_markdown, as_text
from lmperf.reporting.untrusted import plain

CELLS, ROUNDS = 120, 6
# Relative noise of rounds within a run, and of a whole row between runs. Intervals over rounds do
# not cover the noise between runs.
WITHIN, BETWEEN = 0.01, 0.004
STEP = {"phase": "train_step", "bound": "device"}


def rows_of_run(seed, factor=1.0, mhz=1980.0, cells=CELLS, stem="attention", **columns):
    """Rows of one run. The true times are equal in all runs, but multiplied by `factor`."""
    noise = np.random.default_rng(seed)
    made = []
    for cell in range(cells):
        ms = (1 + cell % 7) * factor
        axis = "seq_len" if stem == "attention" else "context_length"
        about = {axis: 128 + cell, "implementation": "eager", "phase": "forward", "key": f"k{cell}"}
        about |= {"clock_mhz": mhz, "measured_at": f"run {seed}"} | times_of(ms, noise)
        made.append(planted.row(stem, ms, **(about | columns)))
    return made


def times_of(ms, noise):
    apart = np.exp(BETWEEN * noise.standard_normal())
    rounds = (ms * apart * np.exp(WITHIN * noise.standard_normal(ROUNDS))).tolist()
    return {"median_ms": float(np.median(rounds)), "rounds_ms": ";".join(map(repr, rounds))}


def result(rows, name="old", again=(), **facts):
    """A result; again: rows that were measured a second time (R1)."""
    more = {"again": {row["stem"]: again for row in again}, "facts": planted.H200 | facts}
    return planted.evidence(*rows, machine=name, **more)


def compared(old, new, **options):
    return compare(result(old), result(new, "new"), **options)


def shares(found):
    return {name: number / len(found.rows) for name, number in found.counts.items()}


def test_runs_of_equal_code_differ_in_at_most_1_percent():
    found = shares(compared(rows_of_run(1), rows_of_run(2)))
    assert found["faster"] + found["slower"] + found["clock"] <= 0.01


@pytest.mark.slow
@pytest.mark.parametrize(("percent", "least"), [(10, 0.95), (3, 0.5)])
def test_planted_slowdown_is_detected(percent, least):
    factor = 1 + percent / 100
    old = result(rows_of_run(1), again=rows_of_run(3))
    found = compare(old, result(rows_of_run(2, factor), again=rows_of_run(4, factor)))
    assert shares(found)["slower"] >= least and shares(found)["faster"] == 0


@pytest.mark.slow
def test_slowdown_explained_by_the_clock_is_no_regression():
    clocked = compared(rows_of_run(1), rows_of_run(2, 1.1, mhz=1800.0))
    assert shares(clocked)["clock"] >= 0.95 and clocked.regressions == 0
    assert set(clocked.rows["cause"]) <= {"clock 1,980 to 1,800 MHz", ""}
    both = compared(rows_of_run(1), rows_of_run(2, 1.2, mhz=1800.0))
    assert shares(both)["slower"] >= 0.95, "the clock explains half of it"
    assert 0.90 < both.rows["cycles"].median() < 0.93


@pytest.mark.parametrize("noisy", [0, 1])
def test_larger_noise_floor_of_both_counts(noisy):
    sides = []
    for side, factor in enumerate((1.0, 1.1)):
        again = rows_of_run(3, factor * (1.3 if side == noisy else 1.0))
        sides.append(result(rows_of_run(side, factor), again=again))
    found = compare(*sides)
    assert found.rows["floor"].min() > 0.25 and found.regressions == 0


@pytest.mark.parametrize("side", [0, 1])
def test_rows_beside_other_load_are_unresolved(side):
    runs = [rows_of_run(1), rows_of_run(2, 1.5)]
    runs[side] = [{**row, "marks": "loaded"} for row in runs[side]]
    found = compared(*runs)
    assert found.counts["unresolved"] == CELLS and found.regressions == 0
    head = f"Regressions beyond 2.0 %: none found, {CELLS} of {CELLS} rows undecided\n"
    assert as_text(found).startswith(head)


@pytest.mark.parametrize(("bound", "verdict"), [("device", "slower"), ("host", "unresolved")])
def test_step_that_waited_for_the_cpu_is_unresolved(bound, verdict):
    step = STEP | {"size": "small", "bound": bound}
    row, slow = (planted.row("end_to_end", ms, **step) for ms in (10, 13))
    assert compared([row], [slow]).rows["verdict"].tolist() == [verdict]


def test_difference_that_is_not_confirmed_is_unresolved():
    found = compared(rows_of_run(1), rows_of_run(2, 1.1))
    again = compared(rows_of_run(3, cells=9), rows_of_run(4, 1.1, cells=9))
    confirmed = found.confirmed_by(again).rows.set_index("name")["verdict"]
    seen = again.rows.loc[again.rows["verdict"] == "slower", "name"]
    assert len(seen) >= 8 and set(confirmed[confirmed == "slower"].index) <= set(seen)
    assert found.confirmed_by(None).regressions == 0


@pytest.mark.parametrize("status", ["crash", "oom", "failed_check"])
def test_broken_row_is_the_worst_regression(status):
    old, new = rows_of_run(1, cells=5), rows_of_run(2, cells=5)
    new[3] |= {"status": status, "reason": "for this reason"}
    found = compared(old, new)
    assert found.rows.iloc[0]["verdict"] == "broken" and found.regressions == 1
    assert "for this reason" in as_text(found)
    assert found.rows.iloc[0]["ms_base"] > 0, "the time that it had"
    assert compared(new, old).counts["mended"] == 1


def test_rows_that_are_not_compared_are_counted():
    old, new = rows_of_run(1, cells=8), rows_of_run(2, cells=10)
    old[0]["status"] = new[0]["status"] = "unsupported"
    new[1] = dict(old[1])
    old[2]["rounds_ms"] = ""
    found = compared(old, new[:3] + new[4:])
    assert found.not_compared == {
        "only in the old": 1,
        "only in the new": 2,
        "ok in neither": 1,
        "without a time": 1,
        "the same measurement in both": 1,
    }
    assert len(found.rows) == 4 and found.shares_rows


def test_results_are_compared_without_a_benchmark():
    old, new = rows_of_run(1, cells=2, stem="end_to_end"), rows_of_run(2, cells=2)
    found = compared(old, new, benchmarks=[])
    assert found.rows.empty and not found.not_compared


@pytest.mark.slow
def test_causes_name_software_code_and_gpu():
    old = rows_of_run(1, cells=20)
    runs = {
        "another run, of the same code and software": {},
        "code (0123abc to 9999999)": {"key": "l", "commit": "9999999f"},
        "another GPU": {"gpus": "GPU-2"},
    }
    for cause, columns in runs.items():
        found = compared(old, rows_of_run(2, 2.0, cells=20, **columns))
        assert set(found.rows["cause"]) == {cause}
    new = planted.evidence(*rows_of_run(2, 2.0, cells=20, environment="e2", key="l"))
    new.facts["environments"]["e2"] = planted.H200 | {"torch": "2.13.0", "triton": "3.7.1"}
    found = compare(result(old), new)
    assert set(found.rows["cause"]) == {"torch 2.11.0 to 2.13.0, Triton 3.6.0 to 3.7.1"}
    assert "torch: 2.11.0, now 2.13.0" in found.notes
    assert any(note.startswith("20 of 20 rows have another key") for note in found.notes)


def test_two_devices_have_no_regressions_and_their_names():
    new = rows_of_run(2, 1.4)
    new[0] |= {"status": "oom", "median_ms": "", "rounds_ms": ""}
    found = compare(result(rows_of_run(1), "a"), result(new, "b", device="NVIDIA H100"))
    assert found.counts["slower"] > 110 and found.regressions == 0
    for text in (as_text(found), as_markdown(found)):
        assert f"Two devices: {found.counts['slower']} rows faster on a, 0 on b" in text
        assert "failing on b" in text and "another key" not in text


def test_json_has_every_row_with_null_for_no_value():
    new = rows_of_run(2, cells=3)
    new[0]["status"] = "crash"
    found = json.loads(as_json(compared(rows_of_run(1, cells=3), new)))
    assert found["regressions"] == found["counts"]["broken"] == 1 and found["at_least"] == 0.02
    broken, *others = found["rows"]
    assert broken["state_new"] == "crash" and broken["ratio"] is None
    for row in others:
        assert row["low"] <= row["ratio"] <= row["high"] and row["cycles"] is None
        assert row["axes"]["dtype"] and row["rounds"] == ROUNDS


def test_markdown_is_short_enough_for_a_comment():
    text = as_markdown(compared(rows_of_run(1, cells=400), rows_of_run(2, 1.1, cells=400)))
    assert text.count("\n| slower") == 50 and "further rows" in text and len(text) < 65_536


def test_untrusted_text_is_inert_in_every_format():
    reason = "<script>|`x` \x1b[31m](javascript:x)"
    old, new = rows_of_run(1, cells=20), rows_of_run(2, cells=20)
    new[0] |= {"status": "crash", "reason": reason, "median_ms": "", "rounds_ms": ""}
    found = compared(old, new)
    seen = "<script>|`x` ␛[31m](javascript:x)"
    assert seen in as_text(found)
    assert [row["reason_new"] for row in json.loads(as_json(found))["rows"]].count(seen) == 1
    text = as_markdown(found)
    blocks = MarkdownIt("commonmark").enable("table").parse(text)
    kinds = {token.type for block in blocks for token in (block, *(block.children or ()))}
    assert kinds.isdisjoint({"html_inline", "html_block", "link_open", "image", "code_inline"})
    assert "\x1b" not in text and seen in plain(text)


@pytest.mark.parametrize(("calls", "ratio"), [(22, 1), (21, 525 / 550)])
def test_matmuls_under_load_are_compared_by_their_calls(calls, ratio):
    about = {"operation": "matmul", "load": "sustained", "clock_mhz": 1980}
    old = planted.row("ceilings", 525.0, calls=21, **about)
    new = planted.row("ceilings", 550.0, calls=calls, measured_at="later", **about)
    (row,) = compared([old], [new]).rows.to_dict("records")
    assert (row["ratio"], row["ms"]) == pytest.approx((ratio, 550 / calls))
