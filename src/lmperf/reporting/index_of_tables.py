"""The index of numbered tables at the end of a write-up."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from lmperf.reporting import coverage
from lmperf.reporting.sections import title_of


def index_of(states: Sequence[coverage.State], root: str) -> list[dict]:
    """A line for each page: its title, its path, and its numbered tables with their states.

    The path is empty for a page without a measured table: it is not written.
    """
    # E5 is on a page of its own, above the machine's, but listed among the tables of its letter.
    letters: dict[str, list[coverage.State]] = {}
    for state in states:
        letters.setdefault(state.table.id[0], []).append(state)
    lines = []
    for found in letters.values():
        page = next((state.page for state in found if "/" not in state.page), found[0].page)
        written = any(state.measured for state in found if state.page == page)
        lines.append(
            {
                "title": "Machines" if "/" in page else title_of(page.removesuffix(".md")),
                "page": posixpath.normpath(root + page) if written else "",
                "tables": [_in_index(one, root) for one in found] if written else _unwritten(found),
            }
        )
    return lines


def _unwritten(states: Sequence[coverage.State]) -> list[str]:
    """The tables of a page without a measured table, by the reason: "E1, E2: not measured yet"."""
    ids: dict[str, list[str]] = {}
    for state in states:
        ids.setdefault(state.words, []).append(state.table.id)
    return [f"{', '.join(found)}: {words}" for words, found in ids.items()]


def _in_index(state: coverage.State, root: str) -> str:
    """A numbered table with its title; its state unless it is measured."""
    link = f"{posixpath.normpath(root + state.page)}#{state.table.anchor}"
    name = f"[{state.table.id}]({link})" if state.measured else state.table.id
    cells = f"{state.measured} of {state.owed} cells, " if state.measured < state.owed else ""
    said = state.words.removeprefix("measured").removeprefix(", ")
    words = f" ({cells}{said})" if said else ""
    return f"{name} {state.table.title}{words}"
