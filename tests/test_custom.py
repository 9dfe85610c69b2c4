"""Tests of the check of custom implementations before measuring, and of its messages."""

import re
import sys
import time
from pathlib import Path

import pytest

from lmperf.benchmark import Implementation, WrongResult
from lmperf.benchmarks import load
from lmperf.custom import broken_ones, check_names
from lmperf.errors import UserError
from lmperf.evidence.keys import code_of

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
    "import json\njson.loads('')": r"JSONDecodeError: .* \(bad_custom\.py:2\)",
    "raise SystemExit": r"cannot be imported: SystemExit \(bad_custom\.py:1\)",
    "import sys\nsys.exit(3)": r"cannot be imported: SystemExit: 3 \(bad_custom\.py:2\)",
    "import os\nos._exit(0)": r"importing it ends Python \(exit code 0\)",
    "import os\nos.kill(os.getpid(), 11)": r"importing it ends Python \(SIGSEGV\)",
    "raise KeyboardInterrupt": "cannot be imported: KeyboardInterrupt",
    "class E(Exception):\n    __str__ = 1\nraise E": "cannot be imported: E",
    "raise RuntimeError('x' * 100_000)": "cannot be imported: RuntimeError: x{100}",
    "def __getattr__(name):\n    raise OSError(name)": "cannot be read: OSError: attention",
    "attention = 3": "that is not a function",
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
    """A package `custom_attention` in the working directory."""
    folder = tmp_path / "custom_attention"
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
    ("external", "words"),
    [
        (
            {"eager": "custom_attention.plain:attention"},
            "the project has an implementation eager",
        ),
        (
            {"triton": "custom_attention.plain:attention"},
            "the project has an implementation triton; choose",
        ),
        ({"mine": "no_such_package.attention:attention"}, "there is no module no_such_package"),
        (
            {"mine": "custom_attention.absent:attention"},
            "there is no module custom_attention.absent",
        ),
    ],
)
def test_taken_name_or_missing_module_is_an_error(package, external, words):
    with pytest.raises(UserError, match=words):
        check_names(load(STEM, external))


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("custom_attention.plain:other", "the module custom_attention.plain has no other"),
        ("custom_attention.plain:WIDTH", "that is not a function"),
        ("custom_attention.broken:attention", "cannot be imported: .*a_module_that_is_not_there"),
    ],
)
def test_missing_or_broken_function_is_reported(package, reference, words):
    benchmark = load(STEM, {"mine": reference})
    check_names(benchmark)
    assert re.search(words, broken_ones(benchmark)["mine"])


@pytest.mark.parametrize(
    ("imports", "words"),
    [
        ("import absent_one.sub\nfrom absent_two import a\nimport os", "absent_one absent_two"),
        (
            "try:\n    import absent_one\nexcept ImportError:\n    pass\nimport absent_two",
            "absent_two",
        ),
        ("import json\nfrom custom_attention import helper_of", "absent_three"),
    ],
)
def test_missing_dependencies_are_named_with_the_command(package, imports, words):
    (package / "custom_attention/helper_of.py").write_text("import absent_three\n")
    (package / "needy_custom.py").write_text(f"{imports}\n")
    broken = broken_ones(load(STEM, {"mine": "needy_custom:attention"}))
    assert broken["mine"].endswith(f"; pip install {words}"), broken["mine"]


def test_missing_module_of_an_own_package_is_no_dependency(package):
    (package / "own_custom.py").write_text("import custom_attention.absent\n")
    broken = broken_ones(load(STEM, {"mine": "own_custom:attention"}))
    assert "No module named 'custom_attention.absent'" in broken["mine"]
    assert "pip install" not in broken["mine"]


def test_existing_function_is_accepted(package):
    benchmark = load(STEM, {"mine": "custom_attention.plain:attention"})
    check_names(benchmark)
    assert not broken_ones(benchmark)


@pytest.mark.parametrize(("text", "words"), AT_IMPORT.items())
def test_import_side_effects_stay_in_child_process(package, capfd, text, words):
    (package / "bad_custom.py").write_text(text)
    fine = "custom_attention.plain:attention"
    benchmark = load(STEM, {"fine": fine, "mine": "bad_custom:attention", "after": fine})
    check_names(benchmark)
    ((name, message),) = broken_ones(benchmark).items()
    assert name == "mine" and re.search(words, message)
    assert message.startswith("bad_custom:attention: ")
    assert len(message) < 400 and message.isprintable()
    assert capfd.readouterr() == ("", "")
    assert "bad_custom" not in sys.modules


