"""What to measure: the configured cases that have no fresh row; of kernels, with their group.

A row is fresh if its key is the one that it would get today (`lmperf.evidence.keys`). Kernels of a
group compare by the ratios of rounds, so one that is due brings its group with it. Steps compare by
stretches, which another process may have timed: only those that are due are measured.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from lmperf.benchmark import Benchmark, Case, Timed, ranks_of
from lmperf.evidence.cases import asked, case_of_row, texts_of
from lmperf.evidence.keys import row_key
from lmperf.evidence.machine import Machine
from lmperf.evidence.recorded_machine import RecordedMachine
from lmperf.evidence.rows import LOADED, fault_kind, is_loaded
from lmperf.evidence.store import Row, RowFiles, is_ahead


@dataclass(frozen=True)
class Plan:
    """The cases of a benchmark on a machine, and what is known of them.

    Files are read once, on first use; `dataclasses.replace(plan)` reads them again.

    Attributes:
        cases: the cases whose rows the view and the report have.
        machine: the machine that measures, or has measured; it knows which rows are fresh.
        head: the cases that are measured first.
        quick: whether only those are measured.
        repeated: the cases that are measured a second time, once all have rows.
        again: kinds of fault (`fault_kind`) that are measured again although their rows are fresh.
        forced: whether cases are measured although they are fresh.
    """

    benchmark: Benchmark
    cases: tuple[Case, ...]
    files: RowFiles
    machine: Machine | RecordedMachine
    head: frozenset[Case] = frozenset()
    quick: bool = False
    repeated: frozenset[Case] = frozenset()
    again: frozenset[str] = frozenset()
    forced: bool = False

    @property
    def stem(self) -> str:
        return self.benchmark.stem

    @property
    def implementations(self) -> list[str]:
        """The names of the implementations of the cases, without repetition."""
        return list(dict.fromkeys(case.implementation for case in self.cases))

    @property
    def chosen(self) -> list[Case]:
        """The cases that must have fresh rows: a run measures them unless they have."""
        return [case for case in self.cases if not self.quick or case in self.head]

    @property
    def gpus(self) -> int:
        """The number of devices that its job must hold: on CUDA a GPU for each rank, else one."""
        ranks = (ranks_of(self.benchmark, case) for case in self.chosen)
        return max(ranks, default=1) if self.machine.kind == "cuda" else 1

    def with_benchmark(self, **attributes: Any) -> Plan:
        """Return the plan of a copy of the benchmark with these attributes, as `phases`."""
        benchmark = copy.copy(self.benchmark)
        vars(benchmark).update(attributes)
        return replace(self, benchmark=benchmark)

    def is_fresh(self, row: Row) -> bool:
        """Whether a row's key is the one that it would get if it were measured now."""
        return self.machine.is_fresh(self.benchmark, row)

    def key(self, columns: Mapping[str, object]) -> str:
        """Return the key that a row with these columns would get if it were measured now."""
        return row_key(self.benchmark, columns, self.machine.environment, self.machine.topology)

    @cached_property
    def rows(self) -> list[Row]:
        """The latest rows of the configured cases, fresh or stale: what the view holds."""
        return asked(self.benchmark, self.cases, self.files.known()[0])

    @property
    def ahead(self) -> str:
        """What to know of rows whose time is ahead of the clock; empty if there are none."""
        times = [at for row in self.rows if is_ahead(at := row.get("measured_at", ""))]
        if not times:
            return ""
        words = f"{len(times)} row{'s' * (len(times) > 1)} of times up to {max(times)[:10]}"
        return (
            f"{words}, which is ahead of this machine's clock: check it, and measure with --force"
        )

    @cached_property
    def _by_case(self) -> dict[tuple[str, ...], list[Row]]:
        rows: dict[tuple[str, ...], list[Row]] = {}
        for row in self.rows:
            rows.setdefault(case_of_row(self.benchmark, row), []).append(row)
        return rows

    def rows_of(self, case: Case) -> list[Row]:
        """Return the latest rows of a case."""
        return self._by_case.get(texts_of(case), [])

    @cached_property
    def due(self) -> dict[Case, str]:
        """Case -> why it must be measured: forced, missing, stale, failed or loaded."""
        reasons = ((case, self._reason(case)) for case in self.chosen)
        return {case: why for case, why in reasons if why}

    def _reason(self, case: Case) -> str:
        rows = self.rows_of(case)
        if self.forced:
            return "forced"
        if not rows or {row["phase"] for row in rows} != {*self.benchmark.phases_of(case)}:
            return "missing"
        if self.stale_row(case):
            return "stale"
        kinds = {*map(fault_kind, rows)} | {LOADED for row in rows if is_loaded(row)}
        kinds &= self.again
        return ("loaded" if kinds == {LOADED} else "failed") if kinds else ""

    def stale_row(self, case: Case) -> Row | None:
        """Return the first row of a case whose key is not today's; None if there is none."""
        return next((row for row in self.rows_of(case) if not self.is_fresh(row)), None)

    @cached_property
    def groups(self) -> list[list[Case]]:
        """The groups of cases to measure, those of the head first."""
        benchmark, due = self.benchmark, self.due
        whole = isinstance(benchmark, Timed) and benchmark.clock == "kernel"
        groups = [group for group in benchmark.groups(self.chosen) if due.keys() & {*group}]
        groups = [[case for case in group if whole or case in due] for group in groups]
        return sorted(groups, key=lambda group: self.head.isdisjoint(group))

    @cached_property
    def is_due(self) -> bool:
        """Whether a job would measure a case or write another view."""
        published, damaged = self.files.published()
        is_written = [_filled(row) for row in self.rows] == [_filled(row) for row in published]
        return bool(self.due or damaged) or not is_written

    @property
    def summary(self) -> str:
        """How many cases are due, and why: `3 of 8 cases to measure (1 missing, 2 stale)`."""
        reasons = Counter(sorted(self.due.values()))
        reasons["with their group"] = sum(map(len, self.groups)) - len(self.due)
        counts = ", ".join(f"{n} {why}" for why, n in reasons.items() if n)
        if self.is_due and not counts:
            counts = "its view must be written"
        words = f"{sum(map(len, self.groups))} of {len(self.chosen)} cases to measure"
        return f"{words} ({counts})" if counts else words


def _filled(row: Row) -> Row:
    """The filled cells of a row; columns of other rows are empty in it."""
    return {name: text for name, text in row.items() if text}
