"""The declaration that everything reads: cells, groups, and what a module must hold."""

import doctest
import subprocess
import sys

import pytest

from lmperf import benchmark
from lmperf.benchmark import Gate, load, stems


def test_the_example_of_the_docstring_holds():
    assert doctest.testmod(benchmark).failed == 0


@pytest.mark.parametrize("stem", stems())
def test_a_benchmark_has_cells_in_each_preset_and_names_them_once(stem):
    declared = load(stem)
    for preset in declared.grids:
        cases = declared.cases(preset)
        assert cases
        assert len({case.name for case in cases}) == len(cases)
        assert sorted(c.name for g in declared.groups(cases) for c in g) == sorted(
            case.name for case in cases
        )


def test_no_torch_is_needed_to_know_the_cells():
    code = (
        "import sys; sys.modules['torch'] = None; from lmperf.benchmark import load, stems;"
        "print(sum(len(load(stem).cases('gpu')) for stem in stems()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert int(done.stdout) > 700, done.stderr


def test_what_is_compared_is_in_one_group():
    attention = load("attention")
    groups = attention.groups(attention.cases("gpu"))
    assert len(groups) == 20
    assert {len(group) for group in groups} == {6}  # three dtypes, eager and compiled


def test_overrides_replace_axes_and_own_implementations_join():
    declared = load("flash_attention", {"mine": "my_package:attention"})
    cases = declared.cases("cpu", {"seq_len": [64], "d_head": [16], "dtype": ["float32"]})
    assert [case.implementation for case in cases] == ["eager", "tiled", "sdpa", "mine"]


def test_the_worst_tensor_is_the_one_nearest_to_its_bound():
    gate = Gate({"out": 0.5, "lse": 0.02}, {"out": 1.0, "lse": 0.03})
    assert gate.worst == "lse" and gate.passed
    assert not Gate({"out": float("nan")}, {"out": 1.0}).passed
