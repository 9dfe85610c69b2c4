"""The contents of the page on the history of a machine's evidence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from lmperf.errors import UserError
from lmperf.reporting.history.changes import Step, changes
from lmperf.reporting.history.forms import NOTHING, summary, table, title
from lmperf.results import Table

# The steps of a machine's history, or why they are not known.
History = Sequence[Step] | str
CAPTION = "Changes beyond the noise, worst first"


def start(machines: Sequence[str], root: Path) -> Mapping[str, Callable[[], History]]:
    """Machine -> a function that waits for its history, which another process reads meanwhile."""
    pool = ProcessPoolExecutor(max_workers=1)
    waiting = {machine: pool.submit(read, machine, root).result for machine in machines}
    pool.shutdown(wait=False)
    return waiting


def read(machine: str, root: Path) -> History:
    """The history of a machine; the reason if Git cannot be read."""
    try:
        return changes(machine, root)
    except UserError as error:
        return str(error)


def contents(found: History, html: Callable[[Table], str]) -> dict[str, Any]:
    """The values of the template.

    html: makes HTML from a table.
    """
    steps = [] if isinstance(found, str) else found
    why = found if isinstance(found, str) else "" if steps else NOTHING
    return {"why": why, "steps": [_step(step, html) for step in steps]}


def _step(step: Step, html: Callable[[Table], str]) -> dict[str, Any]:
    made = table(step)
    return {
        "anchor": step.commit.hash,
        "title": title(step),
        "summary": summary(step),
        "table": html(replace(made, caption=CAPTION)) if made is not None else "",
    }
