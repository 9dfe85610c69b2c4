"""Decide what to measure: the configured cases, except those that have fresh rows.

A row is fresh if its key equals the digest that its cell, its implementation, its problem, the
method and the environment give today (`lmperf.evidence.keys`). If one case of a group is not fresh,
the whole group is measured again, because compared implementations must be timed in turn.

Measurements go into `report/<machine>/store`, group by group, and stay there. At the end of a job
the rows that the configuration asks for are copied from the store to `evidence/`, which the report
reads and Git publishes. So no measurement is lost if evidence is deleted, restored or edited.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from lmperf.benchmark import Benchmark, Case, ranks_of
from lmperf.evidence.consistent import RETAKEN, contradictions, is_unsettled
from lmperf.evidence.keys import row_key
from lmperf.evidence.schema import sound
from lmperf.evidence.store import EVIDENCE, DamagedEvidence, Evidence, Former, Row, text_of

# Statuses that a retry may change, because their cause may be gone. A check may have failed because
# it needed too much memory, because the host was woken late, or because a few right results exceed
# its bound.
FAILURES = frozenset({"crash", "timeout", "oom", "failed_check"})
# Reasons why a case is due although it has fresh rows, or had: see `Plan._reasons`.
MARKED, CONTRADICTS, COPIES_DIFFER = "marked", "contradicts another cell", "copies differ"


def row_name(benchmark: Benchmark, row: Mapping[str, object]) -> str:
    """The name of a row in messages: its axes that are not empty, its implementation, its phase."""
    values = {axis.name: row[axis.name] for axis in benchmark.axes}
    axes = ", ".join(f"{name}={value}" for name, value in values.items() if value != "")
    return f"{axes}: {row['implementation']}, {row['phase']}"


@dataclass(frozen=True)
class Reading:
    """The valid rows of a file, and a message for each fault in it."""

    rows: list[Row]
    faults: list[str]


def read(benchmark: Benchmark, evidence: Evidence) -> Reading:
    """Return the valid rows of an evidence file, and a message for each fault.

    A row that lmperf cannot have written is a fault. A damaged file has no valid rows.
    """
    try:
        return Reading(*sound(benchmark, evidence.read()))
    except DamagedEvidence as damage:
        return Reading([], [str(damage)])


def read_both(benchmark: Benchmark, store: Evidence, evidence: Evidence) -> tuple[Reading, Reading]:
    """Return what `read` returns of store and evidence; rows of equal files are checked once."""
    stored = read(benchmark, store)
    if stored.rows and not stored.faults and evidence.equals(store):
        return stored, stored
    return stored, read(benchmark, evidence)


@dataclass(frozen=True)
class Plan:
    """One benchmark on the machine at hand: its cases, its evidence, and what to measure.

    Each file is read once, on first use. After measuring, `dataclasses.replace(plan)` gives a plan
    that reads the files again.

    Attributes:
        cases: the cases that the configuration asks for.
        store: the CSV with every row that was measured on this machine.
        evidence: the published CSV with the rows of `cases`.
        environment: digest of the hardware and software that measure today.
        kind: kind of the device that measures: cuda, mps or cpu.
        again: statuses of failures that are retried although their rows are fresh.
        forced: cases that are measured again although their rows are fresh.
        head: the cases that are measured first.
        quick: whether only those are measured; the evidence holds the rows of all cases.
        remeasure: whether cases with a mark of `names.UNSETTLED` are measured again.
        files_hold: whether the machine's facts and costs are complete and undamaged.
        topology: the GPUs and their links, if there are several.
    """

    benchmark: Benchmark
    cases: tuple[Case, ...]
    store: Evidence
    evidence: Evidence
    environment: str
    kind: str
    again: frozenset[str] = frozenset()
    forced: frozenset[Case] = frozenset()
    head: frozenset[Case] = frozenset()
    quick: bool = False
    remeasure: bool = False
    files_hold: bool = True
    topology: str = ""

    @property
    def stem(self) -> str:
        return self.benchmark.stem

    @property
    def chosen(self) -> list[Case]:
        """The cases that a run measures unless they are fresh."""
        return [case for case in self.cases if not self.quick or case in self.head]

    @property
    def gpus(self) -> int:
        """The number of devices that its job must hold: on CUDA a GPU for each rank, else one."""
        ranks = (ranks_of(self.benchmark, case) for case in self.chosen if self.kind == "cuda")
        return max(ranks, default=1)

    def key(self, columns: Mapping[str, object]) -> str:
        """The key that a row with these columns would get if it were measured now."""
        return row_key(self.benchmark, columns, self.environment, self.topology)

    @cached_property
    def _readings(self) -> dict[Path, Reading]:
        found = read_both(self.benchmark, self.store, self.evidence)
        return dict(zip((self.store.path, self.evidence.path), found, strict=True))

    @property
    def damaged(self) -> dict[Path, list[str]]:
        """Path -> faults, for each of the two files (store and evidence) that has faults."""
        return {path: found.faults for path, found in self._readings.items() if found.faults}

    @cached_property
    def known(self) -> list[Row]:
        """All valid rows of store and evidence, also of cases outside the configuration.

        If both files have a case, its rows come from the file that was measured last. Evidence
        without a store comes from a clone, or from another version of lmperf. A case of `differing`
        has no rows.
        """
        stored, published = self._by_case
        order = [case for case in {**stored, **published} if case not in self.differing]
        found = ([rows[case] for rows in (stored, published) if case in rows] for case in order)
        return [row for copies in found for row in max(copies, key=_measured_at)]

    @cached_property
    def differing(self) -> list[tuple[str, ...]]:
        """The cases and phases whose rows differ in store and evidence, from one measurement.

        One of the copies was changed, and nothing tells which. So neither counts.
        """
        stored, published = self._by_case
        return [
            case
            for case in stored
            if stored is not published
            and case in published
            and _measurement(stored[case]) == _measurement(published[case])
            and [*map(filled, stored[case])] != [*map(filled, published[case])]
        ]

    @cached_property
    def _by_case(self) -> tuple[dict[tuple[str, ...], list[Row]], ...]:
        """Case and phase -> its valid rows, in the store and in the evidence."""
        stored, published = self._readings.values()
        first = self._grouped(stored.rows)
        return first, first if published is stored else self._grouped(published.rows)

    def _grouped(self, rows: Iterable[Row]) -> dict[tuple[str, ...], list[Row]]:
        by_case: dict[tuple[str, ...], list[Row]] = {}
        for row in rows:
            by_case.setdefault(self.store.case_of(row), []).append(row)
        return by_case

    @cached_property
    def rows(self) -> list[Row]:
        """The valid rows of the cases that the configuration asks for."""
        return asked(self.benchmark, self.cases, self.known)

    @cached_property
    def is_due(self) -> bool:
        """Whether a job would measure a case, repair a file or rewrite the evidence."""
        whole = self.is_sound and self.evidence.holds(self.rows)
        return bool(self.pending) or not whole

    @property
    def is_sound(self) -> bool:
        """Whether no file is damaged, and store and evidence do not contradict each other."""
        return self.files_hold and not self.damaged and not self.differing

    @cached_property
    def _rows_of(self) -> dict[tuple[str, ...], list[Row]]:
        found: dict[tuple[str, ...], list[Row]] = {}
        for row in self.rows:
            found.setdefault(_case_of_row(self.benchmark, row), []).append(row)
        return found

    def _keys(self, case: Case) -> set[str]:
        row = {**case.axes, "implementation": case.implementation}
        return {self.key({**row, "phase": phase}) for phase in self.benchmark.phases_of(case)}

    @cached_property
    def _reasons(self) -> dict[Case, str]:
        """Case -> why it must be measured: forced, damaged, missing, failed, stale, or one of
        MARKED, CONTRADICTS and COPIES_DIFFER.

        A case with fresh rows is absent, even if another case of its group is measured.
        """
        differing = {case[: len(self.benchmark.axes) + 1] for case in self.differing}
        reasons: dict[Case, str] = {}
        for case in self.chosen:
            rows = self._rows_of.get(_texts_of(case), [])
            fresh = {row["key"] for row in rows if row["status"] not in self.again}
            if case in self.forced:
                reasons[case] = "forced"
            elif _texts_of(case) in differing:
                reasons[case] = COPIES_DIFFER
            elif not self._keys(case) <= fresh:
                if not rows:
                    reasons[case] = "damaged" if self.damaged else "missing"
                else:
                    failed = any(row["status"] in self.again for row in rows)
                    reasons[case] = "failed" if failed else "stale"
            elif self.remeasure and any(map(is_unsettled, rows)):
                reasons[case] = MARKED
            elif _texts_of(case) in self._contradicting:
                reasons[case] = CONTRADICTS
        return reasons

    @cached_property
    def _contradicting(self) -> set[tuple[str, ...]]:
        """The cases with fresh rows that contradict others, and that were not retaken for that."""
        fresh = [row for row in self.rows if row["key"] == self.key(row)]
        found = contradictions(self.benchmark, fresh, self.kind)
        rows = (row for one in found for row in one.rows if row.get(RETAKEN) != "True")
        return {_case_of_row(self.benchmark, row) for row in rows}

    @cached_property
    def _retaken(self) -> set[tuple[str, ...]]:
        """The cases of all groups that are measured because of a contradiction."""
        return {
            _texts_of(case)
            for group in self.pending
            if CONTRADICTS in map(self._reasons.get, group)
            for case in group
        }

    def retakes(self, row: Mapping[str, object]) -> bool:
        """Whether the case of a new row was measured because of a contradiction in its group."""
        names = (*(axis.name for axis in self.benchmark.axes), "implementation")
        return tuple(text_of(row[name]) for name in names) in self._retaken

    @cached_property
    def pending(self) -> list[list[Case]]:
        """The groups of cases to measure: every group in which a case has a reason, head first."""
        groups = self.benchmark.groups(self.chosen)
        due = [group for group in groups if self._reasons.keys() & set(group)]
        return sorted(due, key=lambda group: self.head.isdisjoint(group))

    @property
    def due(self) -> list[tuple[Case, str]]:
        """(case, reason) for each case of the groups to measure.

        The reason of a case with fresh rows is "with its group".
        """
        cases = (case for group in self.pending for case in group)
        return [(case, self._reasons.get(case, "with its group")) for case in cases]

    @property
    def unsettled(self) -> set[tuple[str, ...]]:
        """The identities of the rows that were timed while the machine was at work."""
        names, rows = self.benchmark.identity, asked(self.benchmark, self.chosen, self.rows)
        return {tuple(row[name] for name in names) for row in rows if is_unsettled(row)}

    def stale_row(self, case: Case) -> Row | None:
        """The first row of a case whose key differs from today's keys; None if there is none."""
        keys = self._keys(case)
        rows = self._rows_of.get(_texts_of(case), [])
        return next((row for row in rows if row["key"] not in keys), None)

    @property
    def summary(self) -> str:
        """One line that says how many cases a run would measure, and for what reasons."""
        return summary_of(self.due, self.is_due, f"{len(self.chosen)} cases to measure")


