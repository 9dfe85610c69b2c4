"""Tests of `lmperf report`."""

import pytest

from lmperf.commands.report import not_rendered, render
from lmperf.config import load_config
from lmperf.evidence.project import Project


@pytest.fixture
def project(folder, monkeypatch):
    """A project with evidence of this machine and of another one; nothing is rendered for real."""
    for machine in ("here", "other"):
        (folder / "report" / machine).mkdir(parents=True)
        (folder / "report" / machine / "machine.json").write_text("{}")
    project = Project(load_config(folder / "config/config.yaml"), folder)

    def written(project, machine=None):
        path = project.report_directory / (machine or "") / "report.md"
        path.write_text(machine or "overview")
        project.rendered.append(machine)

    project.rendered = []

    def each(project, machines):
        for machine in machines:
            written(project, machine)

    monkeypatch.setattr("lmperf.reporting.report.render_machines", each)
    monkeypatch.setattr("lmperf.reporting.report.render_overview", written)
    return project


def test_report_renders_the_pages_that_it_links_to(project):
    render(project, None)
    assert project.rendered == ["here", "other", None]
    project.rendered.clear()
    render(project, None)
    assert project.rendered == [None], "both are up to date"
    project.rendered.clear()
    render(project, "other")
    assert project.rendered == ["other"]


def test_missing_and_edited_pages_have_different_messages(folder, monkeypatch):
    project = Project(load_config(folder / "config/config.yaml"), folder)
    page = folder / "report/here/attention.md"
    page.parent.mkdir(parents=True)
    page.write_text("edited")
    monkeypatch.setattr("lmperf.reporting.written.edited", lambda *_: ["attention.md", "lrpe.md"])
    edited, missing = not_rendered(project, "here")
    assert edited.startswith(f"{page}: differs from")
    assert missing == f"{page.with_name('lrpe.md')}: has not been rendered; run lmperf report"
