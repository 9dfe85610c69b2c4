"""Tests of what is measured again although it is fresh: marked and contradicting rows."""

import dataclasses
import json
import subprocess
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from configurations import attention

from lmperf import cli
from lmperf.config import load_config
from lmperf.evidence.at_work import allow
from lmperf.evidence.facts import FILE, read_facts
from lmperf.evidence.project import Project
from lmperf.evidence.record import record
from lmperf.evidence.review import causes, information, review
from lmperf.evidence.store import write_signed
from lmperf.measuring import rest
from lmperf.measuring.rounds import SliceResult, Timings
from lmperf.measuring.state import State

ROOT = Path(__file__).parents[2]
CONFIG = attention(32, 64, implementations="eager, compiled")


class Measuring:
    """Stands for measuring: ms by seq_len, and the marks of all rows of a length."""

    def __init__(self):
        self.ms, self.marks, self.groups = {32: 1.0, 64: 2.0}, {}, []

    def __call__(self, benchmark, groups, device, save, *_):
        for group in groups:
            length = group[0].axes["seq_len"]
            self.groups.append(length)
            save([self._row(case, phase) for phase in benchmark.phases for case in group], {})
        return Counter()

    def _row(self, case, phase):
        ms, length = self.ms[case.axes["seq_len"]], case.axes["seq_len"]
        timings = Timings()
        timings.add(SliceResult([ms, 1.01 * ms], State()))
        named = {**case.axes, "implementation": case.implementation, "phase": phase}
        about = {"status": "ok", "seed": 1, "together": f"{length}{phase}", "peak_mib": 9.0}
        about |= {"resident_mib": 2.0, "saved_mib": 3.0}
        return named | timings.columns() | about | {"marks": self.marks.get(length, "")}


@pytest.fixture
def measuring(monkeypatch):
    made = Measuring()
    monkeypatch.setattr("lmperf.evidence.record.measure", made)
    return made


def project_of(root, more=""):
    path = root / "config.yaml"
    path.write_text(CONFIG + more)
    return Project(load_config(path), root)


def job(root, more=""):
    """Run a measuring job, and return the reasons of its cases."""
    project = project_of(root, more)
    plan = project.plan("attention")
    why = [reason for _, reason in plan.due]
    record(project, plan)
    return why


def kinds(root):
    return {cause.kind for cause in causes(project_of(root), "here")}


def test_contradicting_groups_are_measured_again_exactly_once(tmp_path, measuring):
    measuring.ms = {32: 4.0, 64: 2.0}
    job(tmp_path)
    assert kinds(tmp_path) == {"contradicts another cell"}
    assert set(job(tmp_path)) == {"contradicts another cell"} and len(measuring.groups) == 4
    assert kinds(tmp_path) == set()
    known = [cause.kind for cause in information(project_of(tmp_path), "here")]
    assert known == ["contradicts another cell, measured twice"]
    assert not project_of(tmp_path).plan("attention").is_due


def test_contradiction_that_measuring_again_removes_leaves_no_trace(tmp_path, measuring):
    measuring.ms = {32: 4.0, 64: 2.0}
    job(tmp_path)
    measuring.ms = {32: 1.0, 64: 2.0}
    job(tmp_path)
    assert kinds(tmp_path) == set() and information(project_of(tmp_path), "here") == []


def test_too_many_marked_rows_fail_verify_with_the_command(tmp_path, measuring):
    measuring.marks = {32: "capped;loaded", 64: "drift"}
    job(tmp_path)
    (cause,) = causes(project_of(tmp_path), "here")
    assert str(cause) == (
        "here/attention: measured at work: 8 of 8 rows may not hold (4 beside other load,"
        " 4 drifted); make remeasure measures them again"
    )
    assert len(cause.lines) == 8


@pytest.mark.parametrize("mark", ["capped", "host_bound", "settings", ""])
def test_other_marks_do_not_fail_verify(tmp_path, measuring, mark):
    measuring.marks = dict.fromkeys((32, 64), mark)
    job(tmp_path)
    assert causes(project_of(tmp_path), "here") == []


