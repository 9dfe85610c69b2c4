"""Tests of `lmperf doctor`, which says what is installed or missing and how to install it."""

import os
from os import statvfs as os_statvfs
from types import SimpleNamespace

import pytest

from lmperf.commands import doctor


def test_each_benchmark_is_listed_with_what_it_needs(lmperf):
    code, out, _ = lmperf("doctor")
    assert code == 0
    lines = out.splitlines()
    assert any(line.startswith("ok") and "torch" in line for line in lines)
    assert "ok      flash_attention: 2 cases" in lines
    assert "absent  lrpe: not in the configuration; add it to benchmarks" in lines


def test_missing_torch_or_compiler_says_how_to_install(lmperf, monkeypatch):
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    out = lmperf("doctor")[1]
    assert "C++ compiler: torch.compile needs one on a CPU; install g++" in out
    assert "install git" in out
    monkeypatch.setattr(doctor, "torch_version", lambda: None)
    code, out, _ = lmperf("doctor")
    assert code == 1 and "wrong   torch: measuring needs it" in out


def test_folder_in_which_nothing_can_be_executed_is_named(lmperf, monkeypatch, tmp_path):
    flags = SimpleNamespace(f_flag=os.ST_NOEXEC)
    monkeypatch.setattr(os, "statvfs", lambda path: flags if path == tmp_path else os_statvfs(path))
    assert "noexec" not in lmperf("doctor")[1]
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "not" / "yet"))
    code, out, _ = lmperf("doctor")
    assert code == 1 and f"wrong   {tmp_path}: compiled code cannot be executed in it" in out


@pytest.mark.parametrize(
    ("usable", "words"),
    [(0.5, ": 0.5 of 4, as a CPU quota says"), (2, ": 2 of 4, as its affinity")],
)
def test_cores_that_may_be_used_are_told(lmperf, monkeypatch, usable, words):
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(doctor.processors, "affinity", lambda: 2)
    monkeypatch.setattr(doctor.processors, "usable", lambda: usable)
    assert f"ok      CPU cores that this process may use{words}" in lmperf("doctor")[1]


def test_custom_function_that_cannot_be_used_is_reported(folder, lmperf, monkeypatch):
    problems = {"my_functions:absent": "my_functions:absent: the module my_functions has none"}
    monkeypatch.setattr(doctor, "problem_of", lambda use, *_, **__: problems.get(use, ""))
    config = folder / "config/config.yaml"
    custom = "implementations: {flash_attention: {%s}}\n"
    uses = "mine: 'my_functions:attention', other: 'my_functions:absent'"
    config.write_text(config.read_text() + custom % uses)
    code, out, _ = lmperf("doctor")
    assert code == 1
    assert "ok      flash_attention, mine: my_functions:attention" in out
    assert "wrong   flash_attention, other: my_functions:absent: the module" in out


def test_unplannable_configuration_prints_one_line(lmperf):
    code, out, _ = lmperf("doctor", "--config", "implementations.flash_attention.mine=my_gone:x")
    assert code == 1
    lines = [line for line in out.splitlines() if line.startswith("wrong")]
    assert len(lines) == 1 and "there is no module my_gone" in lines[0]
    assert "flash_attention_check: " in out
