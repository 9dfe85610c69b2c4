"""The rows that are measured a second time: which they are, when they are due, what is stored."""

from contextlib import contextmanager
from dataclasses import replace

import pytest
from made_up import OK, UNSUPPORTED, pretend, project_of

from lmperf import cli
from lmperf.benchmark import Timed
from lmperf.benchmarks import load, stems
from lmperf.evidence.record import record, repeat
from lmperf.evidence.repeatability import STEM
from lmperf.evidence.review import causes, review
from lmperf.evidence.store import read
from lmperf.peers.table import PEERS, peers_of
from lmperf.transformer.sizes import SWEPT

AUTOCAST = "autocast_bfloat16"

CONFIG = """
preset: cpu
machine: here
benchmarks: [lrpe, end_to_end]
grid:
  lrpe: {batch: [1], shape: ["32", "64"], d_head: [16], dtype: [float32],
    implementation: [copy, eager, compiled]}
  end_to_end: {size: [tiny], context_length: [32], batch: [1], dtype: [float32],
    implementation: [eager, compiled_blocks]}
"""
# Two shapes of three implementations in two phases; the phases of two models.
ROWS = 12 + 8


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with first times of all cells."""
    pretend(monkeypatch, lambda *_: OK)
    project = project_of(tmp_path, CONFIG)
    for plan in project.plans.values():
        record(project, plan)
    return tmp_path


@pytest.mark.parametrize("preset", ["cpu", "gpu"])
@pytest.mark.parametrize("stem", [stem for stem in stems() if load(stem).repeated])
def test_every_part_to_repeat_is_in_the_grid(stem, preset):
    benchmark = with_peers(stem)
    assert isinstance(benchmark, Timed)
    for part in benchmark.repeated[preset]:
        for axis, value in ((axis, value) for axis, values in part.items() for value in values):
            one = with_peers(stem)
            one.repeated = {preset: [{**part, axis: [value]}]}
            assert one.cases_in(one.repeated, preset), (axis, value)


def with_peers(stem):
    """A benchmark where the packages of all peers are installed."""
    return load(stem, peers_of(stem, dict.fromkeys(PEERS, "1.0")))


def repeated(stem):
    benchmark = with_peers(stem)
    return benchmark.cases_in(benchmark.repeated, "gpu")


def test_graphs_of_every_size_are_repeated():
    cases = repeated("end_to_end")
    graphs = {(c.axes["size"], c.axes["dtype"]) for c in cases if c.implementation == "graph"}
    assert graphs == {(size, dtype) for size in SWEPT for dtype in (AUTOCAST, "bfloat16")}
    assert {c.axes["size"] for c in cases if c.implementation == "sdpa_compiled_blocks"} == {
        "0.13B",
        "3.4B",
    }
    kernels = repeated("flash_attention")
    assert {(c.axes["d_head"], c.implementation) for c in kernels} == {
        (width, name)
        for width in (64, 128)
        for name in ("triton", "sdpa_cudnn", "flash_attention_4")
    }


def test_only_fresh_rows_with_a_result_are_repeated(folder, monkeypatch):
    assert len(project_of(folder).repeats.due) == ROWS
    pretend(monkeypatch, lambda case, _: OK if case.implementation == "copy" else UNSUPPORTED)
    plan = project_of(folder).plans["lrpe"]
    record(project_of(folder), replace(plan, forced=True))
    left = [
        case.implementation for by, case, _ in project_of(folder).repeats.due if by.stem == "lrpe"
    ]
    assert left == 4 * ["copy"]


def test_second_times_have_the_keys_of_the_first(folder, monkeypatch):
    measured = pretend(monkeypatch, lambda *_: {**OK, "median_ms": 1.1})
    project = project_of(folder)
    first = {row["key"] for plan in project.plans.values() for row in plan.rows}
    assert project.repeats.is_due and len(project.repeats.due) == ROWS
    repeat(project)
    assert {len(group) for group in measured} == {2, 3}, "cases are timed in turn, as at first"
    rows = read(folder / "report/here/evidence/repeatability.csv")[0]
    assert len(rows) == ROWS and {row["key"] for row in rows} <= first
    assert {row["benchmark"] for row in rows} == {"lrpe", "end_to_end"}
    assert not project_of(folder).repeats.is_due
    measured.clear()
    (folder / "report/here/evidence/repeatability.csv").unlink()
    repeat(project_of(folder))
    assert not measured
    assert len(read(folder / "report/here/evidence/repeatability.csv")[0]) == ROWS


@pytest.mark.parametrize(
    ("visible", "among"),
    [
        (["GPU-1", "GPU-2", "GPU-3"], [(1, ["GPU-2", "GPU-3"]), (2, None)]),
        (
            ["GPU-1", "GPU-2", "GPU-3", "GPU-4"],
            [(1, ["GPU-2", "GPU-3", "GPU-4"]), (2, ["GPU-3", "GPU-4"])],
        ),
        (["GPU-1"], [(1, None), (2, None)]),
    ],
)
def test_other_gpus_measure_a_second_time_if_there_are_enough(
    tmp_path, monkeypatch, visible, among
):
    taken, free = [], []

    @contextmanager
    def locked(kind, number, say, among=None):
        taken.append((number, among))
        yield [], among or free

    pretend(monkeypatch, lambda *_: OK)
    monkeypatch.setattr("lmperf.evidence.record.locked", locked)
    monkeypatch.setattr("lmperf.evidence.record.visible_gpus", lambda: visible)
    for stem, gpus in {"lrpe": ["GPU-1"], "end_to_end": ["GPU-1", "GPU-2"]}.items():
        free[:] = gpus
        record(project_of(tmp_path, CONFIG), project_of(tmp_path).plan(stem))
    taken.clear()
    repeat(project_of(tmp_path))
    assert taken == among
    assert len(read(tmp_path / "report/here/evidence/repeatability.csv")[0]) == ROWS


def test_first_time_that_is_measured_again_is_repeated_again(folder):
    repeat(project_of(folder))
    assert not project_of(folder).repeats.due
    record(project_of(folder), replace(project_of(folder).plans["lrpe"], forced=True))
    repeats = project_of(folder).repeats
    assert {plan.stem for plan, _, _ in repeats.due} == {"lrpe"} and len(repeats.rows) == 8


def test_stale_row_is_repeated_after_its_first_time(folder, monkeypatch):
    repeat(project_of(folder))
    monkeypatch.setattr("lmperf.evidence.keys.METHOD_VERSION", 99)
    repeats = project_of(folder).repeats
    assert repeats.is_due and not repeats.due, "first come first times"
    assert repeats.summary == "8 cases a second time, after all first times"
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
