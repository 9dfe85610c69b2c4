"""What one call in the child process shows of a custom implementation, and what it may not do."""

import sys

import pytest

from lmperf.benchmark import resolve
from lmperf.own import trial
from lmperf.own.check import problem_of

CODE = """
import time
import torch
from examples.student_attention import FlashAttention
from examples.student_model import LanguageModel


def pair(q, k, v, causal):
    return q, k


def hangs(q, k, v, causal):
    time.sleep(6)
    open(__file__ + ".ended", "w").close()


def needs_gpu(q, k, v, causal):
    raise RuntimeError("no GPU")


def get_flash():
    return FlashAttention


def step(model, optimizer, tokens, targets):
    optimizer.zero_grad(set_to_none=True)
    logits = model(tokens).flatten(0, 1)
    loss = torch.nn.functional.cross_entropy(logits, targets.flatten())
    loss.backward()
    optimizer.step()
    return loss


def with_item(model, optimizer, tokens, targets):
    return step(model, optimizer, tokens, targets).item()


def clipping(model, optimizer, tokens, targets):
    loss = step(model, optimizer, tokens, targets)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    return loss


def not_a_number(model, optimizer, tokens, targets):
    loss = step(model, optimizer, tokens, targets)
    torch.nn.utils.clip_grad_norm_(model.parameters(), float("nan"))
    return loss


def wrong_in_one(model, optimizer, tokens, targets):
    loss = step(model, optimizer, tokens, targets)
    model.head.weight.grad *= 0.5
    return loss


class WithLoss(LanguageModel):
    def forward(self, tokens):
        return {"logits": super().forward(tokens)}


class Unused(LanguageModel):
    def __init__(self, **sizes):
        super().__init__(**sizes)
        self.spare = torch.nn.Linear(4, 4)
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "my_code.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("my_code", None)


@pytest.mark.parametrize(
    ("takes", "name", "words"),
    [
        ("attention", "needs_gpu", ""),
        ("attention", "get_flash", "examples.student_attention:FlashAttention"),
        ("model", "WithLoss", "it returns a dict; it must return the logits alone, a tensor"),
        ("model", "Unused", "the loss does not depend on spare.weight, spare.bias; leave"),
        ("model", "LanguageModel", ""),
        ("model", "step", ""),
        ("model", "wrong_in_one", ""),
        ("model", "not_a_number", ""),
        ("model", "with_item", "it returns a float; it must return the loss, a tensor"),
        ("model", "clipping", "as clipping does; leave them as they are"),
    ],
)
def test_small_call_shows_what_is_returned(module, takes, name, words):
    entry = f"my_code:{name}"
    instead, problem = trial._problem(entry, takes, "", {})
    problem = instead or problem or trial._called(resolve(entry), takes)
    assert words in problem and bool(words) == bool(problem)


@pytest.mark.process
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("pair", "it returns a tuple; it must return the output alone, a tensor"),
        ("hangs", ""),
    ],
)
def test_call_that_a_timer_ends_shows_no_problem(module, tmp_path, name, words):
    if name == "hangs":
        with (tmp_path / "my_code.py").open("a") as code:
            code.write("\n\nfrom lmperf.own import trial\n\ntrial._CALL_S = 0.5\n")
    problem = problem_of(f"my_code:{name}", "attention")
    assert words in problem and bool(words) == bool(problem)
    assert not [*tmp_path.glob("*.ended")], "a timer ends it"
