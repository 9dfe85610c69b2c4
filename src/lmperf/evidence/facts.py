"""`machine.json`: the facts of all environments in which a machine measured.

Rows refer to an environment by its digest, in their column `environment`:

    {"machine": slug, "preset": "gpu", "environments": {digest of an environment: its facts}}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from lmperf.benchmark import CPU_DEVICES
from lmperf.evidence.store import as_written, conflict_in, write_atomically

FILE = "machine.json"
# The facts by which two environments differ: rows of one are stale in the other.
IDENTIFYING = ("kind", "device", "driver_branch", "torch", "cuda", "triton", "threads", "settings")

Facts = dict[str, Any]


class _Facts(BaseModel, extra="allow"):
    machine: str
    preset: str
    environments: dict[str, dict[str, Any]]
    anyway: dict[str, str] | None = None


def read_facts(directory: Path, machine: str = "") -> tuple[Facts, str]:
    """Return the content of `machine.json` in a folder, and a message if the file is damaged.

    Then, and if there is no file, the facts are those of a machine that has not measured.

    machine: whose facts they must be; by default those of any machine.
    """
    path, nothing = directory / FILE, _empty(machine or directory.name)
    if not path.exists():
        return nothing, ""
    content = as_written(path.read_bytes())
    if line := conflict_in(content):
        return nothing, f"{path}: line {line} is a conflict marker of a merge; take one side"
    try:
        facts = _Facts.model_validate_json(content).model_dump(exclude_unset=True)
    except ValidationError as error:
        first = error.errors()[0]
        problem = ": ".join(map(str, (*first["loc"], first["msg"])))
        return nothing, f"{path} does not hold the facts of a machine: {problem}"
    if facts["machine"] != (machine or facts["machine"]):
        return nothing, f"{path} belongs to the machine {facts['machine']}"
    return facts, ""


def _empty(machine: str) -> Facts:
    """Return the facts of a machine without `machine.json`; its slug decides the preset."""
    preset = "cpu" if machine.startswith(("cpu-", "mps-")) else "gpu"
    return {"machine": machine, "preset": preset, "environments": {}}


def write_facts(directory: Path, facts: Facts) -> None:
    """Write these facts to `machine.json`."""
    write_atomically(directory / FILE, (json.dumps(facts, indent=2) + "\n").encode())


def devices_of(facts: Mapping[str, Any]) -> int:
    """Return the number of devices of a machine from its facts; a CPU counts as CPU_DEVICES."""
    return CPU_DEVICES if facts.get("kind") == "cpu" else facts.get("devices", 1)


def topology_of(facts: Mapping[str, Any]) -> str:
    """Return the number of GPUs and the links of each pair as a text; empty for one device."""
    if facts.get("devices", 1) < 2:
        return ""
    links = ", ".join(f"{pair} {link}" for pair, link in sorted(facts["links"].items()))
    return f"{facts['devices']} devices: {links}"
