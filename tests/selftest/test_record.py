"""Tests of the stored record of a selftest and of the page rendered from it."""

import shutil
from pathlib import Path

import pytest

from lmperf import cli
from lmperf.config import load_config
from lmperf.evidence.machine import Machine
from lmperf.evidence.project import Project
from lmperf.selftest import run as running
from lmperf.selftest.cases import SESSIONS
from lmperf.selftest.expectations import Outcome
from lmperf.selftest.run import Result
from lmperf.selftest.write import PAGE, page, write

ROOT = Path(__file__).parents[2]
PUBLISHED = sorted((ROOT / "docs/selftest").iterdir())


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("templates", "config"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    return Project(load_config(Path("config/config.yaml"), {"machine": "here", "preset": "cpu"}))


def results(broken=()):
    here = Machine("here", "cpu", {"kind": "cpu", "devices": 2})
    for session in SESSIONS:
        for case in session.cases:
            reason = session.left_out(case, here)
            outcome = None if reason else Outcome(f"it reads {case.name}", case.name not in broken)
            yield Result(case, outcome, reason)


def test_every_case_has_a_line_with_its_guard(project):
    text = write(project, list(results())).read_text()
    for result in results():
        case = result.case
        (line,) = [line for line in text.splitlines() if line.startswith(f"| {case.name} |")]
        assert case.why in line
        assert line.endswith("| not run |" if case.needs else "| yes |")
    assert "Not held" not in text and "works_on_a_stream" in text.partition("|")[0]


def test_cases_that_did_not_hold_are_named_first(project):
    text = write(project, list(results(["drops_a_mask", "leaks"]))).read_text()
    assert "**Not held: drops_a_mask and leaks.**" in text
    assert "| it reads drops_a_mask | no |" in text


@pytest.mark.parametrize(("broken", "code"), [((), 0), (("drops_a_mask",), 1)])
def test_command_fails_and_names_cases_that_did_not_hold(
    project, monkeypatch, capsys, broken, code
):
    monkeypatch.setattr(running, "run", lambda project: results(broken))
    assert cli.main(["--config", "machine=here", "--config", "preset=cpu", "selftest"]) == code
    said = capsys.readouterr()
    assert ("drops_a_mask" in said.err) is bool(code)
    assert "2 not run" in said.out


@pytest.mark.parametrize("folder", PUBLISHED, ids=lambda folder: folder.name)
def test_published_selftest_is_what_its_record_renders_to(folder):
    assert (folder / PAGE).read_text() == page(folder)
