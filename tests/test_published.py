"""Tests that each committed report equals the report rendered from its evidence."""

import shutil
from pathlib import Path

import pytest

from lmperf.config.read import load_config
from lmperf.evidence.project import Project
from lmperf.reporting.comparison import compare
from lmperf.reporting.report import files_of_overview, render
from lmperf.reporting.revisions import read_result

pytestmark = pytest.mark.machine

ROOT = Path(__file__).parents[1]
# A GPU and a CPU: to render all of them takes a minute.
RENDERED = ["cpu-amd-epyc-avx-512-bf16", "nvidia-h200"]


@pytest.fixture
def copy(tmp_path):
    """A project with a copy of the published evidence, without the rendered reports.

    This machine has another name: on one like the CPU, the environment of the tests would decide
    what is stale.
    """
    for machine in RENDERED:
        shutil.copytree(ROOT / "report" / machine, tmp_path / "report" / machine)
        for name in texts(tmp_path / "report" / machine):
            (tmp_path / "report" / machine / name).unlink()
    config = load_config(ROOT / "config/config.yaml", {"machine": "elsewhere"})
    return Project(config, tmp_path)


def texts(directory):
    """Relative path -> text of the pages, SVG figures and printed numbers in a folder."""
    paths = [*directory.glob("*.md"), *directory.glob("figures/*.svg")]
    paths += directory.glob("numbers.csv")
    return {str(path.relative_to(directory)): path.read_text() for path in paths}


@pytest.mark.parametrize("machine", RENDERED)
def test_published_report_matches_its_evidence(copy, machine):
    render(copy, {machine: None})
    published, rendered = texts(ROOT / "report" / machine), texts(copy.report_directory / machine)
    assert set(published) == set(rendered) and "report.md" in published
    for name, text in published.items():
        assert rendered[name] == text, f"{name} differs from what its evidence renders to"


def test_published_machines_match_their_evidence():
    config = load_config(ROOT / "config/config.yaml", {"machine": "elsewhere"})
    rendered = files_of_overview(Project(config, ROOT))["machines.md"]
    assert (ROOT / "report" / "machines.md").read_text() == rendered


def test_machine_with_repeated_rows_can_be_compared():
    folder = ROOT / "report" / "cpu-amd-epyc-avx-512-bf16"
    assert (folder / "evidence" / "repeatability.csv").exists()
    one = read_result(str(folder))
    found = compare(one, one)
    assert found.not_compared["the same measurement in both"] > 100 and found.rows.empty
