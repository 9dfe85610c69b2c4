"""Tests of `lmperf report` and `lmperf summary`."""

from lmperf.commands.report import not_rendered
from lmperf.config import load_config
from lmperf.evidence.project import Project


def test_missing_and_edited_pages_have_different_messages(folder, monkeypatch):
    project = Project(load_config(folder / "config/config.yaml"), folder)
    page = folder / "report/here/attention.md"
    page.parent.mkdir(parents=True)
    page.write_text("edited")
    monkeypatch.setattr("lmperf.reporting.render.edited", lambda *_: ["attention.md", "lrpe.md"])
    edited, missing = not_rendered(project, "here")
    assert edited.startswith(f"{page}: differs from")
    assert missing == f"{page.with_name('lrpe.md')}: has not been rendered; run lmperf report"
