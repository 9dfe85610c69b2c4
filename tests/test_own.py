"""The user's own implementations: found before anything is measured, or named in one line."""

import subprocess
import sys

import pytest

from lmperf import cli
from lmperf.benchmark import Own, load
from lmperf.errors import UserError
from lmperf.evidence.plan import row_key
from lmperf.own import check_functions, check_names

STEM = "flash_attention"


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package in the directory at hand, which is not on Python's path."""
    folder = tmp_path / "own_attention"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "plain.py").write_text(
        "def attention(q, k, v, causal):\n    return v\n\nWIDTH = 64\n"
    )
    (folder / "broken.py").write_text("import a_module_that_is_not_there\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ({"eager": "own_attention.plain:attention"}, "eager is one of the project's own"),
        ({"triton": "own_attention.plain:attention"}, "triton is one of the project's own"),
        ({"mine": "no_such_package.attention:attention"}, "there is no module no_such_package"),
        ({"mine": "own_attention.absent:attention"}, "there is no module own_attention.absent"),
    ],
)
def test_a_name_that_is_taken_or_a_module_that_is_not_there(package, own, words):
    with pytest.raises(UserError, match=words):
        check_names(load(STEM, own))


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("own_attention.plain:other", "the module own_attention.plain has no other"),
        ("own_attention.plain:WIDTH", "that is no function"),
        ("own_attention.broken:attention", "cannot be imported: .*a_module_that_is_not_there"),
    ],
)
def test_a_function_that_is_not_there(package, reference, words):
    own = load(STEM, {"mine": reference})
    check_names(own)
    with pytest.raises(UserError, match=words):
        check_functions(own)


def test_one_that_is_there_passes(package):
    own = load(STEM, {"mine": "own_attention.plain:attention"})
    check_names(own)
    check_functions(own)


def test_another_function_or_other_numerics_make_rows_stale(package):
    columns = {"implementation": "mine", "phase": "forward"}
    declared = [
        Own("own_attention.plain:attention"),
        Own("own_attention.plain:WIDTH"),
        Own("own_attention.plain:attention", "rounded_scores"),
    ]
    keys = {row_key(STEM, columns, [], "environment", {"mine": own}) for own in declared}
    assert len(keys) == 3


def gates(stem, own, axes):
    """The gate of each implementation of a cell, by name."""
    benchmark = load(stem, own)
    shared = {}
    return {
        case.implementation: benchmark.prepare(case, "cpu", 1, shared).gate(["forward"])
        for case in benchmark.cases("cpu", {**axes, "implementation": ["eager"]})
    }


def test_the_gate_goes_by_the_numerics_that_are_declared_and_not_by_the_name():
    use = "lmperf.lrpe.reference:lrpe_cosine"
    own = {"same": Own(use, "rounded_angles"), "silent": use}
    axes = {"batch": [1], "heads": [1], "shape": ["512"], "d_head": [16]}
    found = gates("lrpe", own, axes)
    assert found["same"].passed and not found["silent"].passed
    assert (found["same"].errors, found["same"].bounds) == (
        found["eager"].errors,
        found["eager"].bounds,
    )


def test_rounded_scores_are_declared_too():
    use = "lmperf.attention.reference:attention"
    own = {"same": Own(use, "rounded_scores"), "silent": use}
    axes = {"batch": [1], "seq_len": [64], "d_head": [16], "dtype": ["bfloat16"]}
    found = gates("attention", own, axes)
    assert found["silent"].bounds["out"] < found["same"].bounds["out"]
    assert found["same"].bounds == found["eager"].bounds


def test_the_checkout_is_on_the_path_however_lmperf_is_started(package, monkeypatch):
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", str(package))])
    cli.main(["schema"])
    assert sys.path[0] == str(package)


def test_keys_that_are_no_mapping_are_refused_in_words(tmp_path):
    command = [sys.executable, "-m", "lmperf.cli", "--set", "[1]", "plan"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert "must be an object of keys and values" in done.stderr
    assert "Traceback" not in done.stderr
