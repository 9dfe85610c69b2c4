"""Tests of the check of custom implementations before measuring, and of its messages."""

import re
import sys
import time

import pytest
from processes_of_toys import is_alive

from lmperf.benchmark import Implementation
from lmperf.benchmarks import load
from lmperf.errors import UserError
from lmperf.own.check import check_names, problem_of

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
    "def f(:": r"it cannot be imported: SyntaxError: .* \(bad_custom\.py:1\)",
    "x = 1\nraise RuntimeError('no\\n\x1b[31m device')": (
        r"cannot be imported: RuntimeError: no \\x1b\[31m device \(bad_custom\.py:2\)"
    ),
    "import sys\nsys.exit(3)": r"cannot be imported: SystemExit: 3 \(bad_custom\.py:2\)",
    "import os\nos._exit(0)": r"importing it ends Python \(exit code 0\)",
    "import os\nos.kill(os.getpid(), 11)": r"importing it ends Python \(SIGSEGV\)",
    "raise RuntimeError('x' * 100_000)": "cannot be imported: RuntimeError: x{100}",
    "attention = 3": "that is not a function",
    "other = 3": "the module bad_custom has no attention",
    "import absent_one.sub": r"No module named 'absent_one'.*; install it, or put it below",
    "import custom_attention.absent": r"No module named 'custom_attention\.absent' \(.*\)$",
}
FORKS = """
import os, time
if os.fork() == 0:
    os.setsid(); os.fork() and os._exit(0)
    open("pid.new", "w").write(str(os.getpid()))
    os.rename("pid.new", "pid")
    time.sleep(999)
while not os.path.exists("pid"):
    time.sleep(0.01)
os._exit(3)
"""

# As `torch.utils.cpp_extension.load` does it.
BUILDS = """
import os, time
if not os.path.exists({path!r}):
    try:
        open({path!r}, "x")
        time.sleep(999)
    finally:
        os.remove({path!r})
while os.path.exists({path!r}):
    time.sleep(0.01)
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package `custom_attention` in the working directory."""
    folder = tmp_path / "custom_attention"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "plain.py").write_text(
        "def attention(q, k, v, causal):\n    return v\n\nWIDTH = 64\n"
    )
    (folder / "loud.py").write_text(LOUD)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("external", "words"),
    [
        (
            {"triton": "custom_attention.plain:attention"},
            "the project has an implementation triton; choose",
        ),
        ({"mine": "no_such_package.attention:attention"}, "there is no module no_such_package"),
        ({"mine": "custom_attention.absent:f"}, r"there is no module custom_attention\.absent"),
    ],
)
def test_taken_name_or_missing_module_is_an_error(package, external, words):
    (package / "custom_attention/__init__.py").write_text("raise RuntimeError('imported')\n")
    with pytest.raises(UserError, match=words):
        check_names(load(STEM, external))
    assert "custom_attention" not in sys.modules


@pytest.mark.parametrize(("text", "words"), AT_IMPORT.items())
def test_import_side_effects_stay_in_child_process(package, capfd, text, words):
    (package / "bad_custom.py").write_text(text)
    check_names(load(STEM, {"mine": "bad_custom:attention"}))
    message = problem_of("bad_custom:attention", "attention", limit_s=30)
    assert re.search(words, message)
    assert message.startswith("bad_custom:attention: ")
    assert len(message) < 800 and message.isprintable()
    assert capfd.readouterr() == ("", "")
    assert "bad_custom" not in sys.modules


@pytest.mark.parametrize("lock", ["own", "of another build"])
def test_slow_import_removes_its_lock_or_names_another(package, monkeypatch, lock):
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(package / "extensions"))
    path = package / "extensions/own_attention/lock"
    path.parent.mkdir(parents=True)
    if lock != "own":
        path.touch()
    (package / "builds.py").write_text(BUILDS.format(path=str(path)))
    problem = problem_of("builds:attention", "attention", limit_s=1.5)
    too_long = "builds:attention: importing it takes longer than 1.5 s"
    if lock == "own":
        assert problem == too_long and not path.exists()
    else:
        assert problem.startswith(f"{too_long}; if nothing compiles now, delete the lock of torch")
        assert problem.endswith(str(path))


def test_import_may_replace_print(package):
    (package / "silent.py").write_text("import builtins\nbuiltins.print = None\nother = 3\n")
    assert "has no attention" in problem_of("silent:attention", "attention")


def test_processes_started_by_import_end_with_the_check(package):
    (package / "forking_custom.py").write_text(FORKS)
    assert problem_of("forking_custom:attention", "attention")
    pid, until = int((package / "pid").read_text()), time.monotonic() + 2
    while is_alive(pid):
        assert time.monotonic() < until
        time.sleep(0.01)


def test_import_that_prints_and_starts_threads_is_accepted(package, capfd):
    began = time.monotonic()
    assert not problem_of("custom_attention.loud:attention", "attention")
    assert time.monotonic() - began < 100  # without waiting for its thread
    assert capfd.readouterr() == ("", "")


def gates(stem, external, axes):
    """Return implementation -> result of its correctness check in the cell of these axes."""
    benchmark = load(stem, external)
    shared = {}
    return {
        case.implementation: benchmark.prepare(case, "cpu", 1, shared).gate(["forward"])
        for case in benchmark.cases("cpu", {**axes, "implementation": ["eager"]})
    }


def test_gate_uses_declared_tolerance_rather_than_name():
    use = "lmperf.lrpe.reference:lrpe_cosine"
    external = {"same": Implementation("same", use, tolerance="rounded_angles"), "silent": use}
    axes = {"batch": [1], "heads": [1], "shape": ["512"], "d_head": [16]}
    found = gates("lrpe", external, axes)
    assert found["same"].passed and not found["silent"].passed
    assert (found["same"].errors, found["same"].bounds) == (
        found["eager"].errors,
        found["eager"].bounds,
    )