def test_two_percent_of_a_benchmark_may_be_marked():
    from lmperf.evidence.at_work import AtWork

    found = AtWork({"lrpe": 100, "attention": 100}, {"lrpe": [{}] * 2, "attention": [{}] * 3})
    assert found.too_many == ["attention"]
    assert found.words == "3 of 100 fresh rows of Attention may not hold"


def test_only_remeasure_measures_marked_rows_again(tmp_path, measuring):
    measuring.marks = {64: "loaded"}
    job(tmp_path)
    assert job(tmp_path) == []
    measuring.marks = {}
    assert job(tmp_path, "remeasure: true\n") == ["marked", "marked"]
    assert measuring.groups == [32, 64, 64]
    assert causes(project_of(tmp_path), "here") == []
    assert job(tmp_path, "remeasure: true\n") == []


def test_remeasure_makes_no_write_up_outdated(tmp_path):
    from lmperf.reporting.written import rendering_key

    for more in ("remeasure: true\n", "retry_failed: true\n"):
        assert len({rendering_key(project_of(tmp_path, text)) for text in ("", more)}) == 1


def test_permission_holds_for_exactly_the_marked_rows(tmp_path, measuring):
    measuring.marks = {64: "loaded"}
    job(tmp_path)
    project = project_of(tmp_path)
    allow(project.directory, "here", review(project, "here").at_work, "a shared host")
    assert causes(project_of(tmp_path), "here") == []
    assert review(project_of(tmp_path), "here").at_work.allowed == "a shared host"
    job(tmp_path)
    assert "allowed" in read_facts(project.directory, "here"), "a job keeps it"
    measuring.marks = {32: "loaded"}
    plan = project_of(tmp_path).plan("attention")
    record(project_of(tmp_path), dataclasses.replace(plan, forced=frozenset(plan.cases)))
    assert kinds(tmp_path) == {"measured at work"}


@pytest.mark.parametrize("fault", ["reason", "of"])
def test_permission_that_lmperf_did_not_write_is_damage(tmp_path, measuring, fault):
    job(tmp_path)
    path = tmp_path / "report/here" / FILE
    allowed = {"reason": "r", "rows": 1, "of": "0", "at": "now"} | {fault: 5}
    facts = json.loads(path.read_text()) | {"allowed": allowed}
    write_signed(path, json.dumps(facts).encode())
    assert kinds(tmp_path) == {"damaged"}


@pytest.fixture
def folder(tmp_path, monkeypatch, measuring):
    (tmp_path / "config").mkdir()
    (tmp_path / "config/config.yaml").write_text(CONFIG)
    (tmp_path / "templates").symlink_to(ROOT / "templates")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capfd, *arguments):
    capfd.readouterr()
    return cli.main(list(arguments)), *capfd.readouterr()


def test_measure_marked_waits_and_counts_cleared_rows(folder, measuring, monkeypatch, capfd):
    waits = []
    monkeypatch.setattr(rest, "wait_for_rest", lambda *_: waits.append(1))
    measuring.marks = {32: "loaded", 64: "host"}
    assert run(capfd, "measure", "attention")[0] == 0 and not waits
    measuring.marks = {64: "loaded"}
    code, out, _ = run(capfd, "measure", "attention", "--marked")
    assert code == 0 and waits and "attention: 4 of 8 marked rows cleared" in out
    code, out, _ = run(capfd, "measure", "attention", "--config", "remeasure=true")
    assert code == 0 and "attention: 0 of 4 marked rows cleared" in out


def test_measure_marked_gives_up_beside_other_load(folder, measuring, monkeypatch, capfd):
    from test_rest import Watching

    measuring.marks = {32: "loaded"}
    run(capfd, "measure", "attention")
    monkeypatch.setattr(rest, "wait_for_rest", partial(rest.wait_for_rest, limit_s=0.0))
    monkeypatch.setattr(rest, "watch_here", lambda *_: Watching(0.5))
    code, _, error = run(capfd, "measure", "attention", "--marked")
    assert code == 2 and "still at work after 0 s" in error and measuring.groups == [32, 64]


