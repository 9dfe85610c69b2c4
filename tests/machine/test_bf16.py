"""Tests of bf16 on a CPU: measured once, and left out where it is emulated."""

import pytest

from lmperf.benchmarks import load
from lmperf.config.model import Config
from lmperf.evidence.cases import multiplies_bf16
from lmperf.evidence.project import Project
from lmperf.machine import bf16


def left_out(stem):
    """The dtypes, or the implementations, of the cases of a benchmark that are left out."""
    benchmark = load(stem)
    cases = (case for case in benchmark.cases("cpu") if multiplies_bf16(benchmark, case))
    return {case.axes.get("dtype") or case.implementation for case in cases}


@pytest.mark.parametrize(
    ("stem", "expected"),
    [
        ("end_to_end", {"autocast_bfloat16", "bfloat16"}),
        ("ladder_loss", {"autocast"}),
        ("lrpe", set()),
        ("mixed_precision", set()),
        ("flash_attention_check", set()),
    ],
)
def test_matmuls_in_bf16_are_left_out(stem, expected):
    assert left_out(stem) == expected


def test_rows_of_ceilings_tell_the_slowdown():
    about = {"operation": "matmul", "shape": bf16.SHAPE, "status": "ok"}
    times = {"float32": "2.0", "bfloat16": "7.0"}
    rows = [{**about, "dtype": dtype, "median_ms": ms} for dtype, ms in times.items()]
    assert bf16.slowdown_in(rows) == 3.5
    assert bf16.slowdown_in(rows[:1]) == bf16.slowdown_in([]) == 1.0


@pytest.mark.slow
def test_slowdown_of_this_cpu_is_measured(monkeypatch, capsys):
    def probed(_, code):
        exec(code)
        return float(capsys.readouterr().out)

    monkeypatch.setattr(bf16, "probed", probed)
    assert bf16.slowdown_of.__wrapped__("here") > 0


@pytest.mark.parametrize(("slowdown", "has"), [(3.0, False), (1.5, True)])
def test_project_leaves_emulated_cells_out(monkeypatch, tmp_path, slowdown, has):
    monkeypatch.setattr(bf16, "slowdown_of", lambda _: slowdown)
    config = Config(preset="cpu", machine="here")
    plan = Project(config, tmp_path).plan("attention")
    assert ("bfloat16" in {case.axes["dtype"] for case in plan.cases}) == has
    assert plan.head <= {*plan.cases}


def test_dtype_that_the_configuration_names_is_measured(monkeypatch, tmp_path):
    monkeypatch.setattr(bf16, "slowdown_of", lambda _: 3.0)
    grid = {"attention": {"dtype": ["bfloat16"]}}
    plan = Project(Config(preset="cpu", machine="here", grid=grid), tmp_path).plan("attention")
    assert plan.cases
