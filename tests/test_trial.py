"""What one call in the child process shows of a custom implementation, and what it may not do."""

import pytest

from lmperf.benchmarks import load
from lmperf.custom import problem_of

pytestmark = pytest.mark.process

CODE = """
import os, time
import torch
from examples.student_attention import FlashAttention
from examples.student_model import LanguageModel


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


class WithLoss(LanguageModel):
    def forward(self, tokens):
        return {"logits": super().forward(tokens)}


class Unused(LanguageModel):
    def __init__(self, **sizes):
        super().__init__(**sizes)
        self.spare = torch.nn.Linear(4, 4)
"""


@pytest.mark.parametrize(
    ("stem", "name", "words"),
    [
        ("attention", "pair", "it returns a tuple; it must return the output alone, a tensor"),
        ("attention", "crashes", ""),
        ("attention", "hangs", ""),
        ("attention", "needs_gpu", ""),
        ("attention", "get_flash", "returns FlashAttention; write examples.student_attention:Fl"),
        ("end_to_end", "WithLoss", "it returns a dict; it must return the logits alone, a tensor"),
        ("end_to_end", "Unused", "the loss does not depend on spare.weight, spare.bias; leave"),
        ("end_to_end", "LanguageModel", ""),
    ],
)
def test_small_call_shows_what_is_returned(tmp_path, monkeypatch, stem, name, words):
    (tmp_path / "my_code.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    problem = problem_of(f"my_code:{name}", load(stem).takes)
    assert words in problem and bool(words) == bool(problem)
