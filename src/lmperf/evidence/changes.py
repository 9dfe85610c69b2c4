"""Find out why a row is stale: which part of its key has changed since it was measured.

A key is a digest: it shows that something has changed, but not what. So the parts from which a run
computed its keys are kept beside its rows, in `store/<stem>.code.json`:

    {"codes": [code, ...], "symbols": {fingerprint: {symbol: digest of its code}}}

where a code is the result of `keys.code_of`; the newest is last. Evidence that came with a clone
has no store. For its rows a change of the environment can still be told from a change of the code,
but the changed functions are unknown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from lmperf.benchmark import Benchmark
from lmperf.evidence.closure import closure_of
from lmperf.evidence.facts import IDENTIFYING, topology_of
from lmperf.evidence.keys import Code, code_of, row_key
from lmperf.evidence.plan import Plan
from lmperf.evidence.project import Project
from lmperf.evidence.store import STORE, Row, write_atomically

_NOT_RECORDED = "code, and which of it is not recorded"
_MOST_NAMES = 8


def keep(project: Project, plan: Plan) -> None:
    """Store the parts of a benchmark's keys, so that `Changes.of` can name a later change."""
    record = _read(project, plan)
    for name in plan.implementations:
        code = code_of(plan.benchmark, name)
        record["codes"] = [earlier for earlier in record["codes"] if earlier != code] + [code]
        record["symbols"] |= {
            code[part]: symbols for part, symbols in _symbols(plan.benchmark, code).items()
        }
    content = json.dumps(record, indent=1) + "\n"
    write_atomically(_path(project, plan), content.encode())


def _symbols(benchmark: Benchmark, code: Code) -> dict[str, dict[str, str]]:
    """`problem` or `implementation` -> symbol -> digest, for the code as it is today."""
    symbols = {"problem": closure_of(benchmark.entry).digests}
    return symbols | (
        {"implementation": closure_of(code["entry"]).digests} if code["entry"] else {}
    )


def _path(project: Project, plan: Plan) -> Path:
    return project.directory / STORE / f"{plan.stem}.code.json"


def _read(project: Project, plan: Plan) -> dict[str, Any]:
    try:
        return json.loads(_path(project, plan).read_bytes())
    except (OSError, ValueError):  # only messages depend on it
        return {"codes": [], "symbols": {}}


@dataclass(frozen=True)
class Changes:
    """Tells what has changed since the rows of a benchmark were measured."""

    project: Project
    plan: Plan

    @cached_property
    def _known(self) -> dict[str, Any]:
        return _read(self.project, self.plan)

    @cached_property
    def _environments(self) -> Mapping[str, Mapping[str, Any]]:
        return self.project.known_facts()["environments"]

    def of(self, row: Row) -> str:
        """Describe in words what has changed since a stale row was measured."""
        return ", ".join([*self._code(row), *self._environment(row)])

    def _environment(self, row: Row) -> list[str]:
        """Describe the changes of the environment, such as ``torch 2.11.0, now 2.13.0``."""
        machine = self.project.machine
        if row["environment"] == machine.environment:
            return []
        then, now = self._environments.get(row["environment"]), machine.facts
        changes = [
            f"{name} {then.get(name)}, now {now.get(name)}"
            for name in (IDENTIFYING if then else ())
            if then.get(name) != now.get(name)
        ]
        return [f"environment: {', '.join(changes) or 'not recorded'}"]

    def _code(self, row: Row) -> list[str]:
        """Describe the changes of the code since a row was measured; empty if there are none."""
        benchmark = self.plan.benchmark
        now = code_of(benchmark, row["implementation"])
        for then in (now, *reversed(self._known["codes"])):
            topology = topology_of(self._environments.get(row["environment"], {}))
            if row["key"] == row_key(benchmark, row, row["environment"], topology, then):
                return self._differences(then, now)
        return [_NOT_RECORDED]

    def _differences(self, then: Code, now: Code) -> list[str]:
        words = []
        if symbols := self._changed_symbols(then, now):
            more = [f"and {len(symbols) - _MOST_NAMES} more"] if len(symbols) > _MOST_NAMES else []
            words.append(f"code: {', '.join([*symbols[:_MOST_NAMES], *more])}")
        if then["method"] != now["method"]:
            words.append(f"method: version {then['method']}, now {now['method']}")
        if then["version"] != now["version"]:
            words.append(f"version: {then['version'] or 'none'}, now {now['version'] or 'none'}")
        parts = ("problem", "implementation", "method", "version")
        declared = [name for name in now if name not in parts and then.get(name) != now[name]]
        if declared:
            words.append(f"declaration: {', '.join(declared)}")
        return words

    def _changed_symbols(self, then: Code, now: Code) -> list[str]:
        """The names of the symbols that were changed, added or removed between two codes."""
        if then["entry"] != now["entry"]:  # the entry itself has changed
            then = {**then, "implementation": now["implementation"]}
        changed: dict[str, None] = {}
        for part, after in _symbols(self.plan.benchmark, now).items():
            before = self._known["symbols"].get(then[part], {})
            if then[part] != now[part]:
                names = sorted({*before, *after})
                changed |= {name: None for name in names if before.get(name) != after.get(name)}
        return list(changed)
