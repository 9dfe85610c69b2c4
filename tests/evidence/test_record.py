"""Tests of what a new run learns from the rows of earlier runs, and of what it requires of them."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from lmperf.errors import UserError
from lmperf.evidence.machine import nccl_settings
from lmperf.evidence.record import best_of_host, require_same_nccl


def test_best_times_of_the_host_come_from_this_environment():
    def row(environment, python_us, launch_us=""):
        return {"environment": environment, "python_us": python_us, "launch_us": launch_us}

    rows = [row("here", "900.0"), row("here", "880.5"), row("other", "10.0"), row("here", "")]
    plans = {
        "attention": SimpleNamespace(known=[*rows, {"environment": "here"}]),
        "lrpe": SimpleNamespace(known=[row("here", "950.0", "5.5")]),
    }
    project = SimpleNamespace(plans=plans, machine=SimpleNamespace(environment="here"))
    assert best_of_host(project) == {"python_us": 880.5, "launch_us": 5.5}
    project.plans = {}
    assert best_of_host(project) == {}


@pytest.mark.parametrize(
    ("then", "now", "words"),
    [
        ({}, {"NCCL_ALGO": "Tree"}, "measured with no NCCL_*, and now there is NCCL_ALGO=Tree"),
        ({"NCCL_ALGO": "Tree"}, {}, "measured with NCCL_ALGO=Tree, and now there is no NCCL_*"),
        ({"NCCL_ALGO": "Tree"}, {"NCCL_ALGO": "Tree"}, ""),
        (None, {"NCCL_ALGO": "Tree"}, ""),  # recorded by an older version
    ],
)
def test_rows_of_several_ranks_have_the_same_settings_of_nccl(then, now, words):
    machine = SimpleNamespace(slug="pair", environment="e", facts={"nccl": now})
    recorded = {"environments": {"e": {} if then is None else {"nccl": then}}}
    project = SimpleNamespace(machine=machine, known_facts=lambda: (recorded, []))
    with pytest.raises(UserError) if words else nullcontext() as raised:
        require_same_nccl(project)
    assert words in str(raised.value if words else "")


def test_settings_of_nccl_are_recorded_without_those_of_its_log(monkeypatch):
    for name, value in {"NCCL_MIN_NCHANNELS": "64", "NCCL_DEBUG": "INFO"}.items():
        monkeypatch.setenv(name, value)
    assert nccl_settings()["NCCL_MIN_NCHANNELS"] == "64" and "NCCL_DEBUG" not in nccl_settings()
