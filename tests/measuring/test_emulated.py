"""Tests of bf16 on a CPU: measured once, and left out where it is emulated."""

import subprocess
from types import SimpleNamespace

import pytest

from lmperf.benchmarks import load
from lmperf.config import Config
from lmperf.evidence.project import Project
from lmperf.measuring import emulated


def left_out(stem):
    """The dtypes, or the implementations, of the cases of a benchmark that are left out."""
    benchmark = load(stem)
    cases = (case for case in benchmark.cases("cpu") if emulated.is_left_out(benchmark, case))
    return {case.axes.get("dtype") or case.implementation for case in cases}


@pytest.mark.parametrize(
    ("stem", "expected"),
    [
        ("end_to_end", {"autocast_bfloat16", "bfloat16"}),
        ("memory", {"autocast_bfloat16"}),
        ("ladder_loss", {"autocast"}),
        ("attention", {"bfloat16"}),
        ("lrpe", set()),
        ("mixed_precision", set()),
        ("flash_attention_check", set()),
    ],
)
def test_matmuls_in_bf16_are_left_out(stem, expected):
    assert left_out(stem) == expected


def test_ceilings_keep_copies_and_the_matmul_that_shows_the_slowdown():
    benchmark = load("ceilings")
    kept = [case.axes for case in benchmark.cases("cpu") if case.axes["dtype"] == "bfloat16"]
    left = [case.axes for case in benchmark.cases("cpu") if emulated.is_left_out(benchmark, case)]
    assert left and all(axes["operation"] == "matmul" for axes in left)
    shown = [axes for axes in kept if axes not in left]
    assert {(axes["operation"], axes["shape"] == emulated.SHAPE) for axes in shown} == {
        ("widen", False),
        ("matmul", True),
    }


def test_rows_of_ceilings_tell_the_slowdown():
    about = {"operation": "matmul", "shape": emulated.SHAPE, "status": "ok"}
    times = {"float32": "2.0", "bfloat16": "7.0"}
    rows = [{**about, "dtype": dtype, "median_ms": ms} for dtype, ms in times.items()]
    assert emulated.slowdown_in(rows) == 3.5
    assert emulated.slowdown_in(rows[:1]) == emulated.slowdown_in([]) == 1.0


@pytest.fixture
def ran(monkeypatch, tmp_path):
    """The commands that measured a slowdown of 3.5; the cache is empty."""
    commands = []

    def run(command, **_):
        commands.append(command)
        return SimpleNamespace(stdout="3.5\n")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    emulated.slowdown_of.cache_clear()
    yield commands
    emulated.slowdown_of.cache_clear()


def test_slowdown_is_measured_once_in_an_environment(ran):
    for environment in ("one", "one", "other"):
        assert emulated.slowdown_of(environment) == 3.5
        emulated.slowdown_of.cache_clear()
    assert len(ran) == 2


def test_bf16_counts_as_fast_where_nothing_can_be_measured(ran, monkeypatch):
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: SimpleNamespace(stdout=""))
    assert emulated.slowdown_of("without torch") == 1.0


@pytest.mark.process
def test_process_measures_the_slowdown_of_this_cpu(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    emulated.slowdown_of.cache_clear()
    found = emulated.slowdown_of("here")
    (cached,) = tmp_path.glob("lmperf/*.json")
    assert float(cached.read_text()) == found > 0
    emulated.slowdown_of.cache_clear()


@pytest.mark.parametrize(("slowdown", "has"), [(3.0, False), (1.5, True)])
def test_project_leaves_emulated_cells_out(monkeypatch, tmp_path, slowdown, has):
    monkeypatch.setattr(emulated, "slowdown_of", lambda _: slowdown)
    config = Config(preset="cpu", machine="here")
    plan = Project(config, tmp_path).plan("attention")
    assert ("bfloat16" in {case.axes["dtype"] for case in plan.cases}) == has
    assert plan.head <= {*plan.cases}


def test_dtype_that_the_configuration_names_is_measured(monkeypatch, tmp_path):
    monkeypatch.setattr(emulated, "slowdown_of", lambda _: 3.0)
    grid = {"attention": {"dtype": ["bfloat16"]}}
    plan = Project(Config(preset="cpu", machine="here", grid=grid), tmp_path).plan("attention")
    assert plan.cases
