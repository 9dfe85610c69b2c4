"""What `machine.json` records of a user's implementations: what keys of their rows need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lmperf.benchmark import Implementation

_FIELDS = ("entry", "options", "tolerance", "compiles", "models")


def declaration(implementation: Implementation) -> dict[str, Any]:
    """What is recorded of an implementation: its entry, and what differs from the default."""
    default = Implementation(implementation.name)
    given = {name: getattr(implementation, name) for name in _FIELDS}
    return {name: value for name, value in given.items() if value != getattr(default, name)}


def declared(environments: Iterable[Mapping[str, Any]], stem: str) -> dict[str, Implementation]:
    """Name -> the user's implementation that environments recorded of a benchmark, the last one."""
    custom = {}
    for facts in environments:
        for key, given in (facts.get("implementations") or {}).items():
            owner, _, name = key.partition(".")
            if owner == stem and name:
                models = tuple(tuple(model) for model in given.get("models", ()))
                custom[name] = Implementation(name, origin="custom", **given | {"models": models})
    return custom
