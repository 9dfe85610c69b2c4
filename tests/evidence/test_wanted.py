"""Tests of selecting cells and phases by --only, --implementations and --phases."""

from types import SimpleNamespace

import pytest

from lmperf.benchmarks import load
from lmperf.commands.compare import compare
from lmperf.errors import UserError
from lmperf.evidence.plan import Plan
from lmperf.evidence.wanted import Wanted, beyond_the_grid, select


def grid(stem, preset="cpu"):
    benchmark = load(stem)
    return Plan(benchmark, tuple(benchmark.cases(preset)), None, None)


def only(*texts):
    options = [part for text in texts for part in ("--only", text)]
    return compare.make_context("compare", options).params["only"]


def values(chosen, axis):
    return {case.axes[axis] for case in chosen.cases}


def test_case_matches_any_of_the_values_given_for_an_axis():
    wanted = Wanted(only=only("seq_len=128,512,causal=true", "seq_len=2048", "dtype=bfloat16"))
    (chosen,) = select([grid("flash_attention")], wanted)
    assert values(chosen, "seq_len") == {128, 512, 2048}
    assert values(chosen, "dtype") == {"bfloat16"} and values(chosen, "d_head") == {64}


def test_alias_selects_the_canonical_value():
    for name in ("small", "0.13B"):
        (chosen,) = select([grid("memory", "gpu")], Wanted(only=only(f"size={name}")))
        assert values(chosen, "size") == {"0.13B"}


def test_select_keeps_wanted_implementations_and_phases():
    wanted = Wanted(implementations=["eager", "sdpa"], phases=["backward"])
    (chosen,) = select([grid("flash_attention")], wanted)
    assert {case.implementation for case in chosen.cases} == {"eager", "sdpa"}
    assert chosen.benchmark.phases == ("backward",)
    assert load("flash_attention").phases == ("forward", "backward", "forward_backward")


def test_select_drops_benchmark_without_wanted_cells():
    found = [grid("flash_attention"), grid("attention")]
    assert len(select(found, Wanted(only=only("seq_len=512")))) == 2
    (chosen,) = select(found, Wanted(only=only("heads=1")))
    assert chosen.benchmark.stem == "flash_attention"
    with pytest.raises(UserError, match="no cell of the grid"):
        select(found, Wanted(only=only("heads=1,seq_len=1024")))


def beyond(stem, preset="gpu", **named):
    """The cases that `lmperf run` measures for values of axes, given as texts."""
    pairs = [(axis, text) for axis, texts in named.items() for text in texts.split(",")]
    wanted = Wanted(pairs)
    project = SimpleNamespace(
        machine=SimpleNamespace(devices=2),
        config=SimpleNamespace(grid_of=lambda stem: {}),
        preset=preset,
    )
    offered = beyond_the_grid(project, grid(stem, preset), wanted)
    (chosen,) = select([offered], wanted)
    return [case.name for case in chosen.cases]


def test_cell_outside_the_grid_is_selected():
    cell = {"batch": "3", "seq_len": "100", "d_head": "64", "dtype": "float32", "causal": "false"}
    assert beyond("attention", **cell, implementation="eager") == [
        "batch=3, seq_len=100, d_head=64, dtype=float32, causal=False: eager"
    ]


def test_values_of_different_cells_of_the_grid_make_a_new_cell():
    cell = {"batch": "1", "heads": "1", "d_head": "80", "dtype": "bfloat16", "cuda_graph": "true"}
    found = beyond("flash_attention", seq_len="128", **cell, causal="true", implementation="tiled")
    assert len(found) == 1 and "seq_len=128, d_head=80" in found[0]


def test_values_in_the_grid_select_no_cell_outside_it():
    grid = {case.name for case in load("flash_attention").cases("gpu")}
    found = beyond("flash_attention", seq_len="512,4096", dtype="bfloat16,float32")
    assert found and {*found} <= grid


def test_case_that_cannot_be_measured_is_refused():
    with pytest.raises(UserError, match="no cell can have all the values"):
        beyond("end_to_end", dtype="bfloat16", implementation="eager")
