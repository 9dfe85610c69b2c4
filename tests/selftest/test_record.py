"""Tests of the stored record of a selftest and of the page rendered from it."""

import shutil
from pathlib import Path

import pytest

from lmperf import cli
from lmperf.config.read import load_config
from lmperf.evidence.machine import Machine
from lmperf.evidence.project import Project
from lmperf.reporting.evidence import Evidence
from lmperf.reporting.files import SELFTEST
from lmperf.reporting.render import Page
from lmperf.reporting.selftest import HELD, NOT_HELD, NOT_RUN, read_selftest
from lmperf.selftest import run as running
from lmperf.selftest.run import line_of
from lmperf.selftest.sessions import SESSIONS

ROOT = Path(__file__).parents[2]
PUBLISHED = sorted(file.parent for file in ROOT.glob("report/*/selftest.csv"))


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("templates", "config"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    return Project(load_config(Path("config/config.yaml"), {"machine": "here", "preset": "cpu"}))


def page(directory):
    """The page of the self-test in the folder of a machine."""
    evidence = Evidence(directory.name, {}, selftest=read_selftest(directory))
    return Page("selftest", evidence).render()


def results(broken=()):
    here = Machine("here", "cpu", {"kind": "cpu", "devices": 2})
    for session in SESSIONS:
        for case in session.cases:
            reason = session.left_out(case, here)
            held = NOT_RUN if reason else NOT_HELD if case.name in broken else HELD
            yield line_of(case, reason or f"it reads {case.name}", held)


@pytest.mark.parametrize(("broken", "code"), [((), 0), (("drops_a_mask", "leaks"), 1)])
def test_command_names_cases_that_did_not_hold(project, monkeypatch, capsys, broken, code):
    monkeypatch.setattr(running, "run", lambda project: results(broken))
    assert cli.main(["--config", "machine=here", "--config", "preset=cpu", "selftest"]) == code
    said = capsys.readouterr()
    assert ("drops_a_mask" in said.err) is bool(code) and "2 not run" in said.out
    (written,) = Path().rglob(SELFTEST)
    text = page(written.parent)
    assert ("**Not held: drops_a_mask and leaks.**" in text) is bool(code)
    for name, held in (("drops_a_mask", "no" if code else "yes"), ("works_on_a_stream", "not run")):
        (line,) = [line for line in text.splitlines() if line.startswith(f"| {name} |")]
        assert line.endswith(f"| {held} |")


@pytest.mark.parametrize("folder", PUBLISHED, ids=lambda folder: folder.name)
def test_published_selftest_is_what_its_record_renders_to(folder):
    assert (folder / "selftest.md").read_text() == page(folder)
