"""tools/audit.py lists known vulnerabilities, and states if it could look up no package."""

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


def test_vulnerabilities_are_listed_and_fail():
    assert audit.judged([FINE, FLAWED]) == (
        1,
        [
            "pillow 1.0: CVE-1, fixed in 1.1",
            "pillow 1.0: CVE-2, fixed in no version",
            "audit: 2 known vulnerabilities in 2 packages",
        ],
    )


@pytest.mark.parametrize("said", ["", "Traceback\nConnectionError: no route\n"])
def test_unreachable_package_source_skips_the_audit(monkeypatch, said):
    done = CompletedProcess([], 1, stdout="", stderr=said)
    monkeypatch.setattr(audit, "_output", lambda *_: done)
    code, (line,) = audit.audit(sys.executable)
    assert code == 0
    assert line.startswith("audit: skipped: pip-audit cannot reach its source (")
    assert said.strip().splitlines()[-1:] == [] or "no route" in line
