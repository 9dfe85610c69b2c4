"""Tables D7 and D14: predicted steps beside measured ones, and when training is bound."""

import functools

import limits
import pandas as pd
import pytest
from finding_checks import assert_answers_reached
from synthetic import gpu_evidence, provenance, with_frames
from synthetic.builder import Builder
from synthetic.collectives import collectives
from synthetic.data_parallel import ledger, steps

from lmperf.distributed import cost
from lmperf.reporting import coverage
from lmperf.reporting.findings import state
from lmperf.reporting.sections import compose
from lmperf.reporting.sections.distributed import bound, model


@functools.cache
def evidence(alone=True, with_ledger=False, slower=1.0):
    """Evidence of 8 GPUs; `slower`: factor on the measured steps of several ranks."""
    frame = provenance(steps(Builder(5), "large", 4, 2, alone), "e1")
    several = frame["ranks"] > 1
    for name in ("median_ms", "sustained_ms"):
        frame.loc[several, name] *= slower
    frames = {
        "collectives": provenance(collectives(Builder(3), "gpu"), "e1"),
        "distributed": frame,
    }
    if with_ledger:
        frames["distributed_overlap"] = provenance(ledger("large", 4, 2), "e1")
    return with_frames(gpu_evidence(), **frames)


def predicted(made, name="train_step.predicted"):
    """Implementation in words -> predicted number, from the first table of D7."""
    columns = {column.name: column for column in model.steps(made)[0].columns}
    names = (cell.words for cell in columns["implementation"].cells)
    return dict(zip(names, (cell.value for cell in columns[name].cells), strict=True))


def test_d7_predicts_what_all_reduces_gradients_and_nothing_else():
    found = predicted(evidence())
    assert len(found) == 9 and "FSDP2" not in found and None not in found.values()
    alone = 96.94 * 1.05
    bytes_ms = 4 * 969.4e6 / 330e9 * 1e3
    assert found["one by one"] == pytest.approx(alone + bytes_ms + 327 * 0.02, rel=0.03)
    assert alone < found["buckets of 100 MB"] < found["one flat tensor"] < found["one by one"]
    hidden = predicted(evidence(), "hidden.predicted")
    assert (
        hidden["one flat tensor"] == pytest.approx(0, abs=1e-9) and hidden["buckets of 10 MB"] > 80
    )
    assert predicted(evidence(), "calls")["one flat tensor"] == 1


def test_d7_uses_the_ledger_without_a_step_of_one_rank():
    assert model.steps(evidence(alone=False)) == []
    found = predicted(evidence(alone=False, with_ledger=True))
    measured = predicted(evidence())
    assert found["one by one"] == pytest.approx(measured["one by one"], rel=0.02)
    assert found["overlapped by hooks, compiled"] is None


@pytest.mark.parametrize(("gpus", "is_said"), [("GPU-a;GPU-b", False), ("GPU-c;GPU-d", True)])
def test_d7_says_if_several_sets_of_gpus_gave_its_times(gpus, is_said):
    window = {"started_at": "2026-01-02T03:00:00Z", "finished_at": "2026-01-02T03:30:00Z"}
    jobs = {"distributed": "GPU-a;GPU-b", "collectives": gpus}
    made = with_frames(evidence())
    made.cost = pd.DataFrame([{"stem": stem, **window, "gpus": of} for stem, of in jobs.items()])
    assert ("Several sets of GPUs" in model.steps(made)[0].notes) == is_said


def test_marked_rows_fill_tables_but_no_finding():
    frame = evidence().frames["collectives"].assign(marks="loaded")
    made = with_frames(evidence(), collectives=frame)
    assert predicted(made) == predicted(evidence()) and len(bound.limits(made)) == 2
    assert all(state(finding, made) is None for finding in (*model.FINDINGS, *bound.FINDINGS))


def test_best_bucket_is_named_beside_the_fastest_measured():
    *_, buckets = model.steps(evidence())
    row = buckets.frame.iloc[0]
    low, high = (float(end.replace(",", "")) for end in row["as good (MB)"].split(" to "))
    assert low <= float(row["best bucket (MB)"].replace(",", "")) <= high
    assert row["fastest measured"] == "buckets of 100 MB"


