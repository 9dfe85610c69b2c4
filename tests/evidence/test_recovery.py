"""Tests that damaged or deleted evidence is repaired if possible, else measured again."""

import json
import os
import random
from collections import Counter
from pathlib import Path

import pytest
from configurations import attention

from lmperf.config import load_config
from lmperf.errors import UserError
from lmperf.evidence.cost import Cost
from lmperf.evidence.facts import FILE, write_facts
from lmperf.evidence.project import Project
from lmperf.evidence.record import record
from lmperf.evidence.review import causes, information, prune, review
from lmperf.evidence.store import STORE, file_digest, read_rows
from lmperf.measuring.stopwatch import Stopwatch

STEMS = ("attention", "cost")


@pytest.fixture
def project(tmp_path):
    """A checkout whose store and evidence have rows for the two cells of the configuration."""
    found = project_of(tmp_path)
    measured(found)
    job(found)
    return project_of(tmp_path)


def job(project):
    """Run a measuring job for `attention`: measure pending groups and write the evidence."""
    return record(project, project.plan("attention"))


def project_of(root, seq_lens=(32, 64), more=""):
    path = root / "config.yaml"
    path.write_text(attention(*seq_lens) + more)
    return Project(load_config(path), root)


def measured(project, **columns):
    """Write rows of every case, facts and costs to the store without measuring."""
    plan = project.plan("attention")
    write_facts(project.store, {**project.known_facts()[0], "environments": environments(project)})
    plan.store.replace(
        row(project, {**case.axes, "implementation": case.implementation, "phase": phase}, columns)
        for case in plan.cases
        for phase in plan.benchmark.phases
    )
    Cost(project.directory, STORE).replace([Stopwatch().row("attention", "cpu", 2, 4)])


def environments(project):
    return {project.machine.environment: {**project.machine.facts, "measured_at": "2026-01-02"}}


def row(project, named, columns):
    about = {"status": "unsupported", "reason": "not here", "seed": 1, "commit": "0123abc"}
    about |= {"measured_at": "2026-01-02T03:04:05+00:00"}
    about |= {
        "environment": project.machine.environment,
        "key": project.plan("attention").key(named),
    }
    return {**named, **about, **columns}


def again(project):
    """Open the same checkout anew, as the next command would."""
    return project_of(project.root)


def write_digest(path):
    """Write a digest file that matches the current content of a file."""
    path.with_suffix(".sha256").write_text(f"{file_digest(path)}  {path.name}\n")


def test_job_writes_evidence_equal_to_store(project):
    plan = project.plan("attention")
    assert plan.evidence.read() == plan.store.read() and len(plan.rows) == 4
    assert not plan.is_due and causes(project, "here") == []


@pytest.mark.parametrize("name", ["attention.csv", "attention.sha256", "cost.csv", "cost.sha256"])
@pytest.mark.parametrize("folder", ["evidence", "store"])
def test_file_truncated_at_any_byte_is_repaired(project, folder, name):
    path = project.directory / folder / name
    whole = path.read_bytes()
    before = project.plan("attention").rows
    # Only the first 64 characters of a digest file, the digest, are read.
    said = 64 if name.endswith(".sha256") else len(whole)
    for length in random.Random(name).sample(range(said), 12):
        path.write_bytes(whole[:length])
        plan = again(project).plan("attention")
        assert plan.pending == [] and plan.rows == before, length
        assert plan.is_due, length
        job(again(project))
        assert path.read_bytes() == whole and not again(project).plan("attention").is_due


@pytest.mark.slow
def test_flipped_bits_are_detected(project):
    path = project.directory / "evidence/attention.csv"
    whole = path.read_bytes()
    for at in range(0, len(whole), 7):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        assert review(project, "here").damaged, at
        assert not review(project, "here").rows, at


