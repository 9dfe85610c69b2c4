"""List known vulnerabilities of the packages in an environment, with pip-audit.

    python tools/audit.py .venv/bin/python

Exit codes: 1 if a vulnerability is known, 0 otherwise. pip-audit reports no vulnerability for a
package that its source does not know. A mirror without any data would thus pass every package, so
packages that were not looked up are named, and an audit without any result is called skipped.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

_SITE = "import sysconfig; print(sysconfig.get_path('purelib'))"


def audit(python: str) -> tuple[int, list[str]]:
    """Exit code and lines for the environment of a Python interpreter."""
    site = _output(python, "-c", _SITE).stdout.strip()
    arguments = ("--skip-editable", "--progress-spinner", "off", "--format", "json")
    done = _output(sys.executable, "-m", "pip_audit", "--path", site, *arguments)
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        *_, last = done.stderr.strip().splitlines() or ["pip-audit printed nothing"]
        return 0, [f"audit: skipped: pip-audit cannot reach its source ({last[:300]})"]
    return judged(packages)


def judged(packages: Sequence[dict]) -> tuple[int, list[str]]:
    """Exit code and lines to print for the packages in the output of pip-audit."""
    unknown = [package["name"] for package in packages if "vulns" not in package]
    if len(unknown) == len(packages):
        return 0, ["audit: skipped: the source that pip-audit reaches knows none of the packages"]
    found = [
        f"{package['name']} {package['version']}: {flaw['id']}, fixed in"
        f" {', '.join(flaw['fix_versions']) or 'no version'}"
        for package in packages
        for flaw in package.get("vulns", ())
    ]
    looked_up = len(packages) - len(unknown)
    summary = f"audit: {len(found)} known vulnerabilities in {looked_up} packages"
    if unknown:
        summary += f"; not looked up: {', '.join(unknown)}"
    return int(bool(found)), [*found, summary]


def _output(*command: str) -> subprocess.CompletedProcess:
    return subprocess.run(command, capture_output=True, text=True)


if __name__ == "__main__":
    code, lines = audit(sys.argv[1])
    print(*lines, sep="\n")
    sys.exit(code)
