"""A folder in which commands run; its configuration has one small cell."""

import pytest
from configurations import FLASH_ATTENTION

from lmperf import cli

CUSTOM = """
import torch

def attention(q, k, v, causal=False):
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if causal:
        ones = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device)
        scores = scores.masked_fill(~ones.tril(), float("-inf"))
    return scores.softmax(dim=-1) @ v

def doubled(q, k, v, causal=False):
    return 2 * attention(q, k, v, causal)

def in_place(q, k, v, causal=False):
    weights = (q @ k.mT).exp()
    out = weights @ v
    weights += 1
    return out

def detached(q, k, v, causal=False):
    return attention(q, k, v, causal).detach()

def no_flag(q, k, v, mask=None):
    return v
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "config").mkdir()
    (tmp_path / "config/config.yaml").write_text(FLASH_ATTENTION)
    (tmp_path / "my_functions.py").write_text(CUSTOM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.fixture
def lmperf(folder, capfd):
    """A function that runs a command and returns its exit code, stdout and stderr."""

    def call(*arguments):
        capfd.readouterr()
        return cli.main(list(arguments)), *capfd.readouterr()

    return call