@pytest.mark.slow
def test_allow_marked_is_recorded_and_shown(folder, measuring, capfd):
    measuring.marks = {32: "loaded"}
    run(capfd, "measure", "attention")
    for arguments in (("report", "here"), ("report",)):
        run(capfd, *arguments)
    page = folder / "report/here/report.md"
    assert "4 of 8 rows were timed while other processes" in page.read_text()
    code, _, error = run(capfd, "verify")
    assert code == 1 and "measured at work: 4 of 8 rows" in error
    assert run(capfd, "verify", "--allow-marked", " ")[0] == 2
    code, out, _ = run(capfd, "verify", "--allow-marked", "a <b>shared</b> host")
    assert code == 0 and "all is measured and right" in out
    permitted = "Published all the same: 4 rows measured at work; a &#60;b>shared&#60;/b> host."
    assert permitted in page.read_text()
    assert run(capfd, "verify")[0] == 0


@pytest.mark.slow
def test_quiet_machine_needs_no_permission(folder, measuring, capfd):
    run(capfd, "measure", "attention")
    run(capfd, "report", "here")
    assert "at work" not in (folder / "report/here/report.md").read_text()
    code, _, error = run(capfd, "verify", "--allow-marked", "no reason")
    assert code == 0 and "too few rows were measured at work" in error
    assert "allowed" not in read_facts(folder / "report/here", "here")


@pytest.mark.slow
def test_publish_adds_verified_files_and_names_the_commit(folder, measuring, capfd):
    measuring.marks = {32: "loaded"}
    run(capfd, "measure", "attention")
    run(capfd, "report", "here")
    code, _, error = run(capfd, "publish")
    assert code == 1 and "measured at work" in error
    code, _, error = run(capfd, "publish", "--allow-marked", "a shared host")
    assert code == 2 and "git add failed" in error
    subprocess.run(["git", "init", "-q"], check=True)
    (folder / ".gitignore").write_text("/report/\n")
    code, out, _ = run(capfd, "publish")
    assert code == 0 and 'commit them with git commit -m "Publish the report of here"' in out
    listed = subprocess.run(["git", "ls-files"], capture_output=True, text=True).stdout.split()
    names = ("evidence/attention.csv", "evidence/cost.sha256", "machine.json", "report.md")
    assert {f"report/here/{name}" for name in names} | {"report/report.md"} <= set(listed)
    assert not [name for name in listed if "store" in name]


@pytest.mark.slow
def test_publish_anyway_is_shown_and_holds_for_these_rows(folder, measuring, capfd):
    run(capfd, "measure", "attention")
    subprocess.run(["git", "init", "-q"], check=True)
    config = folder / "config/config.yaml"
    config.write_text(CONFIG.replace("[32, 64]", "[32, 64, 96]"))
    code, out, error = run(capfd, "publish")
    assert code == 1 and "here/attention: missing: 4 rows" in error and "Git" not in out
    listed = ["git", "ls-files"]
    assert not subprocess.run(listed, capture_output=True, text=True).stdout
    code, out, _ = run(capfd, "publish", "--anyway", "the rest is still measured")
    assert code == 0 and "nothing else is wrong" in out and "are in Git's index" in out
    words = "Published all the same: missing 4; the rest is still measured."
    assert words in (folder / "report/here/report.md").read_text()
    assert words in (folder / "report/report.md").read_text()
    assert run(capfd, "publish")[0] == 0 and run(capfd, "verify")[0] == 1
    config.write_text(CONFIG.replace("[32, 64]", "[32, 64, 96, 128]"))
    code, _, error = run(capfd, "publish")
    assert code == 1 and "missing: 8 rows" in error
    assert "Published all the same" not in (folder / "report/here/report.md").read_text()


@pytest.mark.slow
def test_damaged_evidence_is_not_published_anyway(folder, measuring, capfd):
    run(capfd, "measure", "attention")
    path = folder / "report/here/evidence/attention.csv"
    path.write_text(path.read_text().replace("eager", "Eager", 1))
    code, out, error = run(capfd, "publish", "--anyway", "it is only a letter")
    assert code == 1 and "was edited or truncated" in error and "Git" not in out
