"""The problems of Stanford CS336, assignment 2: rows of the subject, and what their answers say.

The subject of a benchmark is lmperf's own implementation, or in a report on custom ones those that
the user brought. Tables show all of them, sentences are about the first that has a result.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cached_property

from lmperf.benchmarks import load, stems
from lmperf.evidence.cases import case_of_row, measurable, texts_of
from lmperf.evidence.facts import devices_of
from lmperf.machine import bf16
from lmperf.reporting.calculations.accumulation import spacing
from lmperf.reporting.calculations.steps import EAGER
from lmperf.reporting.frames import having, required
from lmperf.reporting.gains import Gain
from lmperf.reporting.html import anchor
from lmperf.reporting.rows import Rows
from lmperf.reporting.sections import Section
from lmperf.reporting.words import NotMeasured
from lmperf.statistics import UNRESOLVED
from lmperf.workflow import TEMPLATES

# What a report is about that is not about custom implementations.
MODELS = ("end_to_end", "warmup", "profiles", "memory", "memory_timeline", "checkpointing")
LMPERF = dict.fromkeys((*MODELS, "attention"), (EAGER,)) | {"flash_attention": ("triton", "tiled")}
ABOUT = (
    *("end_to_end", "warmup", "profiles", "mixed_precision", "memory", "memory_timeline"),
    *("checkpointing", "attention", "flash_attention", "collectives"),
    *("distributed", "distributed_overlap", "distributed_memory"),
)


class Course(Section):
    """What the page is about, and which problems it has; `course_*` have their answers."""

    spacing = staticmethod(spacing)

    @cached_property
    def places(self) -> dict[str, str]:
        """Table -> its page with the anchor of its heading, which its template has."""
        places = {
            "Ceilings": "method.md#ceilings",
            "R1": "method.md#r1-rows-measured-a-second-time",
            "E5": "../machines.md#e5-the-same-train-steps-on-several-machines",
        }
        for stem in stems():
            path = TEMPLATES / f"{stem}.md.j2"
            text = path.read_text(encoding="utf-8") if path.exists() else ""
            for name, title in re.findall(r"^## ([A-Z]\d+)\. (.*)$", text, re.MULTILINE):
                places[name] = f"{stem}.md#{anchor(f'{name}. {title}')}"
        return places

    def linked(self, tables: str) -> list[tuple[str, str]]:
        """(table, its place) of some tables, of those whose page the report has."""
        there = {load(stem).section or stem for stem in self.evidence.stems} | {"method"}
        every = [(name, self.places[name]) for name in tables.split()]
        return [(name, place) for name, place in every if place.partition(".")[0] in there]

    def shows(self, year: int | None) -> bool:
        """Whether the page has problems of one year only; None: of both."""
        return year is None or self.evidence.course in (None, year)

    @property
    def brought(self) -> list[str]:
        """The custom implementations that the page is about."""
        names = [name for stem in ABOUT for name in self.evidence.subjects(stem)]
        return [*dict.fromkeys(names)]

    def names(self, stem: str) -> list[str]:
        """The subjects of a benchmark that have rows; none in a report that does not bring one."""
        own = self.evidence.subjects(stem)
        if not own and self._is_left_out(stem):
            return []
        rows = self.evidence.rows(stem)["implementation"].values
        return [name for name in own or LMPERF.get(stem, ()) if name in rows]

    def _is_left_out(self, stem: str) -> bool:
        """Whether lmperf's rows of a benchmark are no subject of the report."""
        is_about_machine = stem in ("mixed_precision", "collectives", "ceilings")
        return self.evidence.is_own and not self.evidence.reference and not is_about_machine

    def every(self, stem: str) -> Rows:
        """The rows of all subjects of a benchmark; all rows of one without implementations."""
        rows = self.rows(stem)
        is_of_one = stem in LMPERF or self.evidence.subjects(stem)
        if is_of_one or self._is_left_out(stem):
            return rows.kept(having(rows.frame, implementation=self.names(stem)))
        return rows

    def subject(self, stem: str) -> str:
        """The subject that sentences are about."""
        there = self.every(stem).valid.frame["implementation"].values
        return required([name for name in self.names(stem) if name in there], f"no {stem}")[0]

    def one(self, stem: str) -> Rows:
        """Its rows, which sentences may rest on or not."""
        return self.rows(stem).where(implementation=self.subject(stem))

    def unmeasured(self, needs: str, is_answered: bool, lack: str = "rows") -> list[tuple[str]]:
        """The benchmarks that a problem needs and that have no rows; all, if nothing is said.

        lack: those that a run adds `rows` of, or for which this machine lacks `devices` or `cells`.
        """
        needed = [stem for stem in needs.split() if not self.reasons(stem)]
        without = [stem for stem in needed if not self.every(stem)]
        without = without or ([] if is_answered else needed)
        return [(stem,) for stem in without if self._lack(stem) == lack]

    def _lack(self, stem: str) -> str:
        """Why this machine has no rows of a benchmark, as of `unmeasured`."""
        if self.evidence.declared(stem):
            return "rows"
        benchmark, raw = load(stem), self.evidence.raw
        devices = max(map(devices_of, self.evidence.environments.values()), default=1)
        if devices < benchmark.least_devices:
            return "devices"
        cases = benchmark.cases("gpu" if self.evidence.is_cuda else "cpu")
        emulates = bf16.slowdown_in(raw.get("ceilings", ())) > bf16.SLOW
        rows = [row for row in raw.get(stem, ()) if row["key"] not in self.evidence.stale]
        done = {case_of_row(benchmark, row) for row in rows}
        cases = measurable(benchmark, cases, devices, emulates)
        return "rows" if any(texts_of(case) not in done for case in cases) else "cells"

    def left_out(self, needs: str, reason: str) -> list[tuple[str]]:
        """The benchmarks of which a report on custom implementations says nothing, and why:
        `not brought`, or lmperf measures its `own only`."""
        return [(stem,) for stem in needs.split() if self.reasons(stem) == reason]

    def reasons(self, stem: str) -> str:
        if self.evidence.declared(stem) or not self._is_left_out(stem):
            return ""
        return "not brought" if load(stem).takes else "own only"

    def beside(self, stem: str) -> list[tuple[str, str, Gain]]:
        """(subject, the first one, its speed-up over that), of several subjects of a benchmark."""
        first, *others = self.names(stem) or [""]
        return resolved(self.rows(stem), [(name, first) for name in others])

    @property
    def is_lmperf(self) -> bool:
        """Whether the page is about lmperf's own implementations."""
        return not self.evidence.is_own or self.evidence.reference


def resolved(rows: Rows, pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str, Gain]]:
    """(implementation, base, its speed-up over that) of those of which something can be said."""
    gains = []
    for name, base in pairs:
        with suppress(NotMeasured):
            gain = rows.where(implementation=name).over(base)
            if gain.verdict != UNRESOLVED:
                gains.append((name, base, gain))
    return gains


def is_measured(measured: Sequence[str]) -> bool:
    """Whether any of these benchmarks belongs to a problem of the course."""
    return not {*ABOUT}.isdisjoint(measured)
