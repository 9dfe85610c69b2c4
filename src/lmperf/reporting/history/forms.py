"""The history of a machine's evidence as tables, and as text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lmperf.reporting.diff.forms import table as compared_table
from lmperf.reporting.foreign import plain
from lmperf.reporting.formats import FORMATS
from lmperf.reporting.history.causes import COMMIT_LENGTH
from lmperf.reporting.history.changes import Step
from lmperf.reporting.numbers import counted, listed
from lmperf.reporting.tables import as_cell
from lmperf.results import Column, Table

NOTHING = "No commit of this evidence has measured a row again."


def title(step: Step) -> str:
    """The commit in one line: its short hash, date and subject."""
    return f"{step.commit.hash[:COMMIT_LENGTH]}, {step.commit.date}: {step.commit.subject}"


def summary(step: Step) -> list[str]:
    """Sentences: what was measured again, what changed, what is new or missing, and causes."""
    lines = []
    if step.compared:
        found = listed([f"{number:,} {verdict}" for verdict, number in step.counts.items()])
        lines.append(f"{counted(step.compared, 'row')} measured again: {found} beyond the noise.")
    if step.new:
        lines.append(f"{counted(step.new, 'new row')}.")
    if step.gone:
        lines.append(f"{counted(step.gone, 'row')} no longer there.")
    lines += [f"{stem}: not compared, {why}." for stem, why in step.damaged.items()]
    causes = step.rows["cause"].value_counts(sort=True)
    lines += [f"Cause of {counted(int(n), 'change')}: {cause}." for cause, n in causes.items()]
    return lines


def table(step: Step) -> Table | None:
    """The changed rows of a step, worst first, each with its cause; None without a change."""
    if step.rows.empty:
        return None
    made = compared_table(step.rows, title(step))
    causes = Column("cause", "cause", tuple(map(as_cell, step.rows["cause"])))
    return replace(made, columns=(*made.columns, causes))


def as_text(steps: Sequence[Step]) -> str:
    """All steps for a terminal, newest first."""
    if not steps:
        return f"{NOTHING}\n"
    parts = []
    for step in steps:
        lines = [title(step), *(f"  {line}" for line in summary(step))]
        made = table(step)
        body = [FORMATS["text"](replace(made, caption=""))] if made else []
        parts.append("\n".join([*map(plain, lines), *body]))
    return "\n\n".join(parts) + "\n"


def in_format(steps: Sequence[Step], format: str) -> str:
    """The tables of all steps in one of `FORMATS`, an empty line between two."""
    made = [found for step in steps if (found := table(step)) is not None]
    return "\n\n".join(map(FORMATS[format], made)) + "\n"
