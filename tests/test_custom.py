"""The user's own implementations: found before anything is measured, or named in one line."""

import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest

from lmperf.benchmark import Own, load
from lmperf.custom import broken_ones, check_names
from lmperf.errors import UserError
from lmperf.evidence.plan import row_key

pytestmark = pytest.mark.process

STEM = "flash_attention"
LOUD = """
import os, sys, threading, time
print("words" * 100_000)
os.write(1, b"[1]\\n")
os.write(2, b"[1]\\n")
threading.Thread(target=time.sleep, args=[120]).start()
def attention(q, k, v, causal):
    return v
"""
AT_IMPORT = {
    "def f(:": r"it cannot be imported: SyntaxError: .* \(bad_own\.py:1\)",
    "x = 1\nraise RuntimeError('no\\n\x1b[31m device')": (
        r"cannot be imported: RuntimeError: no \\x1b\[31m device \(bad_own\.py:2\)"
    ),
    "import json\njson.loads('')": r"JSONDecodeError: .* \(bad_own\.py:2\)",
    "raise SystemExit": r"cannot be imported: SystemExit \(bad_own\.py:1\)",
    "import sys\nsys.exit(3)": r"cannot be imported: SystemExit: 3 \(bad_own\.py:2\)",
    "import os\nos._exit(0)": r"importing it ends Python \(exit code 0\)",
    "import os\nos.kill(os.getpid(), 11)": r"importing it ends Python \(SIGSEGV\)",
    "raise KeyboardInterrupt": "cannot be imported: KeyboardInterrupt",
    "class E(Exception):\n    __str__ = 1\nraise E": "cannot be imported: E",
    "raise RuntimeError('x' * 100_000)": "cannot be imported: RuntimeError: x{100}",
    "def __getattr__(name):\n    raise OSError(name)": "cannot be read: OSError: attention",
    "attention = 3": "that is no function",
}
FORKS = """
import os, time
if os.fork() == 0:
    {leave}
    open("pid.new", "w").write(str(os.getpid()))
    os.rename("pid.new", "pid")
    time.sleep(999)
while not os.path.exists("pid"):
    time.sleep(0.01)
"""


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
    (folder / "loud.py").write_text(LOUD)
    (tmp_path / "a_namespace").mkdir()
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
    assert re.search(words, broken_ones(own)["mine"])


def test_one_that_is_there_passes(package):
    own = load(STEM, {"mine": "own_attention.plain:attention"})
    check_names(own)
    assert not broken_ones(own)


@pytest.mark.parametrize(("text", "words"), AT_IMPORT.items())
def test_whatever_an_import_does_is_one_line_and_done_elsewhere(package, capfd, text, words):
    (package / "bad_own.py").write_text(text)
    fine = "own_attention.plain:attention"
    own = load(STEM, {"fine": fine, "mine": "bad_own:attention", "after": fine})
    check_names(own)
    ((name, message),) = broken_ones(own).items()
    assert name == "mine" and re.search(words, message)
    assert message.startswith("bad_own:attention: ")
    assert len(message) < 400 and message.isprintable()
    assert capfd.readouterr() == ("", "")
    assert "bad_own" not in sys.modules


@pytest.mark.parametrize("leave", ["", "os.setsid()"])
def test_what_an_import_starts_keeps_nobody_waiting(package, leave):
    (package / "forks_own.py").write_text(FORKS.format(leave=leave))
    broken = broken_ones(load(STEM, {"mine": "forks_own:attention"}))
    assert "the module forks_own has no attention" in broken["mine"]
    pid = int((package / "pid").read_text())
    if leave:  # a daemon of the user's own
        os.kill(pid, signal.SIGKILL)
    assert ends(pid)


def test_an_import_has_a_limit(package, monkeypatch):
    monkeypatch.setattr("lmperf.custom._LIMIT_S", 1.5)
    (package / "waits_own.py").write_text("import time\ntime.sleep(999)\n")
    broken = broken_ones(load(STEM, {"mine": "waits_own:attention"}))
    assert "importing it takes longer than 1.5 s" in broken["mine"]


def test_what_takes_all_the_time_is_named_and_not_the_one_behind_it(package, monkeypatch):
    monkeypatch.setattr("lmperf.custom._LIMIT_S", 2.0)
    text = "import time\ntime.sleep({})\ndef attention(q, k, v, causal):\n    return v\n"
    for name, seconds in ("first", 1.3), ("second", 1.3), ("last", 99):
        (package / f"{name}_own.py").write_text(text.format(seconds))
    own = {name: f"{name}_own:attention" for name in ("first", "second", "last")}
    broken = broken_ones(load(STEM, own))
    assert list(broken) == ["last"] and "takes longer than 2 s" in broken["last"]


def ends(pid):
    """Whether a process that was killed is gone; the system may take its time."""
    for _ in range(3000):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False


def test_what_prints_and_starts_threads_when_imported_passes_at_once(package, monkeypatch, capfd):
    monkeypatch.setattr("lmperf.custom._LIMIT_S", 600.0)
    own = {f"mine_{n}": "own_attention.loud:attention" for n in range(20)}
    began = time.monotonic()
    assert not broken_ones(load(STEM, own))
    assert time.monotonic() - began < 100  # and not until its thread ends
    assert capfd.readouterr() == ("", "")


def test_a_folder_without_code_has_no_function(package):
    own = load(STEM, {"mine": "a_namespace:attention"})
    check_names(own)
    assert "the module a_namespace has no attention" in broken_ones(own)["mine"]


def test_a_name_is_checked_without_importing_the_packages_around_it(package):
    (package / "own_attention/__init__.py").write_text("raise RuntimeError('imported')\n")
    sys.modules.pop("own_attention", None)
    check_names(load(STEM, {"mine": "own_attention.plain:attention"}))
    with pytest.raises(UserError, match=r"there is no module own_attention\.absent"):
        check_names(load(STEM, {"mine": "own_attention.absent:attention"}))
    assert "own_attention" not in sys.modules


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


CLASSES = """
import torch

class Kernel(torch.autograd.Function):
    pass

class Model(torch.nn.Module):
    pass

class Other:
    pass
"""


@pytest.mark.parametrize(
    ("stem", "name", "words"),
    [
        ("flash_attention", "Kernel", None),
        ("flash_attention", "Model", "that is a class; it must be a function of .q, k, v, causal"),
        ("end_to_end", "Model", None),
        ("end_to_end", "Other", "that is a class; it must be a model class, a function that takes"),
        ("lrpe", "Kernel", "that is a class; it must be a function of .x, theta, shape"),
    ],
)
def test_a_class_is_taken_where_it_is_of_the_kind(package, stem, name, words):
    (package / "own_attention/classes.py").write_text(CLASSES)
    own = load(stem, {"mine": f"own_attention.classes:{name}"})
    broken = broken_ones(own)
    assert not broken if words is None else re.search(words, broken["mine"])
