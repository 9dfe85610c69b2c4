"""What changed in a machine's evidence from commit to commit, each change with its cause.

Two commits are compared as two results are (`lmperf.reporting.comparison`). A row that a commit
does not have is missing there: no value is carried over from an older commit. Keys that were
rewritten without a measurement are no change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path

from lmperf.errors import UserError
from lmperf.evidence.store import EVIDENCE
from lmperf.machine.repository import git
from lmperf.reporting import comparison_forms, untrusted
from lmperf.reporting.cells import Table
from lmperf.reporting.comparison import (
    CHANGED,
    COMMIT_LENGTH,
    ONLY_IN_NEW,
    ONLY_IN_OLD,
    Comparison,
    compare,
)
from lmperf.reporting.evidence import Evidence
from lmperf.reporting.revisions import evidence_in, folder_of, unreadable
from lmperf.reporting.sections import Section
from lmperf.reporting.words import count, listed

# What a row measured; its key and its other columns may be rewritten without a measurement.
_MEASURED = ("status", "rounds_ms", "measured_at")
NEWEST = 5
SHALLOW = (
    "This page was made from a shallow clone, which lacks older commits: what they changed is not"
    " known here. `git fetch --unshallow` fetches them; in a workflow of GitHub, `fetch-depth: 0`"
    " of actions/checkout."
)


@dataclass(frozen=True)
class Commit:
    """A commit that changed evidence.

    Attributes:
        date: YYYY-MM-DD.
        subject: first line of its message, neutralised.
    """

    hash: str
    date: str
    subject: str

    def __str__(self) -> str:
        return f"{self.hash[:COMMIT_LENGTH]}, {self.date}: {self.subject}"


@dataclass(frozen=True)
class Step:
    """What a commit changed in the evidence.

    Attributes:
        comparison: the comparison with the commit before.
        damaged: stem -> why its evidence at one of the two commits cannot be read.
    """

    commit: Commit
    comparison: Comparison
    damaged: Mapping[str, str]

    @property
    def counts(self) -> dict[str, int]:
        """Verdict -> number of changed rows, worst first."""
        return {name: n for name, n in self.comparison.counts.items() if n and name in CHANGED}

    @property
    def summary(self) -> list[str]:
        """Sentences: what was measured again, what changed, what is new or missing, and causes."""
        rows, left, lines = self.comparison.rows, self.comparison.not_compared, []
        if len(rows):
            changed = listed([f"{number:,} {verdict}" for verdict, number in self.counts.items()])
            again = f"{count(len(rows), 'row')} measured again"
            lines.append(f"{again}: {changed} beyond the noise.")
        if new := left.get(ONLY_IN_NEW):
            lines.append(f"{count(new, 'new row')}.")
        if gone := left.get(ONLY_IN_OLD):
            lines.append(f"{count(gone, 'row')} no longer there.")
        lines += [f"{stem}: not compared, {why}." for stem, why in self.damaged.items()]
        causes = Counter(filter(None, rows["cause"])).most_common()
        return lines + [f"Cause of {count(n, 'change')}: {cause}." for cause, n in causes]

    @property
    def table(self) -> Table | None:
        """The changed rows, worst first, each with its cause; None without a change."""
        rows = self.comparison.rows[self.comparison.rows["verdict"].isin(CHANGED)]
        if rows.empty:
            return None
        return comparison_forms.table(self.comparison, rows, str(self.commit))


def steps(machine: str, report: Path) -> list[Step]:
    """The steps of a machine's evidence to each of its NEWEST commits, newest first.

    report: the folder of the reports at the top of a repository.

    Raises:
        UserError: Git cannot be read.
    """
    commits = [*commits_of(machine, report)][-(NEWEST + 1) :]
    states = ((commit, _at(commit, machine, report)) for commit in commits)
    every = [_step(old, *new) for (_, old), new in pairwise(states)]
    return [step for step in every if step.summary][::-1]


def commits_of(machine: str, report: Path) -> Iterator[Commit]:
    """Yield the commits that changed a machine's evidence, oldest first.

    Raises:
        UserError: `report` is in no Git repository, or Git cannot be run.
    """
    paths = f"{report.name}/{machine}/{EVIDENCE}/*.csv"
    try:
        log = git(report.parent, "log", "--reverse", "--format=%H%x00%cs%x00%s", "--", paths)
    except UserError as error:
        raise UserError(f"the history of the evidence cannot be read: {error}") from None
    for line in log.decode(errors="replace").splitlines():
        name, date, subject = line.split("\0")
        yield Commit(name, date, untrusted.neutral(subject))


def _at(commit: Commit, machine: str, report: Path) -> Evidence:
    with folder_of(f"{machine}@{commit.hash}", report) as folder:
        return evidence_in(folder, commit.hash[:COMMIT_LENGTH])


def _step(old: Evidence, commit: Commit, new: Evidence) -> Step:
    stems = [
        stem for stem in {**old.raw, **new.raw} if _measured(old, stem) != _measured(new, stem)
    ]
    broken = {**old.damaged, **new.damaged}
    sides = product(stems, (old, new))
    broken |= {stem: why for stem, side in sides if (why := unreadable(side, stem))}
    sound = [stem for stem in stems if stem not in broken]
    newly = {stem: why for stem, why in broken.items() if stem not in old.damaged}
    return Step(commit, compare(old, new, benchmarks=sound), newly)


def _measured(evidence: Evidence, stem: str) -> Counter:
    rows = evidence.raw.get(stem, ())
    return Counter(tuple(row.get(name) for name in _MEASURED) for row in rows)


class History(Section):
    """The newest commits of the evidence, and why Git cannot tell all of them."""

    newest = NEWEST

    @property
    def read(self) -> tuple[list[Step], str]:
        """The steps, and why Git cannot tell all of them; or nothing."""
        machine, report = self.evidence.folder, self.evidence.report
        try:
            is_cut = git(report, "rev-parse", "--is-shallow-repository").strip() == b"true"
            return steps(machine, report), SHALLOW if is_cut else ""
        except UserError as error:
            return [], untrusted.neutral(str(error))
