"""What a measuring job stores, and what is left of one that is interrupted."""

import itertools
import json
from collections import Counter

import pytest
from configurations import attention
from made_up import OK, pretend, project_of

from lmperf.errors import UserError
from lmperf.evidence import machine
from lmperf.evidence.facts import write_facts
from lmperf.evidence.record import record
from lmperf.evidence.store import read
from lmperf.machine.software import software_facts


def job(project):
    record(project, project.plan("attention"))


def test_job_signs_its_rows_and_writes_the_view(tmp_path, monkeypatch):
    measured = pretend(monkeypatch, lambda *_: OK)
    project = project_of(tmp_path)
    job(project)
    plan = project_of(tmp_path).plan("attention")
    assert len(measured) == 2 and not plan.is_due and len(read(plan.files.path)[0]) == 4
    row = plan.rows[0]
    assert row["key"] == plan.key(row) and row["environment"] == project.machine.environment
    assert len(row["commit"].removesuffix("-dirty")) == 12 or row["commit"] == "unknown"
    assert row["measured_at"].endswith("+00:00")
    facts = json.loads((project.directory / "machine.json").read_text())
    assert facts["environments"][row["environment"]]["device"] == project.machine.facts["device"]


def test_rows_of_a_group_have_one_time(tmp_path, monkeypatch):
    """By it the store knows which rows of a case belong together, however many there are."""
    times = map("2026-11-27T08:00:00.{:03}+00:00".format, itertools.count())
    monkeypatch.setattr("lmperf.evidence.record.now", lambda: next(times))
    pretend(monkeypatch, lambda *_: OK)
    job(project_of(tmp_path))
    path = project_of(tmp_path).plan("attention").files.path
    assert sorted(Counter(row["measured_at"] for row in read(path)[0]).values()) == [2, 2]


def test_each_job_has_one_row_of_costs(tmp_path, monkeypatch):
    pretend(monkeypatch)
    job(project_of(tmp_path))
    (cost,) = read(tmp_path / "report/here/evidence/cost.csv")[0]
    assert (cost["stem"], cost["groups"]) == ("attention", "2")
    assert float(cost["wall_s"]) >= 0
    job(project_of(tmp_path))
    assert len(read(tmp_path / "report/here/evidence/cost.csv")[0]) == 1, "nothing was measured"


def test_interrupted_job_keeps_its_finished_groups(tmp_path, monkeypatch):
    def interrupt(number):
        if number == 1:
            raise KeyboardInterrupt

    pretend(monkeypatch, before_group=interrupt)
    with pytest.raises(KeyboardInterrupt):
        job(project_of(tmp_path))
    plan = project_of(tmp_path).plan("attention")
    assert len(plan.groups) == 1 and len(plan.rows) == 2
    measured = pretend(monkeypatch)
    job(project_of(tmp_path))
    assert len(measured) == 1 and not project_of(tmp_path).plan("attention").is_due
    (first, second) = read(tmp_path / "report/here/evidence/cost.csv")[0]
    assert first["groups"] == second["groups"] == "1"


def test_job_plans_anew_under_the_lock(tmp_path, monkeypatch):
    measured = pretend(monkeypatch)
    project = project_of(tmp_path)
    plan = project.plan("attention")
    assert plan.groups
    job(project_of(tmp_path))
    record(project, plan)
    assert len(measured) == 2, "another run had measured the rest"


def test_row_that_nothing_can_have_measured_becomes_a_failure(tmp_path, monkeypatch):
    def row(case, phase):
        is_wrong = case.axes["seq_len"] == 64
        return {**OK, "median_ms": -2.5} if is_wrong else OK

    pretend(monkeypatch, row)
    job(project_of(tmp_path))
    right, wrong = (
        [one for one in project_of(tmp_path).plan("attention").rows if one["seq_len"] == length]
        for length in ("32", "64")
    )
    assert [one["status"] for one in right + wrong] == ["ok", "ok", "failed_check", "failed_check"]
    assert not wrong[0].get("median_ms") and "median_ms is -2.5" in wrong[0]["reason"]


def test_damaged_row_is_named_once_and_measured_again(tmp_path, monkeypatch, capfd):
    pretend(monkeypatch)
    job(project_of(tmp_path))
    for path in (tmp_path / "report/here").rglob("attention.csv"):
        path.write_text(path.read_text().replace(",32,", ",33,"))
    measured = pretend(monkeypatch)
    job(project_of(tmp_path))
    assert len(measured) == 1 and "2 lines are damaged and not used" in capfd.readouterr().err
    job(project_of(tmp_path))
    assert "damaged" not in capfd.readouterr().err


def test_clone_measures_only_what_its_view_lacks(tmp_path, monkeypatch):
    pretend(monkeypatch)
    job(project_of(tmp_path))
    for path in (tmp_path / "report/here/store").iterdir():
        path.unlink()
    measured = pretend(monkeypatch)
    wider = project_of(tmp_path, attention(32, 64, 96))
    job(wider)
    assert len(measured) == 1 and len(project_of(tmp_path).plan("attention").rows) == 6


def test_damaged_machine_json_is_written_again(tmp_path, monkeypatch):
    pretend(monkeypatch)
    job(project_of(tmp_path))
    (tmp_path / "report/here/machine.json").write_text("{")
    project = project_of(tmp_path, attention(32, 64, 96))
    job(project)
    assert project_of(tmp_path).known_facts()["environments"]


def test_login_node_plans_by_name_and_refuses_to_measure(tmp_path, monkeypatch):
    monkeypatch.setattr("lmperf.evidence.project.accelerator", lambda: "cpu")
    config = "preset: gpu\nmachine: h100\nbenchmarks: [attention]\n"
    project = project_of(tmp_path, config)
    assert project.machine.kind == "cuda" and project.plan("attention").due
    with pytest.raises(UserError, match="h100 measures in jobs of a cluster"):
        job(project)
    with pytest.raises(UserError, match="login node of a cluster name the machine"):
        project_of(tmp_path, "preset: gpu\n")


def test_login_node_knows_the_environment_that_its_jobs_recorded(tmp_path, monkeypatch):
    facts = {"kind": "cuda", "device": "NVIDIA H100", "driver_branch": "570", "threads": None}
    facts |= {"measured_at": "2026-01-02", "settings": {}, **software_facts()}
    write_facts(
        tmp_path / "report/h100",
        {"machine": "h100", "preset": "gpu", "environments": {"e" * 16: facts}},
    )
    monkeypatch.setattr("lmperf.evidence.project.accelerator", lambda: "cpu")
    project = project_of(tmp_path, "preset: gpu\nmachine: h100\n")
    there = machine.Machine("h100", "cuda", facts)
    assert project.machine.environment == there.environment
