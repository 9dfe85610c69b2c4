"""What `verify` finds in a machine's evidence."""

import json
from dataclasses import replace

import pytest
from configurations import attention
from made_up import OK, UNSUPPORTED, pretend, project_of

from lmperf import cli
from lmperf.commands.verify import print_causes
from lmperf.errors import UserError
from lmperf.evidence.facts import FILE, write_facts
from lmperf.evidence.record import record
from lmperf.evidence.review import AHEAD, causes, review
from lmperf.evidence.rows import LOADED, OOM


@pytest.fixture
def measure(tmp_path, monkeypatch):
    """A function that measures a project with rows of some columns; returns the project."""

    def call(row=lambda case, phase: UNSUPPORTED, config=None):
        pretend(monkeypatch, row)
        project = project_of(tmp_path, config)
        record(project, project.plan("attention"))
        return project_of(tmp_path)

    return call


def kinds(project):
    found = causes(project, review(project, "here"))
    return {(cause.stem, cause.kind): cause for cause in found}


def test_machine_without_evidence_has_not_been_measured(tmp_path, capfd):
    assert print_causes(project_of(tmp_path), ["here"]) == 1
    words = "verify: here/evidence: missing: this machine has not been measured\n"
    assert capfd.readouterr().err == words
    with pytest.raises(UserError, match="no evidence of machine there"):
        review(project_of(tmp_path), "there")


@pytest.mark.parametrize(
    ("columns", "kind"),
    [
        ({"status": "crash"}, "failed"),
        ({"status": "timeout"}, "failed"),
        ({"status": "failed_check"}, "failed check"),
        ({"status": "nan"}, "failed check"),
        ({**OK, "marks": "loaded"}, LOADED),
    ],
)
def test_rows_that_are_not_right_are_named(measure, columns, kind):
    project = measure(lambda case, phase: {"reason": "so", **columns})
    cause = kinds(project)["attention", kind]
    assert len(cause.names) == 4 and "seq_len=32" in cause.names[0]


def test_times_ahead_of_the_clock_are_named_until_they_are_replaced(measure, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("lmperf.evidence.record.now", lambda: "9999-01-02T03:04:05+00:00")
        project = measure()
    assert len(kinds(project)["attention", AHEAD].names) == 4
    plan = project.plan("attention")
    assert plan.ahead.startswith("4 rows of times up to 9999-01-02, which is ahead of this machine")
    record(project, replace(plan, forced=True))
    assert not kinds(project) and not project.plan("attention").ahead


def test_rows_out_of_memory_are_only_listed(measure):
    project = measure(lambda *_: {"status": "oom", "reason": "no memory"})
    assert not kinds(project)
    (line,) = map(str, review(project, "here").of_kinds([OOM]))
    assert "out of memory: 4 rows" in line


def test_missing_and_stale_rows_are_named(measure, tmp_path, monkeypatch):
    measure()
    wider = project_of(tmp_path, attention(32, 64, 96))
    assert len(kinds(wider)["attention", "missing"].names) == 2
    monkeypatch.setattr("lmperf.evidence.keys.METHOD_VERSION", 99)
    assert len(kinds(wider)["attention", "stale"].names) == 4


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "does not hold the facts of a machine"),
        ("[" * 100_000, "does not hold the facts of a machine"),
        ('{"machine": "x", "preset": "cpu", "environments": {}}', "belongs to the machine x"),
        ('{"machine": "here", "preset": "cpu", "environments": {"e": 1}}', "e: Input should"),
    ],
    ids=["cut", "deep", "another", "type"],
)
def test_damaged_machine_json_is_named(measure, text, words):
    project = measure()
    (project.directory / FILE).write_text(text)
    assert words in str(kinds(project)["machine", "damaged"])
    (project.directory / FILE).unlink()
    assert "is missing" in str(kinds(project)["machine", "damaged"])


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"status": "paused"}, "status is 'paused', which this version of lmperf does not know"),
        ({**OK, "median_ms": "fast"}, "median_ms is 'fast'; it must be a number"),
    ],
)
def test_rows_of_another_version_are_named_and_not_used(measure, columns, words):
    """Their digests are right, as of rows that a later version of lmperf wrote."""
    project = measure(lambda *_: OK)
    files = project.plan("attention").files
    files.publish([files.published()[0][0] | columns, *files.published()[0][1:]])
    reviewed = review(project, "here")
    assert len(reviewed.rows["attention"]) == 3
    cause = str(kinds(project)["attention", "damaged"])
    assert "attention.csv: 1 row is not used: " in cause and words in cause


def test_name_of_another_machine_is_refused(measure, tmp_path):
    facts = measure().known_facts()
    other = {**next(iter(facts["environments"].values())), "kind": "cuda", "device": "NVIDIA H200"}
    write_facts(tmp_path / "report/here", {**facts, "environments": {"e" * 16: other}})
    with pytest.raises(UserError, match=r"machine is 'here'.*NVIDIA H200.*leave machine out"):
        project_of(tmp_path)


def test_reason_to_publish_holds_for_these_rows_only(measure, tmp_path):
    project = measure(lambda *_: {"status": "crash", "reason": "so"})
    reviewed = review(project, "here")
    assert reviewed.tally == ["failed: 4 (attention 4)"] and not reviewed.reason
    with pytest.raises(UserError, match="--anyway"):
        reviewed.allow(project.directory, " ")
    reviewed.allow(project.directory, " a known fault ")
    allowed = review(project, "here")
    assert allowed.is_allowed and allowed.reason == "a known fault"
    assert json.loads((project.directory / FILE).read_text())["anyway"]["reason"] == "a known fault"
    further = review(project_of(tmp_path, attention(32, 64, 96)), "here")
    assert not further.is_allowed and further.reason == "a known fault"
    assert further.tally == ["failed: 4 (attention 4)", "missing: 2 (attention 2)"]
    record(project, project.plan("attention"))
    assert review(project_of(tmp_path, attention(32, 64)), "here").is_allowed


def test_other_machine_needs_its_own_benchmarks(tmp_path):
    facts = {"machine": "box", "preset": "cpu", "environments": {}}
    write_facts(tmp_path / "report/box", facts)
    found = {}
    for text in ("{}", "benchmarks: [lrpe]", "benchmarks_by_machine: {box: [lrpe]}"):
        missing = review(project_of(tmp_path, text), "box").of_kinds(["missing"])
        found[text] = {cause.stem: cause.names for cause in missing}
    every, elsewhere, own = found.values()
    assert {"memory", "lrpe"} <= {*every}
    assert elsewhere == every, "benchmarks names those of the machine at hand"
    assert {*own} == {"lrpe", "lrpe_check"} and own["lrpe"] == every["lrpe"]


@pytest.mark.slow
def test_commands_of_a_loaded_machine(measure, tmp_path, monkeypatch, capfd):
    """`verify` names loaded rows, `measure --loaded` measures them again."""
    (tmp_path / "config").mkdir()
    (tmp_path / "config/config.yaml").write_text(attention(32, 64))
    measure(lambda case, phase: {**OK, "marks": "loaded"}, attention(32, 64))
    monkeypatch.chdir(tmp_path)
    assert cli.main(["verify"]) == 1
    assert f"here/attention: {LOADED}: 4 rows" in capfd.readouterr().err
    measured = pretend(monkeypatch, lambda *_: OK)
    assert cli.main(["measure", "attention"]) == 0 and not measured
    assert cli.main(["measure", "attention", "--loaded"]) == 0 and len(measured) == 2
    assert not kinds(project_of(tmp_path))
