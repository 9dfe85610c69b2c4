"""A project whose measurements are made up: rows without a process that measures."""

from configurations import attention

from lmperf.benchmarks import load
from lmperf.config.read import load_config
from lmperf.evidence.facts import write_facts
from lmperf.evidence.project import Project
from lmperf.evidence.store import files_of
from lmperf.measuring.supervisor import Supervisor

UNSUPPORTED = {"status": "unsupported", "reason": "not here"}
OK = {"status": "ok", "median_ms": 1.0, "max_error": 0.0, "error_bound": 1e-5}

# The template of a user's page.
MINE = '{% extends "page.md.j2" %}{% block question %}Mine{% endblock %}'
NOTES = (
    "{% block notes %}\nIt has {{ rows('flash_attention') | length | whole }} rows.\n{% endblock %}"
)

ROUNDS_MS = (1.0, 1.004, 0.998, 1.002, 0.997, 1.003)


def rounds(ms):
    """The columns of a time: its median, and rounds that are hardly apart."""
    return {"median_ms": ms, "rounds_ms": ";".join(repr(ms * factor) for factor in ROUNDS_MS)}


def timed(folder, cases, factor=lambda number: 1.0, at="1", **columns):
    """Write evidence of `attention` into a folder: a time for each case, times its factor."""
    rows = [
        {**case.axes, "implementation": case.implementation, "phase": "forward", **OK}
        | rounds(factor(number))
        | {"measured_at": at, "key": at, "environment": "e"}
        | columns
        for number, case in enumerate(cases)
    ]
    files_of(load("attention"), folder).publish(rows)
    environments = {"e": {"kind": "cpu"}}
    write_facts(folder, {"machine": folder.name, "preset": "cpu", "environments": environments})


def project_of(root, config=None, **overrides):
    """A project in a folder, read anew; `config` replaces its configuration."""
    path = root / "config.yaml"
    if config or not path.exists():
        path.write_text(config or attention(32, 64))
    return Project(load_config(path, overrides), root)


def pretend(monkeypatch, row=lambda case, phase: UNSUPPORTED, before_group=lambda number: None):
    """Have `record` measure rows with these columns; returns the groups that are measured.

    A first group that is only checked has the rows that are not ok."""
    measured = []

    def run(supervisor, groups, save, checks_first=False):
        benchmark = supervisor._benchmark
        for number, group in enumerate(groups):
            before_group(len(measured))
            measured.append(group)
            phases = {case: benchmark.phases_of(case) for case in group}
            rows = [
                {**case.axes, "implementation": case.implementation, "phase": phase}
                | {"seed": 1, **row(case, phase)}
                for case in group
                for phase in phases[case]
            ]
            is_check = checks_first and number == 0
            failed = [row for row in rows if row["status"] != "ok"]
            save(group, failed if is_check else rows)
            if is_check and failed:
                return

    monkeypatch.setattr(Supervisor, "measure", run)
    return measured
