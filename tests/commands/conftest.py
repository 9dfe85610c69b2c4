"""A folder in which commands run; its configuration has one small cell."""

import contextlib
import shutil

import pytest
from configurations import FLASH_ATTENTION
from made_up import MINE, NOTES, OK, pretend, rounds

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
"""


def fill(root):
    (root / "config").mkdir()
    (root / "config/config.yaml").write_text(FLASH_ATTENTION)
    (root / "my_functions.py").write_text(CUSTOM)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    fill(tmp_path)
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


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    """A folder with made-up evidence, a template of the user's and their report: to be copied."""
    root = tmp_path_factory.mktemp("written")
    fill(root)
    (root / "templates").mkdir()
    (root / "templates/mine.md.j2").write_text(MINE + NOTES)
    with pytest.MonkeyPatch.context() as patch, contextlib.chdir(root):
        patch.setattr("lmperf.reporting.figures.svgs", figures)
        pretend(patch, made_up)
        for command in (
            *(("measure", stem) for stem in ("flash_attention_check", "flash_attention")),
            ("report",),
        ):
            assert cli.main([*command]) == 0
    return root


def figures(spec):
    return dict.fromkeys(("light", "dark"), "<svg/>")


def made_up(case, phase):
    return OK | rounds(1.0)


@pytest.fixture
def here(written, folder, monkeypatch):
    """The folder, with made-up evidence and its report; measurements and figures are made up."""
    shutil.copytree(written, folder, dirs_exist_ok=True)
    monkeypatch.setattr("lmperf.reporting.figures.svgs", figures)
    pretend(monkeypatch, made_up)
    return folder
