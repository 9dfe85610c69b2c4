"""The rows that are measured a second time: which are drawn, when they are due, what is stored."""

from contextlib import contextmanager
from dataclasses import replace

import pytest
from made_up import OK, pretend, project_of

from lmperf import cli
from lmperf.evidence.record import record, repeat
from lmperf.evidence.repeatability import ROWS, STEM
from lmperf.evidence.review import causes, review
from lmperf.evidence.store import read

CONFIG = """
preset: cpu
machine: here
benchmarks: [attention, end_to_end]
grid:
  attention: {batch: [1], d_head: [16], seq_len: [32, 48, 64, 96], dtype: [float32],
    implementation: [eager, compiled]}
  end_to_end: {size: [tiny], context_length: [32, 64], batch: [1], dtype: [float32],
    implementation: [eager]}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with first times of all cells."""
    pretend(monkeypatch, lambda *_: OK)
    project = project_of(tmp_path, CONFIG)
    for plan in project.plans.values():
        record(project, plan)
    return tmp_path


def test_draw_has_as_many_rows_of_each_kind(folder):
    drawn = project_of(folder).repeats.drawn
    assert len(drawn) == ROWS == 12
    assert [plan.benchmark.clock for plan, _, _ in drawn].count("kernel") == 6
    assert not any(case.implementation == "compiled" for _, case, _ in drawn)


def test_kinds_of_steps_are_those_that_host_and_device_bound(folder, monkeypatch):
    def row(case, phase):
        bound = "host" if case.axes.get("context_length") == 32 else "device"
        return {**OK, "bound": bound, "gpus": "GPU-1"}

    pretend(monkeypatch, row)
    config = CONFIG.replace("32, 64]", "32, 64, 128]")
    project = project_of(folder, config, retry_failed=True)
    plan = project.plans["end_to_end"]
    record(project, replace(plan, forced=True))
    drawn = project_of(folder).repeats.drawn
    found = [row.get("bound") if plan.stem == "end_to_end" else "" for plan, _, row in drawn]
    assert {kind: found.count(kind) for kind in found} == {"": 4, "host": 4, "device": 4}


def test_second_times_have_the_keys_of_the_first(folder, monkeypatch):
    measured = pretend(monkeypatch, lambda *_: {**OK, "median_ms": 1.1})
    project = project_of(folder)
    first = {row["key"] for plan in project.plans.values() for row in plan.rows}
    assert project.repeats.is_due and len(project.repeats.due) == ROWS
    repeat(project)
    assert measured and {len(group) for group in measured} == {1}
    rows = read(folder / "report/here/evidence/repeatability.csv")[0]
    assert len(rows) == ROWS and {row["key"] for row in rows} <= first
    assert {row["benchmark"] for row in rows} == {"attention", "end_to_end"}
    assert not project_of(folder).repeats.is_due
    measured.clear()
    (folder / "report/here/evidence/repeatability.csv").unlink()
    repeat(project_of(folder))
    assert not measured
    assert len(read(folder / "report/here/evidence/repeatability.csv")[0]) == ROWS


def test_second_times_are_of_the_gpu_of_the_first_if_it_is_there(tmp_path, monkeypatch):
    taken, free = [], []

    @contextmanager
    def locked(kind, number, say, among=None):
        taken.append((number, among))
        yield [], among or free

    pretend(monkeypatch, lambda *_: OK)
    monkeypatch.setattr("lmperf.evidence.record.locked", locked)
    monkeypatch.setattr("lmperf.evidence.record.visible_gpus", lambda: ["GPU-3", "GPU-1"])
    for stem, gpus in {"attention": ["GPU-3", "GPU-1"], "end_to_end": ["GPU-2"]}.items():
        free[:] = gpus
        record(project_of(tmp_path, CONFIG), project_of(tmp_path).plan(stem))
    taken.clear()
    free[:] = ["GPU-3"]
    repeat(project_of(tmp_path))
    assert taken == [(2, ["GPU-3", "GPU-1"]), (1, None)]
    rows = read(tmp_path / "report/here/evidence/repeatability.csv")[0]
    assert {(row["benchmark"], row["gpus"]) for row in rows} == {
        ("attention", "GPU-3;GPU-1"),
        ("end_to_end", "GPU-3"),
    }


def test_drawn_rows_stay_drawn_when_cells_are_added(folder, monkeypatch):
    repeat(project_of(folder))
    before = {row["key"] for row in project_of(folder).repeats.rows}
    project = project_of(folder, CONFIG.replace("[32, 48, 64, 96]", "[32, 48, 64, 96, 128, 160]"))
    record(project, project.plan("attention"))
    repeats = project_of(folder).repeats
    assert {row["key"] for row in repeats.rows} == before and not repeats.due


def test_stale_row_is_replaced_in_the_draw(folder, monkeypatch):
    repeat(project_of(folder))
    monkeypatch.setattr("lmperf.evidence.keys.METHOD_VERSION", 99)
    repeats = project_of(folder).repeats
    assert repeats.is_due and not repeats.drawn, "first come first times"
    for plan in project_of(folder).plans.values():
        record(project_of(folder), plan)
    assert len(project_of(folder).repeats.due) == ROWS


def test_review_has_second_times_and_full_runs_ask_for_them(folder):
    project = project_of(folder)
    found = causes(project, review(project, "here"))
    assert not project.repeats_rows and STEM not in {one.stem for one in found}
    full = project_of(folder, benchmarks="all", grid={})
    assert full.repeats_rows
    repeat(project)
    found = review(project_of(folder), "here")
    assert sum(map(len, found.repeats.values())) == ROWS and not found.damaged
    path = folder / "report/here/evidence/repeatability.csv"
    path.write_text(path.read_text().replace(",ok,", ",oom,", 1))
    assert "1 is damaged" in review(project_of(folder), "here").damaged[STEM].replace("line 2", "1")


def test_command_measures_second_times(folder, monkeypatch):
    (folder / "config").mkdir()
    (folder / "config/config.yaml").write_text(CONFIG)
    monkeypatch.chdir(folder)
    assert cli.main(["measure", "repeatability"]) == 0
    assert len(read(folder / "report/here/evidence/repeatability.csv")[0]) == ROWS
