"""Read and write `machine.json`: the facts of the machine that measured.

{"machine": slug, "preset": "gpu", "environments": {digest of an environment: its facts}}

There may be "allowed" and "despite" as well: see `lmperf.evidence.at_work` and `despite`.

Rows refer to an environment by the digest in their column `environment`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, StrictBool, StrictInt, StrictStr, ValidationError

from lmperf.evidence.store import DamagedEvidence, holds, read_signed, write_signed

Facts = dict[str, Any]
FILE = "machine.json"
# Permissions to publish, which a later job keeps.
PERMISSIONS = ("allowed", "despite")
# Facts that identify the hardware: two machines differ if one of these differs.
_HARDWARE = ("kind", "device")


class _Environment(BaseModel):
    kind: StrictStr | None = None
    device: StrictStr | None = None
    lmperf: StrictStr | None = None
    commit: StrictStr | None = None
    dirty: StrictBool | None = None
    measured_at: StrictStr | None = None
    peers: dict[str, StrictStr] = {}
    implementations: dict[str, StrictStr] = {}


class _Permission(BaseModel):
    reason: StrictStr
    rows: StrictInt
    of: StrictStr
    at: StrictStr


class _Facts(BaseModel):
    machine: StrictStr
    preset: Literal["cpu", "gpu"]
    environments: dict[str, _Environment]
    allowed: _Permission | None = None
    despite: _Permission | None = None


def read_facts(directory: Path, machine: str) -> Facts:
    """Return the content of `machine.json` in a folder; `empty(machine)` if there is no file.

    Raises:
        DamagedEvidence: the file does not match its digest, does not hold the facts of a machine,
            or belongs to another machine.
    """
    path = directory / FILE
    content = read_signed(path)
    if content is None:
        return empty(machine)
    facts = facts_in(path, content)
    if facts["machine"] != machine:
        raise DamagedEvidence(f"{path} belongs to the machine {facts['machine']}")
    return facts


def facts_in(path: Path, content: bytes) -> Facts:
    """Return the facts in the content of `machine.json`.

    Raises:
        DamagedEvidence: the content is not that of the facts of a machine.
    """
    try:
        _Facts.model_validate_json(content)
        return json.loads(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        problem = f"{place}: {first['msg']}" if place else first["msg"]
        raise DamagedEvidence(f"{path} does not hold the facts of a machine: {problem}") from None
    except (ValueError, RecursionError) as error:  # a number of too many digits, too many brackets
        raise DamagedEvidence(f"{path} does not hold the facts of a machine: {error}") from None


def empty(machine: str) -> Facts:
    """Return the facts of a machine without `machine.json`; its slug decides the preset."""
    preset = "cpu" if machine.startswith(("cpu-", "mps-")) else "gpu"
    return {"machine": machine, "preset": preset, "environments": {}}


def write_facts(directory: Path, facts: Facts) -> None:
    """Write these facts to `machine.json`, unless the file already has exactly these facts."""
    path, content = directory / FILE, (json.dumps(facts, indent=2) + "\n").encode()
    if not holds(path, content):
        write_signed(path, content)


def hardware(facts: Facts) -> dict[str, Any]:
    """Return the facts of an environment that identify the hardware: kind and device name."""
    return {name: facts.get(name) for name in _HARDWARE}
