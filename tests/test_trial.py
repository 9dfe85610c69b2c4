"""What one call in the child process shows of a custom implementation, and what it may not do."""

import sys

import pytest

from lmperf import trial
from lmperf.benchmark import resolve
from lmperf.custom import problem_of

CODE = """
import os, time
import torch
from examples.student_attention import FlashAttention


def pair(q, k, v, causal):
    return q, k


def crashes(q, k, v, causal):
    os._exit(3)


def hangs(q, k, v, causal):
    time.sleep(600)


def needs_gpu(q, k, v, causal):
    raise RuntimeError("no GPU")


def get_flash():
    return FlashAttention
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "my_code.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("my_code", None)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("pair", "it returns a tuple; it must return the output alone, a tensor"),
        ("hangs", ""),
        ("needs_gpu", ""),
        ("get_flash", "returns FlashAttention; write examples.student_attention:Fl"),
    ],
)
def test_small_call_shows_what_is_returned(module, monkeypatch, name, words):
    if name == "hangs":
        monkeypatch.setattr(trial, "_CALL_S", 0.1)
    entry = f"my_code:{name}"
    problem = trial._problem(entry, "attention", "") or trial._returned(resolve(entry))
    assert words in problem and bool(words) == bool(problem)


@pytest.mark.process
@pytest.mark.parametrize(("name", "words"), [("pair", "it returns a tuple"), ("crashes", "")])
def test_call_that_ends_its_process_shows_no_problem(module, name, words):
    problem = problem_of(f"my_code:{name}", "attention")
    assert words in problem and bool(words) == bool(problem)
