"""Tests of the head: the cells that are measured first, and alone by the preset `quick`."""

from dataclasses import replace
from pathlib import Path

import pytest

from lmperf.benchmarks import in_order, load, stems
from lmperf.config import load_config
from lmperf.evidence.keys import row_key
from lmperf.evidence.plan import Plan, evidence_of
from lmperf.evidence.project import Project
from lmperf.measuring.forecast import expected_s
from lmperf.transformer.rungs import RUNGS

CONFIG = Path(__file__).parents[1] / "config/config.yaml"
HEADS = [(stem, preset) for stem in stems() for preset in load(stem).head]


def plan(directory, **options):
    """A plan of four lengths, of which the second is the head."""
    benchmark = load("attention")
    grid = {"batch": [2], "d_head": [64], "dtype": ["float32"], "seq_len": [256, 512, 1024]}
    files = (evidence_of(benchmark, directory, folder) for folder in ("store", "evidence"))
    cases = tuple(benchmark.cases("cpu", {name: grid[name] for name in ("batch", "dtype")}))
    head = frozenset(benchmark.head_cases("cpu", {"batch": [2], "dtype": ["float32"]}))
    return replace(Plan(benchmark, cases, *files, "environment", "cpu", head=head), **options)


def measured(plan, case):
    about = {"status": "unsupported", "reason": "not here", "seed": 1, "commit": "0123abc"}
    about |= {"environment": "e" * 16, "measured_at": "2026-01-02T03:04:05+00:00"}
    for phase in plan.benchmark.phases:
        row = {**case.axes, "implementation": case.implementation, "phase": phase}
        yield {**row, **about, "key": plan.key(row)}


@pytest.mark.parametrize(("stem", "preset"), HEADS)
def test_head_has_whole_groups_of_the_full_grid(stem, preset):
    benchmark = load(stem)
    groups = benchmark.groups(benchmark.cases(preset))
    head = benchmark.groups(benchmark.head_cases(preset))
    assert head and all(group in groups for group in head)


@pytest.mark.parametrize(("stem", "preset"), HEADS)
def test_every_part_of_the_head_has_a_cell(stem, preset):
    benchmark = load(stem)
    axes = {"implementation", *(axis.name for axis in benchmark.axes)}
    for part in benchmark.head[preset]:
        assert part.keys() <= axes
        for axis, values in part.items():
            for value in values:
                one = load(stem)
                one.head = {preset: [{**part, axis: [value]}]}
                assert one.head_cases(preset), (axis, value)


def test_peers_leave_the_head_of_models_alone():
    for stem in ("end_to_end", "memory"):
        found = load(stem, load_config(CONFIG).external(stem, peers={"gpt2_hf": "1.0"}))
        joined = [case for case in found.cases("gpu") if case.implementation == "gpt2_hf"]
        assert joined and not {*joined} & {*found.head_cases("gpu")}


def test_head_of_end_to_end_has_the_ladders_ends_alone():
    benchmark = load("end_to_end")
    found = benchmark.groups(benchmark.head_cases("gpu"))
    assert [group[0].axes["size"] for group in found] == ["0.13B", "0.97B", "3.4B"]
    ends = [("tf32", "eager"), ("autocast_bfloat16", "fused_blocks"), ("bfloat16", "graph")]
    assert {(rung.dtype, rung.implementation) for rung in RUNGS} >= {*ends}
    for group in found:
        assert [(case.axes["dtype"], case.implementation) for case in group] == ends


def test_ladder_has_every_rung_of_each_size():
    cells = {}
    for case in load("end_to_end").cases("gpu"):
        if (case.axes["context_length"], case.axes["batch"]) == (1024, 4):
            cells.setdefault(case.axes["size"], set()).add(
                (case.axes["dtype"], case.implementation)
            )
    rungs = {(rung.dtype, rung.implementation) for rung in RUNGS}
    assert len(cells) == 5 and all(rungs <= found for found in cells.values())


