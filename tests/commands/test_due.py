"""What is due, and why: which of cell, code and environment, and which module."""

import dataclasses
import json

import pytest

from lmperf.config import load_config
from lmperf.evidence import changes
from lmperf.evidence.plan import Project
from lmperf.evidence.record import record

OWN = "implementations: {flash_attention: {mine: 'own_of_commands:attention'}}\n"
SIBLING = "from own_sibling_of_commands import scale\n"


@pytest.fixture
def measured(folder, monkeypatch):
    """A folder whose cells, one of the user's own among them, have rows as a job leaves them."""
    (folder / "own_sibling_of_commands.py").write_text("scale = 1\n")
    source = folder / "own_of_commands.py"
    source.write_text(SIBLING + source.read_text())
    config = folder / "config/config.yaml"
    config.write_text(config.read_text() + OWN)

    def measure(benchmark, groups, device, save, *_):
        for group in groups:
            names = [{**c.axes, "implementation": c.implementation} for c in group]
            about = {"status": "unsupported", "reason": "not here", "seed": 1}
            phases = benchmark.phases
            save([{**name, "phase": phase, **about} for name in names for phase in phases], {})

    monkeypatch.setattr("lmperf.evidence.record.measure", measure)
    project = Project(load_config(config), folder)
    record(project, project.plan("flash_attention"))
    return folder


def reasons(project):
    plan = project.plan("flash_attention")
    found = changes.Changes(project, plan)
    rows = {case.implementation: plan.stale_row(case) for case, why in plan.due if why == "stale"}
    return {name: found.of(row) for name, row in rows.items()}


def project_of(folder):
    return Project(load_config(folder / "config/config.yaml"), folder)


def test_fresh_cells_are_listed_as_such(measured, lmperf):
    code, out, _ = lmperf("list", "flash_attention")
    assert code == 0 and out.count(": fresh") == 3
    due = lmperf("list", "flash_attention", "--due")[1].splitlines()
    assert due[1:] == ["flash_attention: 0 of 3 cases to measure"]


def test_a_changed_module_is_named(measured, monkeypatch):
    digests = changes.digests
    monkeypatch.setattr(changes, "digests", lambda m: digests(m) | {"own_sibling_of_commands": "x"})
    known = json.loads((measured / "report/here/store/code.json").read_text())
    ours = [f for f, m in known["modules"].items() if "own_sibling_of_commands" in m]
    monkeypatch.setattr(changes, "code_of", of_another(ours[0]))
    key = "lmperf.evidence.plan.row_key"
    monkeypatch.setattr(key, lambda s, columns, *_: columns["implementation"])
    found = reasons(project_of(measured))
    assert found["mine"] == "code: own_sibling_of_commands"
    assert found["eager"] == ""


def of_another(fingerprint):
    """`code_of` as if the code of that fingerprint had been changed."""
    code_of = changes.code_of

    def changed(*arguments):
        return ["changed" if part == fingerprint else part for part in code_of(*arguments)]

    return changed


def test_another_environment_is_named_with_what_makes_it_another(measured):
    project = project_of(measured)
    facts = {**project.machine.facts, "torch": "9.9"}
    project.machine = dataclasses.replace(project.machine, facts=facts)
    found = reasons(project)
    assert set(found) == {"eager", "sdpa", "mine"}
    assert found["eager"].startswith("environment: torch ") and "now 9.9" in found["eager"]


def test_a_declaration_of_ones_own_is_named(measured):
    config = measured / "config/config.yaml"
    config.write_text(config.read_text().replace(":attention'", ":doubled'"))
    assert reasons(project_of(measured)) == {"mine": "configuration: what it uses or declares"}


def test_another_method_is_named(measured, monkeypatch):
    monkeypatch.setattr("lmperf.evidence.keys.METHOD_VERSION", 99)
    assert set(reasons(project_of(measured)).values()) == {"method: version 5, now 99"}


@pytest.mark.parametrize("content", [None, "{", "[]"])
def test_without_a_record_of_the_code_it_is_said_that_it_is_code(measured, monkeypatch, content):
    path = measured / "report/here/store/code.json"
    path.unlink() if content is None else path.write_text(content)
    monkeypatch.setattr("lmperf.evidence.keys.METHOD_VERSION", 99)
    words = "code, and which of it is not recorded"
    assert set(reasons(project_of(measured)).values()) == {words}
