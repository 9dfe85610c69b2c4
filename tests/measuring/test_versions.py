"""Workers of another version of the code, and the protocol that both versions share."""

import dataclasses
import inspect
import shutil
import sys
from pathlib import Path

import pytest

import lmperf
from lmperf.benchmark import Case, Implementation
from lmperf.benchmarks import load
from lmperf.measuring.prepared import Prepared
from lmperf.measuring.serving import Serving
from lmperf.measuring.supervisor import Supervisor
from lmperf.measuring.twins import Assignment
from lmperf.measuring.worker import PROTOCOL
from lmperf.measuring.workers import WorkerStartError

GRID = {"batch": [2], "seq_len": [32], "d_head": [16], "dtype": ["float32"], "causal": [False]}
# The requests and the types in their arguments. After a change here or in a reply, raise PROTOCOL,
# so that workers of an earlier version are refused.
REQUESTS = {
    "_prepare": "self entry stem external cases skipped seed",
    "_observe": "self entry stem external cases skipped seed",
    "_warm_up": "self case phase least_ms",
    "_slice": "self case phase repetitions checked",
    "_host_and_loop": "self case phase call_ms",
    "_sustain": "self case phase steps",
    "_check_last": "self case phase",
    "_clear": "self",
    "_reference": "self",
    "_host_reference": "self",
}
ARGUMENTS = {
    Case: "cell implementation",
    Implementation: "name entry options tolerance compiles needs_cuda origin version presets only",
}


def test_changed_requests_raise_the_protocol_version():
    found = {}
    for name in REQUESTS:
        parameters = inspect.signature(getattr(Serving, name)).parameters
        asked = Serving if "arguments" not in parameters else Prepared
        method = getattr(asked, name if asked is Serving else name[1:])
        found[name] = " ".join(inspect.signature(method).parameters)
    fields = {of: " ".join(field.name for field in dataclasses.fields(of)) for of in ARGUMENTS}
    assert (PROTOCOL, found, fields) == (4, REQUESTS, ARGUMENTS)


@pytest.mark.process
def test_worker_runs_the_code_of_its_version(tmp_path):
    source = Path(lmperf.__file__).parent
    path = [str(tmp_path), *sys.path]
    with Supervisor("cpu", paths={"other": path}) as supervisor:
        supervisor.workers._switch_to("other")  # a user's repository, without an lmperf of its own
        supervisor.workers.end("other")
        (tmp_path / "lmperf").mkdir()
        with pytest.raises(WorkerStartError, match=f"lmperf from .*, not from {tmp_path}"):
            supervisor.workers._switch_to("other")
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source, tmp_path / "lmperf", ignore=ignored, dirs_exist_ok=True)
        file = tmp_path / "lmperf/attention/reference.py"
        file.write_text(file.read_text().replace("    scores = q @", "    0 / 0\n    scores = q @"))
        benchmark = load("attention")
        (case,) = benchmark.cases("cpu", {**GRID, "implementation": ["eager"]})
        benchmark.phases = ("backward",)
        rows = supervisor.rows(benchmark, [Assignment("other", case)], seed=1)
        assert list(rows) == [(Assignment("other", case), "backward")]
        (row,) = rows[Assignment("other", case), "backward"]
        assert row["status"] == "crash" and "division by zero" in row["reason"]
        assert supervisor.workers.reading("reference") and supervisor.workers.names == ["other"]
