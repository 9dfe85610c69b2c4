"""A permission to publish evidence although rows of it are not right.

It stands in `machine.json`, so that it is published and shown, and holds for exactly the causes
for which `verify` failed when it was given:

    "despite": {"reason": why, "rows": number of rows, "of": digest of the causes, "at": time}

Damaged files and edited pages are never published.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from lmperf.evidence.facts import Facts, read_facts, write_facts
from lmperf.evidence.reviewed import Cause
from lmperf.evidence.syntax import digest

NAME = "despite"


def allow(directory: Path, machine: str, causes: Sequence[Cause], reason: str) -> None:
    """Record in `machine.json` why rows may be published although they are not right."""
    at = datetime.now(UTC).isoformat(timespec="seconds")
    rows = sum(len(cause.names) for cause in causes)
    found = {"reason": reason, "rows": rows, "of": _digest(causes), "at": at}
    write_facts(directory, read_facts(directory, machine) | {NAME: found})


def reason_for(facts: Facts, causes: Sequence[Cause]) -> str:
    """Why rows with exactly these causes are published; "" if nobody has said so."""
    found = facts.get(NAME) or {}
    return found["reason"] if causes and found.get("of") == _digest(causes) else ""


def words(causes: Sequence[Cause]) -> str:
    """What is wrong with the rows: "red gate 2, stale 12"."""
    numbers: dict[str, int] = {}
    for cause in causes:
        numbers[cause.kind] = numbers.get(cause.kind, 0) + len(cause.names)
    return ", ".join(f"{kind} {number:,}" for kind, number in numbers.items())


def _digest(causes: Sequence[Cause]) -> str:
    return digest(repr(sorted(line for cause in causes for line in cause.lines)))
