"""Files that lmperf did not write, in the folders that it writes to, stay as they are."""

import errno
import hashlib
import json
import shutil
from collections import namedtuple
from pathlib import Path

import pytest
from made_up import OK, pretend, rounds
from repository import commit, git

from lmperf.cli import lmperf as group
from lmperf.config.read import load_config
from lmperf.errors import UserError
from lmperf.reporting import report, site
from lmperf.reporting.files import LIST, replace_files
from lmperf.reporting.selftest import HELD
from lmperf.selftest import run as selftest
from lmperf.selftest.run import line_of
from lmperf.selftest.sessions import SESSIONS

pytestmark = pytest.mark.machine

ROOT = Path(__file__).parents[2]
Page = namedtuple("Page", "text svgs numbers", defaults=[()])
FOREIGN = {
    "report/writeup.md": "a write-up",
    "report/figures/own.svg": "<svg/>",
    "report/here/NOTES.md": "notes",
    "report/here/figures/own.svg": "<svg/>",
    "report/data/own.csv": "a,b",
    "site/index.html": "home",
    "site/posts/first.html": "a post",
    "here.html": "a page",
    "tables/F1-1.csv": "a,b",
    "config/notes.yaml": "a: b",
    "templates/end_to_end.md.j2": '{% extends "lmperf/end_to_end.md.j2" %}',
    "src/lmperf/benchmarks/gelu.py": "x = 1",
}
ATTENTION = ("my_functions:attention", "--as", "attention", "--implementations", "eager")
# Command -> a call of it, its exit code, and what it says of a file in the way.
CALLS = [
    (("init",), 2, "config/config.yaml exists already; init overwrites nothing"),
    (("init", "--templates"), 2, "templates/end_to_end.md.j2 exists already"),
    (("new", "gelu"), 2, "src/lmperf/benchmarks/gelu.py exists already; choose another name"),
    (("doctor",), None, ""),
    (("list",), 0, ""),
    (("measure", "flash_attention"), 0, ""),
    (("report",), 0, ""),
    (("run", "flash_attention"), 0, ""),
    (("try", *ATTENTION), 0, ""),
    (("show", "--format", "csv", "--output", "tables"), 2, "tables/F1-1.csv exists already;"),
    (("site",), 2, "site/index.html is there already, and lmperf did not write it: move it, repl"),
    (("export",), 2, "here.html exists already; move it, or add --force"),
    (("verify",), None, ""),
    (("selftest",), 0, ""),
    (("publish", "--anyway", "a test"), 0, ""),
    (("diff", "here", "here"), 0, ""),
    (("compare", "nowhere"), 2, "nowhere"),  # it writes to a temporary folder only
]


def digests(root):
    """Path -> digest of each file below a folder, without Git's and Python's own."""
    paths = (path for path in root.rglob("*") if path.is_file())
    known = {str(path.relative_to(root)): path.read_bytes() for path in paths}
    kept = {name: of for name, of in known.items() if not name.startswith((".git/", ".lmperf/"))}
    return {name: hashlib.sha256(of).hexdigest() for name, of in kept.items() if "__py" not in name}


@pytest.fixture
def repository(folder, monkeypatch):
    """A repository with files of its own where lmperf writes; measurements are made up."""
    monkeypatch.setattr("lmperf.reporting.figures.svgs", lambda spec: {})
    monkeypatch.setattr(site, "files", lambda of: {"index.html": "x", "assets/site.css": "y"})
    of_case = [line_of(case, "read", HELD) for session in SESSIONS for case in session.cases]
    monkeypatch.setattr(selftest, "run", lambda project: of_case)
    pretend(monkeypatch, lambda case, phase: OK | rounds(1.0))
    for name, text in FOREIGN.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "init", "-q")
    commit(folder)
    return folder


@pytest.fixture
def short(repository, monkeypatch):
    """The repository, whose reports have two pages with a line each."""
    pages = {"report": Page("Every table: [Method](method.md)", {"figures/a.svg": "<svg/>"})}
    pages["method"] = Page("# Method", {})
    monkeypatch.setattr(report, "pages_of", lambda evidence, own, due: pages)
    overview = {"report.md": "Every table: [Method](here/method.md)"}
    monkeypatch.setattr(report, "files_of_overview", lambda project: overview)
    return repository


@pytest.fixture
def rendered(short, lmperf):
    """The repository with a short report."""
    repository = short
    assert lmperf("measure", "flash_attention")[0] == 0
    assert lmperf("report")[0] == 0
    return repository


def test_no_command_changes_a_foreign_file(short, lmperf):
    repository = short
    before = digests(repository)
    assert {call[0] for call, _, _ in CALLS} == {*group.commands}
    for call, expected, words in CALLS:
        code, _, said = lmperf(*call)
        assert expected in (None, code), (call, said)
        assert words in said and (not words or said.count("\n") == 1), (call, said)
        after = digests(repository)
        assert {name: after.get(name) for name in before} == before, call
    staged = git(repository, "diff", "--cached", "--name-only").splitlines()
    assert {f"report/{LIST}", f"report/here/{LIST}", "report/here/report.md"} <= {*staged}
    assert {*FOREIGN}.isdisjoint(staged)


