"""Tests of `lmperf list`: which cases must be measured, and what changed since the last time.

A change is one of the code, the method or the environment.
"""

import dataclasses

import pytest
from made_up import pretend

from lmperf.config.read import load_config
from lmperf.evidence import changes, closure
from lmperf.evidence.keys import METHOD_VERSION
from lmperf.evidence.project import Project
from lmperf.evidence.record import record

pytestmark = pytest.mark.slow

CUSTOM = "implementations: {flash_attention: {mine: 'my_functions:attention'}}\n"
SIBLING = "from my_sibling import scale\n"


@pytest.fixture
def measured(folder, monkeypatch):
    """A folder with evidence for all its cells, including a custom implementation's."""
    (folder / "my_sibling.py").write_text("scale = 1\n")
    source = folder / "my_functions.py"
    source.write_text(SIBLING + source.read_text())
    config = folder / "config/config.yaml"
    config.write_text(config.read_text() + CUSTOM)

    pretend(monkeypatch)
    project = Project(load_config(config), folder)
    record(project, project.plan("flash_attention"))
    return folder


def reasons(project):
    plan = project.plan("flash_attention")
    found = changes.Changes(project, plan)
    rows = {
        case.implementation: plan.stale_row(case)
        for case, why in plan.due.items()
        if why == "stale"
    }
    return {name: found.of(row) for name, row in rows.items()}


def project_of(folder):
    return Project(load_config(folder / "config/config.yaml"), folder)


def test_unchanged_cases_are_listed_as_fresh(measured, lmperf):
    code, out, _ = lmperf("list", "flash_attention")
    assert code == 0 and out.count(": fresh") == 3
    due = lmperf("list", "flash_attention", "--due")[1].splitlines()
    assert due[1:] == ["flash_attention: 0 of 3 cases to measure"]


def test_changed_symbols_of_the_code_are_named(measured, monkeypatch):
    (measured / "my_sibling.py").write_text("scale = 2\n")
    closure._running.cache_clear()
    assert reasons(project_of(measured)) == {"mine": "code: my_sibling"}
    reached = "lmperf.attention.tiled:tiled_attention"
    monkeypatch.setattr(changes, "closure_of", with_another(changes.closure_of, reached))
    monkeypatch.setattr(changes, "code_of", of_other_code(changes.code_of))
    monkeypatch.setattr("lmperf.evidence.keys.row_key", lambda _, row, *__: row["implementation"])
    assert reasons(project_of(measured))["eager"] == f"code: {reached}"


def with_another(closure_of, symbol):
    """A replacement of `closure_of` whose closures have one more symbol."""
    return lambda *entry: closure.Closure({**closure_of(*entry).digests, symbol: "new"})


def of_other_code(code_of):
    """A replacement of `code_of` in which the code of every problem has changed."""
    return lambda benchmark, name: {**code_of(benchmark, name), "problem": "new"}


def test_changed_environment_names_what_changed(measured):
    project = project_of(measured)
    facts = {**project.machine.facts, "torch": "9.9"}
    project.machine = dataclasses.replace(project.machine, facts=facts)
    found = reasons(project)
    assert set(found) == {"eager", "sdpa", "mine"}
    assert found["eager"].startswith("environment: torch ") and "now 9.9" in found["eager"]


def test_changed_custom_declaration_is_named(measured):
    config = measured / "config/config.yaml"
    config.write_text(config.read_text().replace(":attention'", ":doubled'"))
    assert reasons(project_of(measured)) == {"mine": "declaration: entry"}


def test_changed_method_version_is_named(measured, monkeypatch):
    monkeypatch.setattr("lmperf.evidence.keys.METHOD_VERSION", 99)
    assert set(reasons(project_of(measured)).values()) == {
        f"method: version {METHOD_VERSION}, now 99"
    }


@pytest.mark.parametrize("content", [None, "{"])
def test_stale_code_without_a_record_names_no_symbol(measured, monkeypatch, content):
    path = measured / "report/here/store/flash_attention.code.json"
    path.unlink() if content is None else path.write_text(content)
    monkeypatch.setattr("lmperf.evidence.keys.METHOD_VERSION", 99)
    words = "code, and which of it is not recorded"
    assert set(reasons(project_of(measured)).values()) == {words}