@pytest.mark.parametrize("what", ["missing", "empty", "folder", "crlf", "no digest", "high bit"])
def test_damaged_file_is_repaired_from_the_other_folder(project, what):
    names = [f"{folder}/{stem}.csv" for folder in ("evidence", "store") for stem in STEMS]
    if what == "missing":
        names.remove("store/attention.csv")  # as in a clone
    for name in (*names, FILE, f"store/{FILE}"):
        path = project.directory / name
        whole = path.read_bytes()
        spoil(path, what)
        found = again(project)
        assert found.plan("attention").is_due and found.plan("attention").pending == [], name
        job(found)
        assert path.read_bytes() == whole, name
        assert causes(again(project), "here") == [], name


def spoil(path, what):
    match what:
        case "missing":
            path.unlink()
        case "empty":
            path.write_bytes(b"")
        case "folder":
            path.unlink()
            path.mkdir()
        case "crlf":
            path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
        case "no digest":
            path.with_suffix(".sha256").unlink()
        case "high bit":
            path.with_suffix(".sha256").write_bytes(b"\xff\xfe\n\n")


def test_file_damaged_in_both_folders_is_measured_again(project):
    for folder in ("evidence", "store"):
        (project.directory / folder / "attention.csv").write_text("what,ever\n1,2\n")
    plan = again(project).plan("attention")
    assert {why for _, why in plan.due} == {"damaged"} and len(plan.due) == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: [*lines, lines[-1]],
        lambda lines: [*lines, lines[-1].replace("unsupported", "timeout")],
        lambda lines: [line.replace("unsupported", "fine") for line in lines],
        lambda lines: [f"-{line}" for line in lines],
    ],
    ids=["twice", "contradicted", "another status", "another cell"],
)
def test_new_digest_does_not_hide_faulty_rows(project, change):
    path = project.directory / "evidence/attention.csv"
    head, *lines = path.read_text().splitlines(keepends=True)
    path.write_text(head + "".join(change(lines)))
    write_digest(path)
    assert causes(again(project), "here")
    job(again(project))
    assert causes(again(project), "here") == [] and len(read_rows(path)) == 4


@pytest.mark.parametrize("name", ["attention.csv", "attention.sha256", "cost.csv", FILE])
@pytest.mark.parametrize("what", ["empty", "folder", "crlf", "high bit"])
def test_damaged_store_is_named_and_repaired(project, name, what):
    spoil(project.store / name, "empty" if name.endswith(".sha256") else what)
    (cause,) = causes(again(project), "here")
    assert cause.kind == "damaged" and f"store/{Path(name).stem}" in str(cause)
    assert str(cause).endswith("; the next run repairs it")
    job(again(project))
    assert causes(again(project), "here") == []


def changed_with_new_digest(project, folder):
    """Change the reason of one row in a folder, and write a digest that matches."""
    path = project.directory / folder / "attention.csv"
    head, first, *rest = path.read_text().splitlines(keepends=True)
    path.write_text(head + first.replace("not here", "not now") + "".join(rest))
    write_digest(path)


@pytest.mark.parametrize("folder", ["evidence", "store"])
def test_neither_of_two_copies_that_differ_counts(project, folder):
    changed_with_new_digest(project, folder)
    found = again(project)
    named = "1 rows in store and evidence; the next run measures them again"
    assert [str(one) for one in causes(found, "here")] == [
        f"here/attention: copies differ: {named}"
    ]
    plan = found.plan("attention")
    assert [why for _, why in plan.due] == ["copies differ"] and len(plan.rows) == 3


def test_job_that_is_killed_keeps_neither_of_two_copies(project, monkeypatch, capsys):
    changed_with_new_digest(project, "store")

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("lmperf.evidence.record.measure", killed)
    with pytest.raises(KeyboardInterrupt):
        job(again(project))
    assert "neither copy counts" in capsys.readouterr().err
    plan = again(project).plan("attention")
    assert [why for _, why in plan.due] == ["stale"]  # its other phase is left
    assert len(plan.store.read()) == len(plan.evidence.read()) == 3


