"""The audit says what it found, and never that all is well when nothing was looked up."""

import sys
from subprocess import CompletedProcess

import audit
import pytest

FINE = {"name": "jinja2", "version": "3.1.6", "vulns": []}
FLAWED = {
    "name": "pillow",
    "version": "1.0",
    "vulns": [{"id": "CVE-1", "fix_versions": ["1.1"]}, {"id": "CVE-2", "fix_versions": []}],
}
UNKNOWN = {"name": "torch", "skip_reason": "not found on PyPI"}


def test_every_vulnerability_is_a_line_and_fails():
    assert audit.judged([FINE, FLAWED]) == (
        1,
        [
            "pillow 1.0: CVE-1, fixed in 1.1",
            "pillow 1.0: CVE-2, fixed in no version",
            "audit: 2 known vulnerabilities in 2 packages",
        ],
    )


def test_what_could_not_be_looked_up_is_named():
    assert audit.judged([FINE, UNKNOWN]) == (
        0,
        ["audit: 0 known vulnerabilities in 1 packages; not looked up: torch"],
    )


def test_a_source_that_knows_nothing_is_no_clean_audit():
    code, (line,) = audit.judged([UNKNOWN, UNKNOWN])
    assert code == 0
    assert line.startswith("audit: skipped: ")


@pytest.mark.parametrize("said", ["", "Traceback\nConnectionError: no route\n"])
def test_a_source_that_is_out_of_reach_is_named(monkeypatch, said):
    done = CompletedProcess([], 1, stdout="", stderr=said)
    monkeypatch.setattr(audit, "_output", lambda *_: done)
    code, (line,) = audit.audit(sys.executable)
    assert code == 0
    assert line.startswith("audit: skipped: pip-audit cannot reach its source (")
    assert said.strip().splitlines()[-1:] == [] or "no route" in line
