"""Render to files: detect files edited after rendering, and flag stale rows."""

import json
from pathlib import Path

import pytest
import synthetic

from lmperf.benchmarks import load
from lmperf.config import load_config
from lmperf.evidence.plan import row_name
from lmperf.evidence.project import Project
from lmperf.evidence.reviewed import Review
from lmperf.reporting import render, written
from lmperf.reporting.render import edited

ROOT = Path(__file__).parents[2]
TEXTS = {"report.md": "rendered\n", "page.md": "page\n", "figures/a.svg": "<svg/>\n"}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with a machine `m`, whose write-up and overview both render to TEXTS."""
    made = Project(load_config(ROOT / "config/config.yaml"), tmp_path)
    (tmp_path / "report/m").mkdir(parents=True)
    (tmp_path / "report/m/machine.json").write_text(json.dumps(synthetic.facts("m", "cpu", None)))
    monkeypatch.setattr(render, "_files_of_machine", lambda project, machine: TEXTS)
    monkeypatch.setattr(render, "_files_of_overview", lambda project: TEXTS)
    return made


def rendered(project, machine):
    if machine:
        render.render_machine(project, machine)
    else:
        render.render_overview(project)
    return written.target(project, machine).parent


@pytest.mark.parametrize("machine", ["m", None])
@pytest.mark.parametrize("noted", [True, False])
def test_rendered_files_do_not_count_as_edited(project, machine, noted):
    rendered(project, machine)
    if noted:
        written.record(project, machine)
    assert edited(project, machine) == []


@pytest.mark.parametrize("machine", ["m", None])
@pytest.mark.parametrize("noted", [True, False])
def test_edited_file_is_listed(project, machine, noted):
    directory = rendered(project, machine)
    if noted:
        written.record(project, machine)
    (directory / "page.md").write_text("better figures\n")
    assert edited(project, machine) == ["page.md"]


def test_missing_and_added_files_count_as_edited(project):
    directory = rendered(project, "m")
    (directory / "page.md").unlink()
    (directory / "mine.md").write_text("mine\n")
    assert edited(project, "m") == ["mine.md", "page.md"]


@pytest.mark.parametrize("noted", [True, False])
def test_edited_missing_and_added_figures_count_as_edited(project, noted):
    directory = rendered(project, "m")
    if noted:
        written.record(project, "m")
    (directory / "figures/a.svg").write_text("<svg onload='alert(1)'/>\n")
    assert edited(project, "m") == ["figures/a.svg"]
    (directory / "figures/b.svg").write_text("<svg/>")
    (directory / "figures/a.svg").unlink()
    assert edited(project, "m") == ["figures/a.svg", "figures/b.svg"]


@pytest.mark.parametrize(
    "name", ["figures/x.html", "evidence/x.txt", "notes.html", "figures/more/a.svg", "a.csv"]
)
def test_file_that_lmperf_does_not_write_is_foreign(project, name):
    directory = rendered(project, "m")
    (directory / "evidence").mkdir()
    (directory / "evidence/memory.csv.damaged").write_text("set aside by a job")
    assert written.foreign(project, "m") == []
    (directory / name).parent.mkdir(exist_ok=True)
    (directory / name).write_text("mine")
    (found,) = written.foreign(project, "m")
    assert directory / name in (found, *found.glob("*"))


def test_link_in_place_of_a_figure_is_foreign(project, tmp_path):
    directory = rendered(project, "m")
    figure = directory / "figures/a.svg"
    figure.rename(tmp_path / "a.svg")
    figure.symlink_to(tmp_path / "a.svg")
    assert edited(project, "m") == [] and written.foreign(project, "m") == [figure]


def test_directory_in_place_of_a_file_counts_as_edited(project):
    directory = rendered(project, "m")
    (directory / "page.md").unlink()
    (directory / "page.md").mkdir()
    assert edited(project, "m") == ["page.md"]


@pytest.mark.parametrize("machine", ["m", None])
def test_missing_write_up_counts_as_edited(project, machine):
    assert edited(project, machine) == ["figures/a.svg", "page.md", "report.md"]


def test_current_record_avoids_a_second_rendering(project, monkeypatch):
    rendered(project, "m")
    written.record(project, "m")
    monkeypatch.setattr(render, "_files_of_machine", lambda *_: pytest.fail("was rendered"))
    assert edited(project, "m") == []


def test_unwritable_record_counts_as_no_record(project):
    rendered(project, "m")
    (project.root / ".lmperf").write_text("in the way")
    written.record(project, "m")
    assert not written.is_current(project, "m") and edited(project, "m") == []


@pytest.mark.parametrize(
    ("stale", "told"), [((), None), ((0,), [True, False]), ((0, 1), [True, True])]
)
def test_stale_column_exists_only_if_some_rows_are_stale(project, stale, told):
    axes = {"batch": "1", "d_head": "64", "dtype": "float32", "causal": "False"}
    rows = [
        {**axes, "seq_len": n, "implementation": "eager", "phase": "forward", "status": "ok"}
        for n in ("128", "256")
    ]
    names = [row_name(load("attention"), rows[index]) for index in stale]
    reviewed = Review("m", {**synthetic.facts("m", "cpu", None), "preset": "cpu"})
    reviewed.rows["attention"], reviewed.stale["attention"] = rows, names
    frame = render.machine_evidence(project, reviewed).frames["attention"]
    assert (frame["stale"].tolist() if "stale" in frame else None) == told
