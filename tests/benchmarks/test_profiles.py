"""Cells and phases of the benchmark of profiles, and one profiled step on a CPU."""

import pytest
import torch

from lmperf.benchmark import Case, Unsupported
from lmperf.benchmarks import load
from lmperf.transformer import sizes
from lmperf.transformer.rungs import RUNGS
from lmperf.transformer.sizes import ModelSize


def test_every_rung_is_profiled_at_the_context_of_the_ladder():
    benchmark = load("profiles")
    cases = [case for case in benchmark.cases("gpu") if case.axes["context_length"] == 1024]
    assert {case.axes["size"] for case in cases} == {"0.97B"}
    ways = {(case.axes["dtype"], case.implementation): case for case in cases}
    for rung in RUNGS:
        assert "train_step" in benchmark.phases_of(ways[rung.dtype, rung.implementation])
    assert benchmark.phases_of(ways["autocast_bfloat16", "graph"]) == ("train_step",)
    assert benchmark.phases_of(ways["float32", "eager"]) == benchmark.phases


def test_custom_model_is_not_profiled_with_bf16_weights():
    benchmark = load("profiles", {"mine": "examples.student_model:Model"})
    dtypes = {c.axes["dtype"] for c in benchmark.cases("gpu") if c.implementation == "mine"}
    assert dtypes == {"float32", "tf32", "autocast_bfloat16"}


RANGED = """
import torch
from examples.student_model import LanguageModel
from torch.profiler import record_function

class Ranged(LanguageModel):
    def forward(self, tokens):
        with record_function("attention: softmax"):
            torch.softmax(torch.ones(64, 64), -1)
        return super().forward(tokens)
"""


@pytest.mark.slow
def test_ranges_that_a_user_names_are_parts_of_his_attention(monkeypatch, tmp_path):
    monkeypatch.setitem(sizes.SIZES, "tiny", ModelSize(64, 128, 2, 4))
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "ranged_model.py").write_text(RANGED)
    axes = {"size": "tiny", "context_length": 16, "batch": 2, "dtype": "float32"}
    case = Case(tuple(axes.items()), "mine")
    rows = load("profiles", {"mine": "ranged_model:Ranged"}).observe(case, "forward", "cpu", 1)
    parts = {row["name"]: row["total_ms"] for row in rows if row["table"] == "attention"}
    assert parts["softmax"] > 0 == parts["scores"]


@pytest.mark.slow
def test_step_on_a_cpu_has_operators_and_its_time(monkeypatch):
    monkeypatch.setitem(sizes.SIZES, "tiny", ModelSize(64, 128, 2, 4))
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    monkeypatch.setattr("lmperf.compiler.require_compiler", lambda device: None)
    axes = {"size": "tiny", "context_length": 16, "batch": 2}
    axes |= {"dtype": "autocast_bfloat16"}
    case = Case(tuple(axes.items()), "fused_loss")
    rows = load("profiles").observe(case, "train_step", "cpu", 1)
    assert "aten::mm" in {row["name"] for row in rows}
    assert {row["table"] for row in rows} == {"kernel"}
    assert all(row["wall_ms"] > 0 and row["instances"] > 0 for row in rows)
    with pytest.raises(Unsupported, match="fused_loss has a train step only"):
        load("profiles").observe(case, "forward", "cpu", 1)


def test_profiled_passes_are_timed_in_the_same_cells():
    """Their page shows both times."""
    timed, profiles = load("end_to_end"), load("profiles")
    phases = {case: timed.phases_of(case) for case in timed.cases("full")}
    cases = [case for case in profiles.cases("full") if case.axes["context_length"] == 512]
    lacking = [case.axes for case in cases if phases.get(case) != profiles.phases_of(case)]
    # A step of 3.4B in float32 takes seconds.
    assert [(axes["size"], axes["dtype"]) for axes in lacking] == [("3.4B", "float32")]
