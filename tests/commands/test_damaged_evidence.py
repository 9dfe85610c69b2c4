"""What Git, editors and spreadsheets do to evidence: it is named, and no write-up is emptied."""

import pytest
from made_up import pretend
from repository import git

from lmperf.evidence.store import EVIDENCE

pytestmark = pytest.mark.machine
CSV = f"{EVIDENCE}/flash_attention.csv"


@pytest.fixture
def published(here):
    """The folder of a machine with made-up evidence and its write-up."""
    return here / "report/here"


def pages(published):
    return {path.name: path.read_bytes() for path in published.glob("*.md")}


def test_changed_line_endings_are_one_cause(published, lmperf):
    before = pages(published)
    causes = lmperf("verify")[2].splitlines()
    for path in (*published.glob("*.md"), *published.glob("*.json"), published / CSV):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    (published / "store/flash_attention.csv").unlink()
    [line] = {*lmperf("verify")[2].splitlines()} - {*causes}
    assert f"machine.json and {len(before) + 1} more: line endings were changed" in line
    assert "put `/report/** -text` into .gitattributes" in line
    assert lmperf("report")[0] == 0 and pages(published) == before


@pytest.mark.parametrize(
    ("name", "damage", "words"),
    [
        (CSV, lambda text: text.replace("ok", "OK"), "lines are damaged"),
        (CSV, lambda _: None, "does an ignore file of Git name *.csv?"),
        (
            "machine.json",
            lambda text: f"<<<<<<< a\n{text}",
            "line 1 is a conflict marker of a merge",
        ),
    ],
    ids=["edited", "ignored", "merge"],
)
def test_write_up_stays_when_its_evidence_is_damaged(published, lmperf, name, damage, words):
    before, path = pages(published), published / name
    for stored in published.glob("*/flash_attention_check.*"):
        stored.unlink()
    (published / "store/flash_attention.csv").unlink()
    text = damage(path.read_text())
    path.unlink() if text is None else path.write_text(text)
    for command in (["report", "here"], ["report"]):
        code, _, said = lmperf(*command)
        assert code == 2 and words in said.splitlines()[-1]
        assert said.endswith("report.md stays as it is until the evidence is restored or removed\n")
    assert pages(published) == before
    if text is not None:
        said = lmperf("verify")[2]
        assert "damaged: " in said and words in said
        assert name != CSV or "flash_attention: missing" not in said


def test_measuring_without_a_commit_says_why(folder, monkeypatch, lmperf):
    monkeypatch.delenv("LMPERF_COMMIT", raising=False)
    monkeypatch.setattr("lmperf.reporting.figures.svgs", lambda spec: {})
    git(folder, "init", "-q")
    pretend(monkeypatch)
    said = lmperf("measure", "flash_attention")[2]
    assert "lmperf: the commit is not recorded: fatal: your current branch" in said
    assert lmperf("report")[0] == 0
    assert "| not recorded |" in (folder / "report/here/method.md").read_text()
