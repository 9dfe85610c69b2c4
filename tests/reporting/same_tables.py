"""Compare the reports that a Git revision and the working tree render, cell by cell.

    python tests/reporting/same_tables.py REVISION [--only NAME]

Two processes, one with the code and templates of each tree, render the same evidence: the
committed evidence of every machine, synthetic machines, and synthetic machines with faults (every
status, missing phases, NaN, marks, stale rows, custom implementations, hostile text). The script
compares tables column by column, and text outside tables line by line. Exit code: 1 if anything
differs.
"""

from __future__ import annotations

import argparse
import difflib
import itertools
import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SHOWN = 40


class Difference(NamedTuple):
    """A table cell, or a line outside of tables, that differs between two renderings.

    ``old`` or ``new`` is empty if only the other rendering has the cell or line.
    """

    file: str
    table: str
    column: str
    row: str
    old: str
    new: str

    def __str__(self) -> str:
        place = " / ".join(filter(None, (self.file, self.table, self.column, self.row)))
        return f"{place}\n  - {self.old}\n  + {self.new}"


@dataclass(frozen=True)
class MarkdownTable:
    """A table parsed from a Markdown page."""

    caption: str
    headers: list[str]
    rows: list[list[str]]


def differences(old: Mapping[str, str], new: Mapping[str, str]) -> list[Difference]:
    """The differences between two renderings; each maps a file name to Markdown."""
    found = []
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            found += _in_file(name, old.get(name, ""), new.get(name, ""))
    return found


def _in_file(name: str, old: str, new: str) -> Iterator[Difference]:
    (old_tables, old_text), (new_tables, new_text) = parsed(old), parsed(new)
    for key in dict.fromkeys((*old_tables, *new_tables)):
        yield from _in_table(name, key, old_tables.get(key), new_tables.get(key))
    for line in difflib.unified_diff(old_text, new_text, lineterm="", n=0):
        if not line.startswith(("---", "+++", "@@")):
            sides = (line[1:], "") if line[0] == "-" else ("", line[1:])
            yield Difference(name, "", "", "text", *sides)
    if old != new and (old_tables, old_text) == (new_tables, new_text):
        yield Difference(name, "", "", "white space or alignment", "", "")


def _in_table(
    name: str, key: str, old: MarkdownTable | None, new: MarkdownTable | None
) -> Iterator[Difference]:
    if old is None or new is None:
        yield Difference(
            name, key, "", "table", *("" if t is None else "there" for t in (old, new))
        )
        return
    if old.headers != new.headers:
        yield Difference(name, key, "", "headers", " | ".join(old.headers), " | ".join(new.headers))
    if len(old.rows) != len(new.rows):
        yield Difference(name, key, "", "number of rows", str(len(old.rows)), str(len(new.rows)))
    for number, (was, now) in enumerate(zip(old.rows, new.rows, strict=False)):
        of_old = dict(zip(old.headers, was, strict=False))
        of_new = dict(zip(new.headers, now, strict=False))
        for header in dict.fromkeys((*old.headers, *new.headers)):
            sides = of_old.get(header, ""), of_new.get(header, "")
            if sides[0] != sides[1]:
                yield Difference(name, key, header, f"row {number}: {was[0]}", *sides)


def parsed(markdown: str) -> tuple[dict[str, MarkdownTable], list[str]]:
    """Caption -> table, for the tables of a page, and the list of all other lines.

    The second table with the same caption has the key "caption (2)".
    """
    tables: dict[str, MarkdownTable] = {}
    text: list[str] = []
    for is_table, group in itertools.groupby(markdown.splitlines(), lambda n: n[:1] == "|"):
        lines = list(group)
        if not is_table:
            text += lines
            continue
        caption = next((line for line in reversed(text) if line), "")
        key = caption
        for number in itertools.count(2):
            if key not in tables:
                break
            key = f"{caption} ({number})"
        headers, _, *rows = map(_cells, lines)
        tables[key] = MarkdownTable(caption, headers, rows)
    return tables, text


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)(?:\\\\)*\|", line)[1:-1]]


def evidences(only: str | None = None) -> dict[str, dict]:
    """Name -> arguments of `MachineEvidence`, for committed, synthetic and faulty evidence.

    only: return just the entries whose name contains this text.
    """
    import rendered_evidence

    found = rendered_evidence.evidences()
    return {
        name: {f.name: getattr(evidence, f.name) for f in fields(evidence) if f.init}
        for name, evidence in found.items()
        if only is None or only in name
    }


def rendered(tree: Path, evidence: Path) -> dict[str, str]:
    """File name -> Markdown, rendered from pickled evidence with a tree's code and templates."""
    script = Path(__file__).with_name("render_evidence.py")
    done = subprocess.run(
        [sys.executable, str(script), str(evidence), str(tree / "templates")],
        env={**os.environ, "PYTHONPATH": str(tree / "src")},
        cwd=tree,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(done.stdout)


def compared(revision: str, only: str | None = None) -> list[Difference]:
    """The differences between the reports that a revision and the working tree render."""
    with tempfile.TemporaryDirectory() as folder:
        tree, pickled = Path(folder) / "tree", Path(folder) / "evidence.pickle"
        pickled.write_bytes(pickle.dumps(evidences(only)))
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--detach", "--quiet", str(tree), revision], check=True)
        try:
            return differences(rendered(tree, pickled), rendered(ROOT, pickled))
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("revision")
    parser.add_argument("--only", help="evidence whose name contains this")
    asked = parser.parse_args()
    found = compared(asked.revision, asked.only)
    for difference in found[:SHOWN]:
        print(difference)
    print(f"{len(found)} differences from {asked.revision}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
