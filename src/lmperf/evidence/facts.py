"""What is known of the machine that measured: `machine.json`, beside its digest.

{"machine": slug, "preset": "gpu", "environments": {environment of a row's key: its facts}}
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lmperf.evidence.store import DamagedEvidence, holds, read_signed, write_signed

Facts = dict[str, Any]
FILE = "machine.json"
# What tells one machine's hardware from another's.
_HARDWARE = ("kind", "device")


def read_facts(directory: Path, machine: str) -> Facts:
    """The facts of a machine in its folder, or in its store; `empty` where there are none.

    Raises:
        DamagedEvidence: the file is not the one that was recorded, or is another machine's.
    """
    path = directory / FILE
    content = read_signed(path)
    if content is None:
        return empty(machine)
    try:
        facts = json.loads(content)
    except ValueError as error:
        raise DamagedEvidence(f"{path} is no JSON: {error}") from None
    if not _has_form(facts):
        raise DamagedEvidence(f"{path} does not have the form of a machine's facts")
    if facts["machine"] != machine:
        raise DamagedEvidence(f"{path} is of the machine {facts['machine']}")
    return facts


def empty(machine: str) -> Facts:
    """Of a machine of which nothing is known; its grid is the one that its name speaks for."""
    preset = "cpu" if machine.startswith(("cpu-", "mps-")) else "gpu"
    return {"machine": machine, "preset": preset, "environments": {}}


def write_facts(directory: Path, facts: Facts) -> None:
    """Have these facts; nothing is written where they are there already."""
    path, content = directory / FILE, (json.dumps(facts, indent=2) + "\n").encode()
    if not holds(path, content):
        write_signed(path, content)


def hardware(facts: Facts) -> dict[str, Any]:
    """What tells the hardware of an environment from another machine's."""
    return {name: facts.get(name) for name in _HARDWARE}


def _has_form(facts: Any) -> bool:
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
    texts = [facts.get(name, {}) for name in ("peers", "implementations")]
    return all(isinstance(of, dict) and all(map(_is_text, of.values())) for of in texts)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)
