"""The changes from one commit of a machine's evidence to the next, each with its cause.

Two commits are compared as two results are (`lmperf.reporting.diff.comparison`): a change lies
beyond the noise floor, holds against chance, and is one of cycles as well. A row that a commit does
not have is missing there; no value is carried over from an older commit. Keys that were rewritten
without a measurement are no change.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path

import pandas as pd

from lmperf.errors import UserError
from lmperf.evidence.store import DamagedEvidence
from lmperf.reporting.diff.comparison import (
    AT_LEAST,
    BROKEN,
    CLOCK,
    MENDED,
    Comparison,
    compare,
)
from lmperf.reporting.diff.results import Result, read_frame
from lmperf.reporting.facts import facts_of
from lmperf.reporting.foreign import taken
from lmperf.reporting.history.causes import cause
from lmperf.reporting.history.commits import Commit, commits_of, contents_of
from lmperf.statistics import FASTER, SLOWER

CHANGED = (BROKEN, SLOWER, CLOCK, FASTER, MENDED)
# What a row measured; its key and its other columns may be rewritten without a measurement.
_MEASURED = ("status", "rounds_ms", "measured_at")


@dataclass(frozen=True)
class Step:
    """What a commit changed in the evidence.

    Attributes:
        commit: hash, date and subject, neutralised as text of strangers.
        rows: rows of `Comparison.rows` whose time or status changed, with `cause`; worst first.
        compared: number of rows that were measured again.
        gone: number of rows that the commit before has and this one lacks.
        new: number of rows that the commit before lacks.
        damaged: stem -> why the CSV of this commit cannot be read.
    """

    commit: Commit
    rows: pd.DataFrame
    compared: int = 0
    gone: int = 0
    new: int = 0
    damaged: Mapping[str, str] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        """Verdict -> number of changed rows, worst first; without verdicts that no row has."""
        found = {name: int((self.rows["verdict"] == name).sum()) for name in CHANGED}
        return {name: number for name, number in found.items() if number}


def changes(
    machine: str,
    root: Path = Path(),
    at_least: float = AT_LEAST,
    benchmarks: Sequence[str] = (),
) -> list[Step]:
    """The steps of a machine's evidence from commit to commit, newest first.

    Args:
        at_least: the least difference that counts, as a fraction.
        benchmarks: stems; empty means all.

    Raises:
        UserError: Git cannot be read.
    """
    commits = commits_of(machine, root)
    with tempfile.TemporaryDirectory() as folder:
        files = _Files(commits, root, Path(folder))
        steps = [
            _step(machine, old, new, files, at_least, benchmarks) for old, new in pairwise(commits)
        ]
    shown = (step.compared or step.gone or step.new or step.damaged for step in steps)
    return [step for step, said in zip(steps, shown, strict=True) if said][::-1]


def _step(
    machine: str,
    old: Commit,
    new: Commit,
    files: _Files,
    at_least: float,
    benchmarks: Sequence[str],
) -> Step:

    def chosen(stem: str) -> bool:
        return not benchmarks or stem in benchmarks

    stems = [stem for stem in new.csvs if stem in old.csvs and chosen(stem)]
    results = [Result("", machine, files.facts(of), {}) for of in (old, new)]
    damaged = {}
    for stem in stems:
        if not files.measured_anew(old.csvs[stem], new.csvs[stem]):
            continue
        try:
            frames = [files.frame(stem, *of.csvs[stem]) for of in (old, new)]
        except (DamagedEvidence, ValueError) as damage:
            damaged[stem] = str(damage).rpartition(f"/{stem}.csv")[2].strip()
        else:
            for result, frame in zip(results, frames, strict=True):
                result.frames[stem] = frame
    commit = Commit(new.hash, new.date, taken(new.subject), new.csvs, new.facts)
    gone, added = (
        sum(files.length(one.csvs[s][0]) for s in one.csvs if s not in other.csvs and chosen(s))
        for one, other in ((old, new), (new, old))
    )
    found = _compared(*results, at_least)
    if found is None:
        none = pd.DataFrame(columns=["verdict", "cause"])
        return Step(commit, none, 0, gone, added, damaged)
    rows = found.rows[found.rows["verdict"].isin(CHANGED)]
    known = [result.facts["environments"] for result in results]
    causes = [
        cause(row, *(of.get(row[f"environment_{side}"], {}) for of, side in _sides(known)))
        for row in rows.to_dict("records")
    ]
    only = found.only[0] + gone, found.only[1] + added
    return Step(commit, rows.assign(cause=causes), len(found.rows), *only, damaged)


def _sides(known: Sequence[Mapping]) -> Iterator[tuple[Mapping, str]]:
    return zip(known, ("old", "new"), strict=True)


def _compared(old: Result, new: Result, at_least: float) -> Comparison | None:
    """The comparison of two results; None if they share no row."""
    if not new.frames:
        return None
    with contextlib.suppress(UserError):  # no row in common: other cells were measured
        return compare(old, new, at_least)
    return None


class _Files:
    """The files of commits: each version is read once.

    folder: a temporary folder, for versions of CSVs with their digests.
    """

    def __init__(self, commits: Sequence[Commit], root: Path, folder: Path):
        pairs = [pair for commit in commits for pair in commit.csvs.values()]
        blobs = {blob for pair in pairs for blob in pair if blob}
        blobs |= {commit.facts for commit in commits if commit.facts}
        self._contents = contents_of(sorted(blobs), root) if blobs else {}
        self._folder = folder
        self.frame = cache(self._frame)
        self._measured = cache(self._measured_rows)

    def facts(self, commit: Commit) -> dict:
        """machine.json of a commit (see ``facts_of``); empty if it has none or an invalid one."""
        try:
            return facts_of(json.loads(self._contents.get(commit.facts, b"{}")))
        except (ValueError, RecursionError):
            return facts_of({})

    def measured_anew(self, old: tuple[str, str | None], new: tuple[str, str | None]) -> bool:
        """Whether two versions of a CSV differ in what was measured, not only in keys."""
        return old[0] != new[0] and self._measured(old[0]) != self._measured(new[0])

    def length(self, blob: str) -> int:
        """The number of rows of a version of a CSV."""
        return self._measured(blob).total()

    def _measured_rows(self, blob: str) -> Counter:
        text = self._contents[blob].decode(errors="replace")
        rows = csv.reader(io.StringIO(text, newline=""))
        names = next(rows, [])
        places = [names.index(name) for name in _MEASURED if name in names]
        return Counter(tuple(row[at] for at in places if at < len(row)) for row in rows)

    def _frame(self, stem: str, csv_blob: str, digest_blob: str | None) -> pd.DataFrame:
        path = self._folder / csv_blob / f"{stem}.csv"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(self._contents[csv_blob])
        if digest_blob:
            path.with_suffix(".sha256").write_bytes(self._contents[digest_blob])
        return read_frame(path)