def test_column_of_a_later_version_is_no_difference_of_copies(project):
    plan = project.plan("attention")
    plan.store.hold([{**row, "of_a_later_version": ""} for row in plan.rows])
    assert again(project).plan("attention").differing == []


def test_only_benchmarks_that_differ_from_the_store_are_named(project):
    """A run that is interrupted in another benchmark leaves a machine.json to be written."""
    (project.directory / FILE).write_text('{"machine": "here"')
    assert [cause.stem for cause in causes(again(project), "here")] == ["machine"]
    job(again(project))
    evidence = project.plan("attention").evidence
    evidence.hold(evidence.read()[:2])
    found = {(cause.stem, cause.kind) for cause in causes(again(project), "here")}
    assert found == {("attention", "missing"), ("attention", "not as measured")}


def test_evidence_of_an_unknown_benchmark_is_named_and_pruned(project):
    for folder in ("evidence", "store"):
        path = project.directory / folder / "removed.csv"
        path.write_text("what,ever\n1,2\n")
        write_digest(path)
    (cause,) = causes(again(project), "here")
    assert str(cause).startswith("here/removed: unknown: ")
    assert str(cause).endswith(
        "evidence/removed.csv is of no benchmark; lmperf prune here removes it"
    )
    assert prune(again(project), "here") == 2
    assert causes(again(project), "here") == []
    assert not list(project.directory.glob("*/removed.*"))


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"x": ' + "[" * 100_000, '{"n": ' + "9" * 5000 + "}"]
)
def test_machine_json_of_hostile_size_is_damage(project, text):
    path = project.directory / FILE
    path.write_text(text)
    write_digest(path)
    (cause, *_) = causes(again(project), "here")
    assert cause.kind == "damaged" and "does not hold the facts of a machine" in str(cause)


@pytest.mark.parametrize("fact", [{"dirty": "yes"}, {"commit": 5}, {"kind": ["cpu"]}])
def test_fact_of_the_wrong_type_is_damage(project, fact):
    path = project.directory / FILE
    facts = json.loads(path.read_text())
    facts["environments"][project.machine.environment] |= fact
    path.write_text(json.dumps(facts))
    write_digest(path)
    (cause, *_) = causes(again(project), "here")
    assert cause.kind == "damaged" and next(iter(fact)) in str(cause)