def test_best_bucket_is_advised_unless_measurements_contradict():
    def said(**factors):
        frame = evidence().frames["distributed"].copy()
        for name, factor in factors.items():
            chosen = frame["implementation"] == name
            frame.loc[chosen, ["median_ms", "sustained_ms"]] *= factor
        made = with_frames(evidence(), distributed=frame)
        return state(model.FINDINGS[0], made).sentence

    assert "MB should be best for large." in said()
    other = said(bucket_1000=0.9)
    assert "should be best" not in other and limits.faults(other) == []
    assert other.endswith("the best bucket for large; measured fastest: buckets of 1000 MB.")
    marked = evidence().frames["distributed"]
    is_one = marked["implementation"].str.startswith("bucket_")
    marked = marked.assign(marks=is_one.map({True: "host", False: ""}))
    alone = state(model.FINDINGS[0], with_frames(evidence(), distributed=marked)).sentence
    assert alone.endswith("none was measured without a mark.")


def test_fastest_bucket_is_one_without_a_mark():
    frame = evidence().frames["distributed"]

    def buckets(marked):
        made = frame.assign(marks=marked.map({True: "host", False: ""}))
        *_, table = model.steps(with_frames(evidence(), distributed=made))
        return table.frame

    one = buckets(frame["implementation"] == "bucket_100").iloc[0]
    assert one["fastest measured"] == "buckets of 10 MB"
    every = frame["implementation"].str.startswith("bucket_")
    assert "fastest measured" not in buckets(every) and "best bucket (MB)" in buckets(every)


def test_range_of_best_buckets_has_no_exponent(monkeypatch):
    monkeypatch.setattr(cost, "AS_GOOD", 0.9)
    *_, table = model.steps(evidence())
    assert table.frame.iloc[0]["as good (MB)"] == "1.00 to 4,100"


def test_d7_is_empty_without_collectives():
    made = with_frames(gpu_evidence(), distributed=evidence().frames["distributed"])
    assert model.steps(made) == [] and bound.limits(made) == []
    assert all(state(finding, made) is None for finding in (*model.FINDINGS, *bound.FINDINGS))


def test_d14_follows_from_measured_rates():
    _, autocast = bound.limits(evidence())
    assert len(autocast.columns) <= 7 and autocast.length == 5
    rows = autocast.frame.set_index("parallelism")
    data = float(rows.loc["data", "C/W (FLOP/B)"].replace(",", ""))
    least = float(rows.loc["data", "least B/N, N = 8"].replace(",", ""))
    assert least == pytest.approx(2 * 7 / 8 * data, rel=0.01)
    assert "TFLOP/s, sustained matmul" in autocast.notes
    assert rows.loc["tensor", "least B/N, N = 8"] in ("any", "none")
    many = rows["most N, B = 1,000,000"].str.replace(",", "").astype(int)
    shared, own = (f"sharded x tensor, {links}" for links in ("shared links", "links of their own"))
    assert many[own] == pytest.approx(4 * many[shared], rel=0.05) and many["data"] > 100


def test_d14_is_bound_later_where_links_are_faster():
    frame = evidence().frames["collectives"]
    fast = with_frames(evidence(), collectives=frame.assign(median_ms=frame["median_ms"] / 4))
    slow, quick = (state(bound.FINDINGS[0], made).values for made in (evidence(), fast))
    assert quick["least"][0] == pytest.approx(slow["least"][0] / 4, rel=0.01)
    assert quick["tensor"] > slow["tensor"]


def test_findings_give_every_declared_answer():
    cases = {
        "distributed_model": {"good": evidence, "poor": lambda: evidence(slower=1.5)},
        "distributed_bound": {"is": evidence},
    }
    assert_answers_reached((*model.FINDINGS, *bound.FINDINGS), cases)


def test_section_shows_all_four_tables_and_counts_them():
    section = compose("distributed", evidence(), drawn=False)
    assert all(section.parts[name] for name in ("D1", "D7", "D14", "D15"))
    found = {s.table.id: s for s in coverage.states(evidence(), [section])}
    assert found["D1"].measured == found["D1"].owed and found["D14"].measured == 2
    assert found["D7"].measured == found["D7"].owed == 9
    assert not any(found[name].gap for name in ("D1", "D7", "D14", "D15"))
