"""Tests of benchmark declarations: cases, groups, implementations and broken modules."""

import doctest
import subprocess
import sys

import pytest

from lmperf import benchmark, benchmarks
from lmperf.benchmark import Case, Implementation, Unsupported, resolve
from lmperf.benchmarks import load, stems
from lmperf.errors import UserError


def test_example_in_benchmark_docstring_runs():
    assert doctest.testmod(benchmark).failed == 0


@pytest.mark.parametrize("stem", stems())
def test_each_preset_has_cases_without_repetition(stem):
    declared = load(stem)
    for preset in declared.grids:
        cases = declared.cases(preset)
        assert cases
        assert len({case.name for case in cases}) == len(cases)
        assert sorted(c.name for g in declared.groups(cases) for c in g) == sorted(
            case.name for case in cases
        )


@pytest.mark.parametrize("stem", stems())
def test_entry_of_each_implementation_can_be_imported(stem):
    declared = load(stem)
    for one in declared.implementations:
        if one.entry and not one.entry.startswith(
            ("lmperf.attention.triton", "lmperf.lrpe.triton")
        ):
            assert resolve(one.entry) is not None


def test_callable_of_binds_options_to_entry():
    one = Implementation("mine", "builtins:sorted", {"reverse": True})
    assert load("attention", {"mine": one}).callable_of("mine")([1, 2]) == [2, 1]


def test_implementation_that_needs_cuda_is_unsupported_on_a_cpu():
    declared = load("attention", {"mine": Implementation("mine", needs_cuda=True)})
    case = Case((), "mine")
    assert declared.require(case, "cuda").name == "mine"
    with pytest.raises(Unsupported, match="needs a CUDA device"):
        declared.require(case, "cpu")


def test_cases_can_be_listed_without_torch():
    code = (
        "import sys; sys.modules['torch'] = None; from lmperf.benchmarks import load, stems;"
        "print(sum(len(load(stem).cases('gpu')) for stem in stems()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert int(done.stdout) > 700, done.stderr


BROKEN = {
    "def f(:": r"cannot be imported: SyntaxError: .*broken\.py:1\)",
    "\n1 / 0": r"cannot be imported: ZeroDivisionError: division by zero \(.*broken\.py:2\)",
    "import sys\nsys.exit()": r"cannot be imported: SystemExit \(.*broken\.py:2\)",
    "": r"broken\.py: must declare one Benchmark, not 0",
    "from lmperf.benchmark import Timed\nclass A(Timed): pass\nclass B(Timed): pass\n": "not 2",
    "from lmperf.benchmark import Timed\nclass A(Timed):\n    title = 'A'": (
        r"broken\.py: A lacks axes, grids"
    ),
}


@pytest.mark.parametrize(("text", "words"), BROKEN.items())
def test_broken_benchmark_module_is_reported_in_one_line(tmp_path, monkeypatch, text, words):
    (tmp_path / "broken.py").write_text(text)
    monkeypatch.setattr(benchmarks, "__path__", [*benchmarks.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "lmperf.benchmarks.broken", raising=False)
    with pytest.raises(UserError, match=words) as fault:
        load("broken")
    assert str(fault.value).isprintable()


@pytest.mark.parametrize("stem", stems())
def test_full_has_every_cell_of_gpu_and_its_head(stem):
    declared = load(stem)
    gpu, full = declared.cases("gpu"), declared.cases("full")
    assert full[: len(gpu)] == gpu
    assert {*declared.head_cases("gpu")} <= {*declared.head_cases("full")} <= {*full}