@pytest.mark.parametrize("leave", ["", "os.setsid()", "os.setsid(); os.fork() and os._exit(0)"])
@pytest.mark.parametrize("then", ["", "os._exit(3)", "time.sleep(999)"])
def test_processes_started_by_import_end_with_the_check(package, monkeypatch, leave, then):
    if "sleep" in then:
        monkeypatch.setattr("lmperf.custom._LIMIT_S", 1.5)
    (package / "forking_custom.py").write_text(FORKS.format(leave=leave) + then)
    assert list(broken_ones(load(STEM, {"mine": "forking_custom:attention"}))) == ["mine"]
    assert ends(int((package / "pid").read_text()), seconds=2)


def test_import_that_hangs_is_reported_as_time_out(package, monkeypatch):
    monkeypatch.setattr("lmperf.custom._LIMIT_S", 1.5)
    (package / "waiting_custom.py").write_text("import time\ntime.sleep(999)\n")
    broken = broken_ones(load(STEM, {"mine": "waiting_custom:attention"}))
    assert "importing it takes longer than 1.5 s" in broken["mine"]


def test_time_out_names_the_import_that_hangs(package, monkeypatch):
    monkeypatch.setattr("lmperf.custom._LIMIT_S", 2.0)
    text = "import time\ntime.sleep({})\ndef attention(q, k, v, causal):\n    return v\n"
    for name, seconds in ("first", 1.3), ("second", 1.3), ("last", 99):
        (package / f"{name}_custom.py").write_text(text.format(seconds))
    external = {name: f"{name}_custom:attention" for name in ("first", "second", "last")}
    broken = broken_ones(load(STEM, external))
    assert list(broken) == ["last"] and "takes longer than 2 s" in broken["last"]


def ends(pid, seconds=30):
    """Whether a process disappears within so many seconds."""
    for _ in range(100 * seconds):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False


def test_import_that_prints_and_starts_threads_is_accepted(package, monkeypatch, capfd):
    monkeypatch.setattr("lmperf.custom._LIMIT_S", 600.0)
    external = {f"mine_{n}": "custom_attention.loud:attention" for n in range(20)}
    began = time.monotonic()
    assert not broken_ones(load(STEM, external))
    assert time.monotonic() - began < 100  # without waiting for its thread
    assert capfd.readouterr() == ("", "")


def test_entry_in_a_namespace_package_is_reported(package):
    benchmark = load(STEM, {"mine": "a_namespace:attention"})
    check_names(benchmark)
    assert "the module a_namespace has no attention" in broken_ones(benchmark)["mine"]


def test_check_names_imports_no_packages(package):
    (package / "custom_attention/__init__.py").write_text("raise RuntimeError('imported')\n")
    sys.modules.pop("custom_attention", None)
    check_names(load(STEM, {"mine": "custom_attention.plain:attention"}))
    with pytest.raises(UserError, match=r"there is no module custom_attention\.absent"):
        check_names(load(STEM, {"mine": "custom_attention.absent:attention"}))
    assert "custom_attention" not in sys.modules


def test_changed_entry_or_tolerance_changes_key(package):
    declared = [
        Implementation("mine", "custom_attention.plain:attention"),
        Implementation("mine", "custom_attention.plain:WIDTH"),
        Implementation("mine", "custom_attention.plain:attention", tolerance="rounded_scores"),
    ]
    plain, *others = [code_of(load(STEM, {"mine": one}), "mine") for one in declared]
    assert plain not in others and others[0] != others[1]


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


def test_undeclared_rounded_scores_fail_the_gate():
    use = "lmperf.attention.reference:attention"
    external = {"same": Implementation("same", use, tolerance="rounded_scores"), "silent": use}
    axes = {"batch": [1], "seq_len": [64], "d_head": [16], "dtype": ["bfloat16"]}
    with pytest.raises(WrongResult, match="if the scores are large"):
        gates("attention", external, axes)
    found = gates("attention", {"same": external["same"]}, axes)
    assert found["same"].passed and found["same"].bounds == found["eager"].bounds


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
def test_class_is_accepted_only_with_the_right_base(package, stem, name, words):
    (package / "custom_attention/classes.py").write_text(CLASSES)
    benchmark = load(stem, {"mine": f"custom_attention.classes:{name}"})
    broken = broken_ones(benchmark)
    assert not broken if words is None else re.search(words, broken["mine"])