def test_cpu_has_one_step_of_the_small_model():
    benchmark = load("end_to_end")
    small = [case for case in benchmark.head_cases("cpu") if case.axes["size"] == "0.13B"]
    assert [case.axes["dtype"] for case in small] == ["float32", "autocast_bfloat16"]
    assert {benchmark.phases_of(case) for case in small} == {("train_step",)}


@pytest.mark.parametrize(("kind", "preset", "minutes"), [("cpu", "cpu", 4), ("cuda", "gpu", 12)])
def test_head_takes_minutes_by_the_recorded_seconds(kind, preset, minutes):
    """The record is of whole groups, some of which were larger: an upper bound.

    It is of machines with one device, without the benchmarks of several.
    """
    seconds = 0.0
    for stem in stems():
        benchmark = load(stem)
        if benchmark.least_devices > 1:
            continue
        groups = benchmark.groups(benchmark.head_cases(preset))
        named = [(stem, benchmark.group_name(group[0].cell), len(group)) for group in groups]
        seconds += sum(expected_s(kind, named)) if named else 0.0
    assert seconds < 60 * minutes


def test_grid_of_the_configuration_replaces_values_of_the_head():
    cases = load("attention").head_cases("cpu", {"seq_len": [300]})
    assert {case.axes["seq_len"] for case in cases} == {300}
    assert {case.axes["d_head"] for case in cases} == {64}


def test_benchmarks_are_in_the_order_of_the_write_up():
    found = in_order(stems())
    own = [stem for stem in found if load(stem).section is None]
    assert own == sorted(own, key=lambda stem: load(stem).order)
    assert found[:4] == ["end_to_end", "ladder_loss", "leaderboard", "warmup"]
    assert found[-1] == "ceilings"
    for stem in found:
        if check := load(stem).check:
            assert found.index(check) == found.index(stem) - 1


def test_full_run_measures_the_head_first(tmp_path):
    first, *others = plan(tmp_path).pending
    assert {case.axes["seq_len"] for case in first} == {512}
    assert [group[0].axes["seq_len"] for group in others] == [256, 256, 512, 1024, 1024]


def test_quick_run_measures_the_head_alone(tmp_path):
    quick = plan(tmp_path, quick=True)
    assert len(quick.pending) == 1 and quick.summary == "2 of 2 cases to measure (2 missing)"


def test_full_run_does_not_measure_the_head_again(tmp_path):
    quick = plan(tmp_path, quick=True)
    quick.store.replace([row for case in quick.head for row in measured(quick, case)])
    assert not plan(tmp_path, quick=True).pending
    due = {case for group in plan(tmp_path).pending for case in group}
    assert due and not due & quick.head


def test_quick_run_keeps_other_rows_in_the_evidence(tmp_path):
    full = plan(tmp_path)
    full.store.replace([row for case in full.cases for row in measured(full, case)])
    quick = plan(tmp_path, quick=True)
    assert not quick.pending and len(quick.rows) == len(quick.benchmark.phases) * len(full.cases)
    assert full.forced == frozenset() and replace(quick, forced=frozenset(full.cases)).pending == [
        [case for case in full.cases if case in full.head]
    ]


@pytest.mark.slow
def test_preset_quick_has_keys_of_the_full_preset(tmp_path):
    full, quick = (
        Project(load_config(CONFIG, {"preset": preset, "machine": "here"}), tmp_path)
        for preset in ("auto", "quick")
    )
    assert quick.preset == full.preset and not quick.repeats_rows
    assert quick.plans and quick.plans.keys() < full.plans.keys()
    for stem, one in quick.plans.items():
        assert set(one.chosen) <= set(full.plans[stem].cases)
        case, other = one.chosen[0], full.plans[stem].key
        row = {**case.axes, "implementation": case.implementation}
        for phase in one.benchmark.phases_of(case):
            key = row_key(one.benchmark, {**row, "phase": phase}, one.environment)
            assert key == other({**row, "phase": phase})
