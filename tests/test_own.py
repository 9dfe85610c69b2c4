"""The user's own implementations: found before anything is measured, or named in one line."""

import subprocess
import sys

import pytest

from lmperf import cli
from lmperf.benchmark import load
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


def test_another_function_of_the_same_module_makes_rows_stale(package):
    columns = {"implementation": "mine", "phase": "forward"}
    keys = {
        row_key(STEM, columns, [], "environment", {"mine": f"own_attention.plain:{name}"})
        for name in ("attention", "WIDTH")
    }
    assert len(keys) == 2


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