@pytest.mark.parametrize("name", ["report/report.md", "report/here/method.md"])
def test_file_in_the_way_stops_report_until_forced(short, lmperf, name):
    repository = short
    assert lmperf("measure", "flash_attention")[0] == 0
    (repository / name).write_text("mine")
    before = digests(repository)
    code, out, said = lmperf("report")
    assert code == 2 and not out and said.count("\n") == 1 and digests(repository) == before
    assert f"{name} is there already, and lmperf did not write it: move it, replace it with" in said
    assert "lmperf report --force, or name" in said
    code, _, said = lmperf("report", "--force")
    assert code == 0 and f"lmperf: replaced {name}\n" in said
    assert lmperf("report")[0] == 0 and (repository / name).read_text() != "mine"


def test_only_listed_pages_are_removed(rendered, lmperf):
    listed = rendered / "report/here" / LIST
    for name in ("old.md", "new.md"):
        (rendered / "report/here" / name).write_text("# A page")
    listed.write_text(listed.read_text() + "old.md\n../../my_functions.py\n")
    commit(rendered, "Publish")
    (rendered / "report/here/NOTES.md").write_text("more notes")
    assert "old.md: differs from what its evidence renders to" in lmperf("verify")[2]
    assert lmperf("report", "here")[0] == 0
    there = {path.name for path in (rendered / "report/here").glob("*.md")}
    assert "old.md" not in there and {"new.md", "NOTES.md", "method.md"} <= there
    assert (rendered / "my_functions.py").exists() and "old.md" not in listed.read_text()
    assert lmperf("publish", "--anyway", "a test")[0] == 0
    staged = git(rendered, "diff", "--cached", "--name-status").splitlines()
    assert "D\treport/here/old.md" in staged and "NOTES.md" not in "".join(staged)


def test_full_disk_changes_no_file(tmp_path, monkeypatch):
    replace_files({tmp_path: {"a.md": "1", "old.md": "1"}}, "")
    before, write = digests(tmp_path), Path.write_bytes

    def full(path, content):
        if path.name.startswith(".b.md"):
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return write(path, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(UserError, match="cannot be written: no space left on device"):
        replace_files({tmp_path: {"a.md": "2", "b.md": "2"}}, "")
    assert digests(tmp_path) == before


def test_measuring_leaves_a_folder_of_foreign_evidence(repository, lmperf):
    for name in ("machine.json", "evidence/flash_attention.csv"):
        path = repository / "report/here" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("{}")
        before = digests(repository)
        code, _, said = lmperf("measure", "flash_attention")
        assert code == 2 and "is there already, and lmperf did not write it" in said
        assert digests(repository) == before
        path.unlink()
    (repository / "report/here/selftest.csv").write_text("a,b\n1,2\n")
    assert "selftest.csv: is no record of a self-test; move it" in lmperf("selftest")[2]


def test_evidence_in_a_folder_that_names_no_machine_is_named(rendered, lmperf):
    shutil.copytree(rendered / "report/here", rendered / "report/H200")
    for command in (("report",), ("verify", "--all")):
        assert "report/H200 is not shown: rename it" in lmperf(*command)[2]


def test_init_names_another_folder_where_one_is_in_use(repository, lmperf):
    shutil.rmtree(repository / "config")
    code, _, said = lmperf("init", "--install", "git+https://example.org/lmperf")
    assert code == 0 and "site is in use, and stays as it is" in said
    config = load_config(repository / "config/config.yaml")
    assert (config.report, config.site) == ("lmperf-report", "lmperf-site")
    ignored = (repository / ".gitignore").read_text()
    assert "/lmperf-report/*/store/\n" in ignored and "/lmperf-site/\n" in ignored
    assert "lmperf-report/** -text" in (repository / ".gitattributes").read_text()
    workflow = (repository / ".github/workflows/report.yml").read_text()
    assert " report/" not in workflow and "path: lmperf-site\n" in workflow
    assert "snakemake --cores 1 lmperf-report/report.md" in said


def test_configured_folders_are_used(short, lmperf):
    repository = short
    config = repository / "config/config.yaml"
    config.write_text(config.read_text() + "report: lmperf-report\nsite: pages\n")
    for call in (("measure", "flash_attention"), ("report",), ("site",), ("diff", "here", "here")):
        assert lmperf(*call)[0] == 0, call
    assert (repository / "lmperf-report/here/report.md").exists()
    assert (repository / "pages/index.html").exists()
    assert not (repository / "report/report.md").exists()
    facts = json.loads((repository / "lmperf-report/here/machine.json").read_text())
    assert facts["machine"] == "here"
