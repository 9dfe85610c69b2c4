"""Workers with code of their own: what a conductor and a worker of two versions agree on."""

import dataclasses
import inspect
import shutil
import sys
from pathlib import Path

import pytest

import lmperf
from lmperf.benchmark import Case, Implementation
from lmperf.benchmarks import load
from lmperf.measuring.group import Place
from lmperf.measuring.prepared import Prepared
from lmperf.measuring.serving import Serving
from lmperf.measuring.supervisor import Supervisor, WorkerLost
from lmperf.measuring.worker import PROTOCOL

GRID = {"batch": [2], "seq_len": [32], "d_head": [16], "dtype": ["float32"], "causal": [False]}
# What a worker is asked, with which arguments, and what these are made of. After a change here, or
# of what a reply holds: raise PROTOCOL, so that workers of an earlier version are refused.
REQUESTS = {
    "_prepare": "self entry stem external cases failures seed",
    "_observe": "self entry stem external cases failures seed",
    "_warm_up": "self case phase least_ms",
    "_slice": "self case phase repetitions checked",
    "_host_and_loop": "self case phase call_ms",
    "_clear": "self",
    "_reference": "self",
}
ARGUMENTS = {
    Case: "cell implementation",
    Implementation: "name entry options tolerance compiles needs_cuda origin version presets only",
}


def test_a_change_of_what_workers_are_asked_is_declared():
    found = {}
    for name in REQUESTS:
        parameters = inspect.signature(getattr(Serving, name)).parameters
        asked = Serving if "arguments" not in parameters else Prepared
        method = getattr(asked, name if asked is Serving else name[1:])
        found[name] = " ".join(inspect.signature(method).parameters)
    fields = {of: " ".join(field.name for field in dataclasses.fields(of)) for of in ARGUMENTS}
    assert (PROTOCOL, found, fields) == (2, REQUESTS, ARGUMENTS)


def test_a_worker_has_the_code_of_its_own_version_alone(tmp_path):
    source = Path(lmperf.__file__).parent
    path = [str(tmp_path), *sys.path]
    with Supervisor("cpu", paths={"other": path}) as supervisor:
        with pytest.raises(WorkerLost, match=f"lmperf from .*, not from {tmp_path}"):
            supervisor._turn("other")
        shutil.copytree(source, tmp_path / "lmperf", ignore=shutil.ignore_patterns("__pycache__"))
        file = tmp_path / "lmperf/attention/reference.py"
        file.write_text(file.read_text().replace("    scores = q @", "    0 / 0\n    scores = q @"))
        benchmark = load("attention")
        (case,) = benchmark.cases("cpu", {**GRID, "implementation": ["eager"]})
        benchmark.phases = ("backward",)
        rows = supervisor.rows(benchmark, [Place("other", case)], seed=1)
        assert list(rows) == [(Place("other", case), "backward")], "what was not asked for"
        (row,) = rows[Place("other", case), "backward"]
        assert row["status"] == "crash" and "division by zero" in row["reason"]
        assert supervisor.reference() and supervisor.hosts == ["other"], "no worker beside its own"
