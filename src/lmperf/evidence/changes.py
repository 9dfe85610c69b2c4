"""Why a row is stale: what of its key has changed since it was measured.

A key says only that something has. What the keys of a run are made of is kept beside its rows, in
`store/code.json`: {"codes": {stem: [code of a key, ...]}, "modules": {fingerprint: {module: digest
of its code}}}, the newest last. Evidence that came with a clone has no store: then the environment
can be told from the code, and no module is named.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from lmperf.evidence.keys import code_of, digests, row_key_of
from lmperf.evidence.machine import environment_changes
from lmperf.evidence.plan import Plan, Project
from lmperf.evidence.store import DamagedEvidence, Row, read_signed, write_signed

FILE = "code.json"
_FORGOTTEN = "code, and which of it is not recorded"

Code = list[str | int]


def keep(project: Project, plan: Plan) -> None:
    """Note what the keys of a benchmark's rows are made of today."""
    known = _read(project.store)
    own = plan.benchmark.external
    codes = known["codes"].setdefault(plan.stem, [])
    for implementation in dict.fromkeys(case.implementation for case in plan.cases):
        code = code_of(plan.stem, implementation, own)
        codes[:] = [one for one in codes if one != code] + [code]
        for fingerprint, module in _modules(plan.stem, code):
            known["modules"][fingerprint] = digests(module)
    content = (json.dumps(known, indent=1) + "\n").encode()
    write_signed(project.store / FILE, content)


def _modules(stem: str, code: Sequence[str | int]) -> list[tuple[str, str]]:
    """The fingerprints that a code holds, each with its module: the benchmark's, a user's own."""
    fingerprint, _, *own = code
    found = [(str(fingerprint), f"lmperf.benchmarks.{stem}")]
    return found + ([(str(own[0]), str(own[1]).partition(":")[0])] if own else [])


def _last(code: Code) -> str | int:
    """The version of another project's package, of a code that holds one."""
    return code[5] if len(code) > 5 else "none"


def _read(store: Path) -> dict[str, Any]:
    try:
        content = read_signed(store / FILE)
        return json.loads(content) if content else {"codes": {}, "modules": {}}
    except (DamagedEvidence, ValueError):  # it decides nothing: what it said is not known any more
        return {"codes": {}, "modules": {}}


@dataclass(frozen=True)
class Changes:
    """What has changed since the rows of a benchmark were measured."""

    project: Project
    plan: Plan

    @cached_property
    def _known(self) -> dict[str, Any]:
        return _read(self.project.store)

    @cached_property
    def _environments(self) -> Mapping[str, Mapping[str, Any]]:
        return self.project.known_facts()[0]["environments"]

    def of(self, row: Row) -> str:
        """What has changed since a stale row was measured, in words."""
        return ", ".join([*self._code(row), *self._environment(row)])

    def _environment(self, row: Row) -> list[str]:
        if row["environment"] == self.plan.environment:
            return []
        then = self._environments.get(row["environment"])
        changes = environment_changes(then, self.project.machine.facts) if then else []
        return [f"environment: {', '.join(changes) or 'not recorded'}"]

    def _code(self, row: Row) -> list[str]:
        """What of its code has changed; nothing where only the environment has."""
        stem, own = self.plan.stem, self.plan.benchmark.external
        axes = [axis.name for axis in self.plan.benchmark.axes]
        today = code_of(stem, row["implementation"], own)
        for code in (today, *reversed(self._known["codes"].get(stem, []))):
            if row_key_of(code, stem, row, axes, row["environment"]) == row["key"]:
                return self._differences(code, today)
        return [_FORGOTTEN]

    def _differences(self, then: Code, now: Code) -> list[str]:
        modules: dict[str, None] = {}
        for (old, _), (new, module) in zip(
            _modules(self.plan.stem, then), _modules(self.plan.stem, now), strict=False
        ):
            if old != new:
                before, after = self._known["modules"].get(old, {}), digests(module)
                names = sorted({*before, *after})
                modules |= {name: None for name in names if before.get(name) != after.get(name)}
        words = [f"code: {', '.join(modules)}"] if modules else []
        if then[1] != now[1]:
            words.append(f"method: version {then[1]}, now {now[1]}")
        if then[3:5] != now[3:5]:
            words.append("configuration: what it uses or declares")
        if then[5:] != now[5:]:
            words.append(f"version: {_last(then)}, now {_last(now)}")
        return words
