"""Tests of tools/record_seconds.py, which records how long measuring takes."""

import importlib.util
from pathlib import Path

import pytest

from lmperf.benchmarks import load
from lmperf.evidence.cost import Cost
from lmperf.evidence.plan import evidence_of

ROOT = Path(__file__).parents[2]
CELL = {"batch": 8, "d_head": 16, "dtype": "float32", "causal": False}


@pytest.fixture
def tool():
    spec = importlib.util.spec_from_file_location("record", ROOT / "tools/record_seconds.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def at(seconds):
    return f"2026-11-23T10:{seconds // 60:02}:{seconds % 60:02}+00:00"


def test_seconds_of_groups_are_those_between_their_rows(tmp_path, tool):
    rows = [
        {**CELL, "seq_len": n, "implementation": name, "phase": phase, "measured_at": at(saved)}
        for n, saved in ((256, 25), (512, 31), (1024, 131), (2048, 600))  # the last: by another job
        for name in ("eager", "sdpa")
        for phase in ("forward", "backward")
    ]
    evidence_of(load("attention"), tmp_path).hold([{k: str(v) for k, v in r.items()} for r in rows])
    job = {"stem": "attention", "started_at": at(0), "finished_at": at(132), "start_s": "5"}
    Cost(tmp_path).hold([job])
    table = {line["group"]: float(line["seconds"]) for line in tool.lines("cuda", tmp_path)}
    name = "batch=8, seq_len={}, d_head=16, causal=False".format
    own = {name(256): 10, name(512): 3, name(1024): 50}
    assert table == {"start": 5, "others": 21, **own}