def test_grid_that_leaves_no_cell_is_refused(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(
        "preset: cpu\nmachine: here\nbenchmarks: [ceilings]\n"
        "grid: {ceilings: {operation: [copy], shape: [2x2x2]}}\n"
    )
    with pytest.raises(UserError, match=r"grid.ceilings leaves no cell"):
        _ = Project(load_config(path), tmp_path).plans


def test_clone_without_store_reuses_its_evidence(project):
    (project.store / "attention.csv").unlink()
    (project.store / "attention.sha256").unlink()
    wider = project_of(project.root, (32, 64, 128)).plan("attention")
    assert [why for _, why in wider.due] == ["missing"]
    job(again(project))
    assert len(read_rows(project.store / "attention.csv")) == 4


def test_plan_takes_later_of_two_measurements(project):
    plan = project.plan("attention")
    later = {"measured_at": "2026-02-02T03:04:05+00:00", "reason": "later"}
    plan.evidence.hold([{**row, **later} for row in plan.rows])
    assert {row["reason"] for row in again(project).plan("attention").rows} == {"later"}


def test_rows_outside_the_grid_are_kept_but_not_shown(project):
    narrow = project_of(project.root, (32,))
    assert {row["seq_len"] for row in review(narrow, "here").rows["attention"]} == {"32"}
    job(narrow)
    assert len(read_rows(narrow.directory / "evidence/attention.csv")) == 2
    assert causes(project_of(narrow.root, (32,)), "here") == []
    assert len(read_rows(narrow.store / "attention.csv")) == 4
    assert again(project).plan("attention").pending == []
    nothing = project_of(project.root, more="retry_failed: false\n")
    assert prune(nothing, "here") == 0


def test_facts_of_another_machine_are_rejected(project):
    path = project.directory / FILE
    facts = json.loads(path.read_text())
    path.write_text(json.dumps({**facts, "machine": "nvidia-h200"}))
    write_digest(path)
    assert review(again(project), "here").facts["environments"] == {}
    assert any(
        "belongs to the machine nvidia-h200" in str(cause) for cause in causes(project, "here")
    )


def test_damaged_machine_json_is_rewritten_by_next_job(project):
    for folder in (project.directory, project.store):
        (folder / FILE).write_text("{")
    job(again(project))
    facts = again(project).known_facts()[0]["environments"][project.machine.environment]
    assert facts["device"] == project.machine.facts["device"]
    assert causes(again(project), "here") == []


def test_machine_name_of_other_hardware_is_rejected(project):
    facts = project.known_facts()[0]
    other = {**project.machine.facts, "kind": "cuda", "device": "NVIDIA H200"}
    for folder in (project.directory, project.store):
        write_facts(folder, {**facts, "environments": {"e" * 16: other}})
    with pytest.raises(UserError, match=r"machine is 'here'.*NVIDIA H200.*leave machine out"):
        again(project)


@pytest.mark.parametrize("status", ["crash", "timeout", "oom", "failed_check"])
def test_failed_rows_are_reported_and_retried_on_request(tmp_path, status):
    found = project_of(tmp_path)
    measured(found, status=status)
    job(found)
    found = project_of(tmp_path)
    assert found.plan("attention").pending == []
    named = information(found, "here") if status == "oom" else causes(found, "here")
    assert "4 rows" in str(named[0])
    retried = project_of(tmp_path, more="retry_failed: true\n").plan("attention")
    assert [why for _, why in retried.due] == ["failed", "failed"]


def test_implausible_case_becomes_failed_row_with_reason(tmp_path, monkeypatch):
    project = project_of(tmp_path)

    def measure(benchmark, groups, device, save, *_):
        for (case,) in groups:
            named = {**case.axes, "implementation": case.implementation}
            about = {"status": "failed_check", "reason": "another clock", "seed": 1}
            if case.axes["seq_len"] == 64:
                about = {"status": "ok", "seed": 1}
            rows = [{**named, "phase": phase, **about} for phase in benchmark.phases]
            save([{**row, "compile_s": -2.5} for row in rows], {})
        return Counter()

    monkeypatch.setattr("lmperf.evidence.record.measure", measure)
    job(project)
    found = again(project).plan("attention")
    assert not found.is_due and not found.damaged
    assert {(row["status"], row["compile_s"]) for row in found.rows} == {("failed_check", "")}
    reasons = {row["seq_len"]: row["reason"] for row in found.rows}
    assert reasons["32"] == "another clock", "keeps its own reason"
    said = "its worker reported values that cannot be measured: compile_s is '-2.5'"
    assert reasons["64"].startswith(said)


def test_each_job_compiles_in_a_cold_cache(tmp_path, monkeypatch):
    cache, folders = "TORCHINDUCTOR_CACHE_DIR", []
    monkeypatch.setenv(cache, str(tmp_path))

    def measure(*_):
        folders.append(Path(os.environ[cache]))
        return Counter()

    monkeypatch.setattr("lmperf.evidence.record.measure", measure)
    for _ in range(2):
        job(project_of(tmp_path))
    assert len({*folders}) == 2 and {folder.parent for folder in folders} == {tmp_path}


@pytest.mark.slow
def test_job_warns_of_imports_that_cannot_be_followed(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mine.py").write_text(
        "import importlib\nfrom lmperf.attention.reference import attention\n\n"
        "def load(name):\n    return importlib.import_module(name)\n"
    )
    custom = "implementations: {attention: {mine: 'mine:attention'}}\n"
    monkeypatch.setattr("lmperf.evidence.record.measure", lambda *_: Counter())
    job(project_of(tmp_path, more=custom))
    said = capsys.readouterr().err
    assert "mine imports import_module(...) in mine, whose source cannot be followed" in said
