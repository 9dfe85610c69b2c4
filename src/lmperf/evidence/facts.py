"""Read and write `machine.json`: the facts of the machine that measured.

{"machine": slug, "preset": "gpu", "environments": {environment of a row's key: its facts}}
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lmperf.evidence.store import DamagedEvidence, holds, read_signed, write_signed

Facts = dict[str, Any]
FILE = "machine.json"
# The facts by which two machines differ.
_HARDWARE = ("kind", "device")


def read_facts(directory: Path, machine: str) -> Facts:
    """Return the facts in a machine's folder or store; `empty(machine)` if there is no file.

    Raises:
        DamagedEvidence: the file does not match its digest, or belongs to another machine.
    """
    path = directory / FILE
    content = read_signed(path)
    if content is None:
        return empty(machine)
    try:
        facts = json.loads(content)
    except ValueError as error:
        raise DamagedEvidence(f"{path} is not JSON: {error}") from None
    if not _is_valid(facts):
        raise DamagedEvidence(f"{path} does not hold the facts of a machine")
    if facts["machine"] != machine:
        raise DamagedEvidence(f"{path} belongs to the machine {facts['machine']}")
    return facts


def empty(machine: str) -> Facts:
    """The facts of a machine without a file; its preset is guessed from its slug."""
    preset = "cpu" if machine.startswith(("cpu-", "mps-")) else "gpu"
    return {"machine": machine, "preset": preset, "environments": {}}


def write_facts(directory: Path, facts: Facts) -> None:
    """Make these facts the content of `machine.json`; write only if they are not."""
    path, content = directory / FILE, (json.dumps(facts, indent=2) + "\n").encode()
    if not holds(path, content):
        write_signed(path, content)


def hardware(facts: Facts) -> dict[str, Any]:
    """The facts of an environment that identify the hardware."""
    return {name: facts.get(name) for name in _HARDWARE}


def _is_valid(facts: Any) -> bool:
    return (
        isinstance(facts, dict)
        and isinstance(facts.get("machine"), str)
        and facts.get("preset") in ("cpu", "gpu")
        and isinstance(facts.get("environments"), dict)
        and all(map(_is_environment, facts["environments"].values()))
    )


def _is_environment(facts: Any) -> bool:
    if not isinstance(facts, dict):
        return False
    tables = [facts.get(name, {}) for name in ("peers", "implementations")]
    return all(
        isinstance(table, dict) and all(isinstance(value, str) for value in table.values())
        for table in tables
    )