def summary_of(due: Iterable[tuple[object, str]], is_due: bool, whole: str) -> str:
    """Return one line on what a run would measure: `3 of 8 cases to measure (1 missing, 2 stale)`.

    Args:
        due: what is measured, each with its reason.
        is_due: whether the run has something to do, even if it measures nothing.
        whole: the words after "of".
    """
    reasons = Counter(reason for _, reason in due)
    counts = ", ".join(f"{number} {reason}" for reason, number in sorted(reasons.items()))
    if is_due and not counts:
        counts = "its evidence must be written from the store"
    words = f"{reasons.total()} of {whole}"
    return f"{words} ({counts})" if counts else words


def _measured_at(rows: list[Row]) -> str:
    """The latest `measured_at` of some rows; empty if they come from a version without it."""
    return max(row.get("measured_at", "") for row in rows)


def _measurement(rows: list[Row]) -> set[tuple[str, str]]:
    return {(row.get("measured_at", ""), row["key"]) for row in rows}


def filled(row: Row) -> Row:
    """Return the filled cells of a row; columns of later versions are empty in old rows."""
    return {name: text for name, text in row.items() if text}


def _texts_of(case: Case) -> tuple[str, ...]:
    """The axis values and the implementation of a case, as the texts of a CSV row."""
    return (*(text_of(value) for _, value in case.cell), case.implementation)


def _case_of_row(benchmark: Benchmark, row: Row) -> tuple[str, ...]:
    return (*(row[axis.name] for axis in benchmark.axes), row["implementation"])


def asked(benchmark: Benchmark, cases: Iterable[Case], rows: Iterable[Row]) -> list[Row]:
    """Return the rows of these cases and of the phases that each has today; drop the others."""
    phases = {_texts_of(case): benchmark.phases_of(case) for case in cases}
    return [row for row in rows if row["phase"] in phases.get(_case_of_row(benchmark, row), ())]


def evidence_of(benchmark: Benchmark, directory: Path, folder: str = EVIDENCE) -> Evidence:
    """Return the `Evidence` for the benchmark's CSV in a folder of `report/<machine>`.

    directory: `report/<machine>`. folder: `evidence` or `store`.
    """
    path = directory / folder / f"{benchmark.stem}.csv"
    case_columns = benchmark.identity[: len(benchmark.identity) - len(benchmark.index)]
    return Evidence(path, benchmark.identity, case_columns, former_names(benchmark))


def former_names(benchmark: Benchmark) -> Former:
    """Axis -> name of a value before it was renamed, as in old evidence -> today's name."""
    return {axis.name: axis.former for axis in benchmark.axes if axis.former}
