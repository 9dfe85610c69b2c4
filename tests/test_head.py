"""Tests of the head: the cells that are measured first, and alone by the preset `quick`."""

from pathlib import Path

import pytest

from lmperf.benchmarks import load, stems
from lmperf.config.read import load_config
from lmperf.evidence.facts import write_facts
from lmperf.evidence.keys import row_key
from lmperf.evidence.machine import Machine
from lmperf.evidence.project import Project
from lmperf.evidence.recorded_machine import RecordedMachine

GPU = {"kind": "cuda", "device": "NVIDIA H200"}
CONFIG = Path(__file__).parents[1] / "config/config.yaml"
HEADS = [(stem, preset) for stem in stems() for preset in load(stem).head]


# Steps compare by stretches, also with those of another group.
@pytest.mark.parametrize(("stem", "preset"), [of for of in HEADS if of[0] != "end_to_end"])
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
    name = "fp8_tensorwise"
    models = load("end_to_end", load_config(CONFIG).external("end_to_end", peers={name: "1.0"}))
    joined = [case for case in models.cases("gpu") if case.implementation == name]
    assert joined and not {*joined} & {*models.head_cases("gpu")}


def test_grid_of_the_configuration_replaces_values_of_the_head():
    cases = load("attention").head_cases("cpu", {"seq_len": [300]})
    assert {case.axes["seq_len"] for case in cases} == {300}
    assert {case.axes["d_head"] for case in cases} == {64}


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
            key = row_key(one.benchmark, {**row, "phase": phase}, one.machine.environment)
            assert key == other({**row, "phase": phase})


def quick_project(folder, **changed):
    given = {"preset": "quick", "machine": "here", **changed}
    project = Project(load_config(CONFIG, given), folder)
    project.preset = "cpu"
    return project


def test_quick_run_keeps_the_rows_of_a_full_run(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "lmperf.evidence.project.detect", lambda _, name: Machine(name, "cuda", GPU)
    )
    for recorded, preset in (("gpu", "gpu"), ("full", "full")):
        facts = {"machine": "here", "preset": recorded, "environments": {}}
        write_facts(tmp_path / "report/here", facts)
        given = {"preset": "quick", "machine": "here"}
        project = Project(load_config(CONFIG, given), tmp_path)
        assert project.preset == project.known_facts()["preset"] == preset


def test_quick_run_measures_a_strategy_that_was_brought():
    grid = load("distributed").cases("cpu")
    assert not load("distributed").head_cases("cpu")
    brought = load("distributed", {"mine": "a.b:get_ddp"})
    assert {*brought.head_cases("cpu")} == {*brought.cases("cpu")} > {*grid}


def test_quick_run_measures_all_of_a_listed_benchmark_without_a_head(tmp_path):
    for benchmarks, is_measured in (("all", False), (["warmup"], True)):
        plan = quick_project(tmp_path, benchmarks=benchmarks).plan("warmup")
        assert plan.cases and plan.head == frozenset(plan.cases if is_measured else ())


def test_quick_run_lacks_no_rows_that_it_does_not_measure(tmp_path, monkeypatch):
    monkeypatch.setattr(Machine, "emulates_bf16", False)
    project, benchmark = quick_project(tmp_path), load("attention")
    facts = {"machine": "here", "preset": "cpu", "environments": {}}
    plan = project.plan_of(RecordedMachine("here", tmp_path, facts, project.config), "attention")
    assert plan.chosen == benchmark.head_cases("cpu")
    assert [*plan.cases] == benchmark.cases("cpu")
