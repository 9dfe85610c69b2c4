"""The reports that are published here are what their evidence renders to today."""

import shutil
from pathlib import Path

import pytest

from lmperf.config import load_config
from lmperf.evidence.plan import Project
from lmperf.evidence.review import prune, review
from lmperf.evidence.store import read_rows
from lmperf.reporting.render import render_machine

ROOT = Path(__file__).parents[1]
PUBLISHED = ["nvidia-h200"]
# Red gates that are published as such, timings withheld: the number of rows by benchmark. PyTorch's
# own float32 gradients of the largest model (2.7B, 1024) are 8 % over the bound that depth allows.
RED = {"nvidia-h200": {"end_to_end": 8, "flash_attention_check": 2}}


@pytest.fixture
def copy(tmp_path):
    """A project with the published evidence alone, without any report."""
    for machine in PUBLISHED:
        shutil.copytree(ROOT / "report" / machine, tmp_path / "report" / machine)
        (tmp_path / "report" / machine / "report.md").unlink()
    shutil.copytree(ROOT / "templates", tmp_path / "templates")
    return Project(load_config(ROOT / "config/config.yaml"), tmp_path)


@pytest.mark.parametrize("machine", PUBLISHED)
def test_a_published_report_is_the_rendering_of_its_evidence(copy, machine):
    render_machine(copy, machine)
    published = ROOT / "report" / machine
    for path in [published / "report.md", *sorted((published / "figures").glob("*.svg"))]:
        rendered = copy.report_directory / machine / path.relative_to(published)
        assert rendered.read_bytes() == path.read_bytes(), path


@pytest.mark.parametrize("machine", PUBLISHED)
def test_published_evidence_is_whole_fresh_and_right(copy, machine):
    reviewed = review(copy, machine)
    assert (reviewed.damaged, reviewed.stale) == ({}, {})
    assert {stem: len(rows) for stem, rows in reviewed.red.items()} == RED[machine]


def test_rows_of_changed_code_are_stale_by_name(copy, monkeypatch):
    monkeypatch.setattr("lmperf.evidence.keys.code_fingerprint", lambda module: "another")
    stale = review(copy, "nvidia-h200").stale
    assert len(stale["ceilings"]) == 5
    assert "operation=copy, dtype=float32: torch, forward" in stale["ceilings"]


def test_pruning_drops_stale_rows_of_cells_that_no_grid_has(copy, monkeypatch):
    path = copy.report_directory / "nvidia-h200/evidence/flash_attention.csv"
    before = len(read_rows(path))
    assert prune(copy, "nvidia-h200") == 0
    monkeypatch.setattr(type(copy.config), "grid_of", lambda self, stem: _only_128(stem))
    assert prune(copy, "nvidia-h200") == 0, "rows that are fresh stay, whatever the grid"
    monkeypatch.setattr("lmperf.evidence.review.row_key", lambda *_: "another")
    assert prune(copy, "nvidia-h200") > 0
    kept = read_rows(path)
    assert 0 < len(kept) < before
    assert {row["seq_len"] for row in kept} == {"128"}


def _only_128(stem):
    return {"seq_len": [128]} if stem == "flash_attention" else {}
