"""Tests of what `lmperf try` selects: where it checks, where it times, and beside what."""

import pytest
from made_up import project_of

from lmperf.benchmarks import load, stems
from lmperf.errors import UserError
from lmperf.evidence.tried import tried
from lmperf.evidence.wanted import Wanted

CONFIG = "preset: {preset}\nmachine: here\nimplementations: {{{stem}: {{mine: 'json:loads'}}}}\n"


@pytest.fixture
def selected(tmp_path, monkeypatch):
    """A function that returns what is tried of `mine` in a benchmark, on a device."""
    monkeypatch.setattr("lmperf.evidence.machine.Machine.devices", 2)

    def select(stem, preset, only=(), quick=False, **wanted):
        project = project_of(tmp_path, CONFIG.format(preset=preset, stem=stem))
        wanted = Wanted(only, **wanted)
        return tried(project, project.plan(stem), "mine", wanted, (), quick)

    return select


def cells(of, *axes):
    return {tuple(case.axes[axis] for axis in axes) for case in of.plan.cases}


def names(of):
    return {case.implementation for case in of.plan.cases}


ATTENTION = ("batch", "heads", "seq_len", "d_head", "dtype")
MODEL = ("size", "context_length", "batch", "dtype")


@pytest.mark.parametrize(
    ("stem", "preset", "axes", "timed", "checked", "beside"),
    [
        (
            *("flash_attention", "gpu", ATTENTION),
            {(4, 16, 4096, 128, "bfloat16"), (16, 32, 1024, 64, "bfloat16")},
            (1, 1, 128, 64, "bfloat16"),
            {"sdpa_cudnn", "sdpa_flash", "triton"},
        ),
        (
            *("flash_attention", "cpu", ATTENTION, {(1, 1, 512, 64, "float32")}),
            *((1, 1, 128, 64, "float32"), {"sdpa"}),
        ),
        ("lrpe", "gpu", ("shape", "extra_tokens"), {("32768", 0)}, None, {"compiled", "triton"}),
        ("lrpe", "cpu", ("shape",), {("1024",)}, None, {"eager"}),
        (
            *("end_to_end", "gpu", MODEL, {("0.13B", 1024, 4, "autocast_bfloat16")}),
            *(("tiny", 128, 4, "autocast_bfloat16"), {"sdpa_graph"}),
        ),
        (
            *("end_to_end", "cpu", MODEL, {("tiny", 256, 4, "float32")}),
            *(("tiny", 128, 4, "float32"), {"sdpa"}),
        ),
        (
            *("distributed", "gpu", MODEL, {("0.97B", 1024, 32, "autocast_bfloat16")}),
            *(("0.13B", 128, 4, "autocast_bfloat16"), set()),
        ),
    ],
)
def test_first_page_cells_are_timed_beside_the_best_peers(
    selected, stem, preset, axes, timed, checked, beside
):
    of = selected(stem, preset)
    assert cells(of, *axes) == timed and names(of) == beside | {"mine"}
    assert of.check.implementation == "mine"
    if checked:
        assert tuple(of.check.axes[axis] for axis in axes) == checked


def test_given_values_replace_those_of_the_cells(selected):
    of = selected("flash_attention", "gpu", [("seq_len", "256"), ("seq_len", "512")])
    assert cells(of, "seq_len", "d_head") == {(256, 128), (512, 128), (256, 64), (512, 64)}
    assert of.check.axes["seq_len"] == 256, "the smallest cell that was asked for"
    of = selected("flash_attention", "gpu", [("d_head", "64")], implementations=["flex"])
    assert cells(of, "seq_len", "d_head") == {(4096, 64), (1024, 64)}
    assert names(of) == {"flex", "mine"}


def test_quick_times_the_smallest_cell_alone(selected):
    of = selected("flash_attention", "gpu", quick=True)
    assert {case.cell for case in of.plan.cases} == {of.check.cell}
    assert of.seconds < selected("flash_attention", "gpu").seconds


def test_models_are_timed_in_the_train_step_unless_phases_are_given(selected):
    assert selected("end_to_end", "gpu").plan.benchmark.phases == ("train_step",)
    of = selected("end_to_end", "gpu", phases=["forward"])
    assert of.plan.benchmark.phases == ("forward",)


def test_unknown_axis_is_refused(selected):
    with pytest.raises(UserError, match="no axis length"):
        selected("lrpe", "cpu", [("length", "8")])


def test_phases_of_trials_exist():
    for benchmark in map(load, stems()):
        for trial in benchmark.trials.values():
            assert {*trial.phases} <= {*benchmark.phases}
