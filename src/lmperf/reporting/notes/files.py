"""Read the files of notes: Markdown, in which each note begins with a head in YAML.

---
holds: speedup("flash_attention", "triton", over="sdpa_cudnn", phase="backward", ...) < 1
---
The backward pass is slower because ...
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import yaml

from lmperf import strict_yaml
from lmperf.errors import UserError
from lmperf.reporting.key import NOTES
from lmperf.reporting.sections import stems

FENCE, HOLDS = "---", "holds"
KEY = f"{HOLDS}:"
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_MOST_BYTES = 100_000


class Source(NamedTuple):
    """A part of a file, and the line on which it starts."""

    text: str
    line: int


@dataclass(frozen=True)
class Note:
    """A note as its author wrote it.

    Attributes:
        path: its file.
        conditions: what must be true for the note to be printed.
        names: name -> the expression that it stands for.
        general: whether the note is for every machine.
    """

    path: Path
    conditions: tuple[Source, ...]
    text: Source
    names: Mapping[str, Source] = field(default_factory=dict)
    general: bool = False

    @property
    def section(self) -> str:
        """The stem of the section that prints the note."""
        return self.path.stem


def read_notes(templates: Path, directory: Path, general: Path) -> list[Note]:
    """The notes on a machine: its own, then those for every machine.

    Args:
        templates: the folder of templates, which decides what sections there are.
        directory: the folder of the machine.
        general: the folder of the notes for every machine.

    Raises:
        UserError: a file cannot be read, belongs to no section, or is not made of notes.
    """
    known, found = stems(templates), []
    for folder in (directory / NOTES, general):
        for path in note_files(folder):
            if path.stem not in known:
                raise UserError(f"{path}: no section {path.stem}; there are {', '.join(known)}")
            found += _of_file(path, general=folder == general)
    return found


def note_files(folder: Path) -> list[Path]:
    """The files of notes in a folder."""
    return sorted(path for path in folder.glob("[!.]*.md") if path.is_file())


def _of_file(path: Path, general: bool) -> Iterator[Note]:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise UserError(f"{path}: is longer than {_MOST_BYTES:,} bytes")
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from None
    fences = [number for number, line in enumerate(lines) if line.rstrip() == FENCE]
    first = next((number for number, line in enumerate(lines) if line.strip()), len(lines))
    if first == len(lines):
        return
    if len(fences) % 2 or not fences or fences[0] != first:
        where = first if not fences or fences[0] != first else fences[-1]
        raise UserError(
            f"{path}:{where + 1}: a note starts with {FENCE}, {KEY} CONDITION and {FENCE};"
            f" its text has no line {FENCE}"
        )
    for start, end, stop in zip(
        fences[::2], fences[1::2], [*fences[2::2], len(lines)], strict=True
    ):
        yield _note(path, lines, start, end, stop, general)


def _note(path: Path, lines: Sequence[str], start: int, end: int, stop: int, general: bool) -> Note:
    """The note whose head is between `start` and `end`, and whose text ends before `stop`."""
    found = _head(path, "\n" * (start + 1) + "\n".join(lines[start + 1 : end]))
    conditions = found.pop(HOLDS, ())
    if not conditions:
        raise UserError(f"{path}:{start + 1}: the note states no condition; add {KEY} CONDITION")
    text = "\n".join(lines[end + 1 : stop])
    if not text.strip():
        raise UserError(f"{path}:{end + 1}: the note has no text")
    names = {name: expression for name, (expression,) in found.items()}
    return Note(path, conditions, Source(text, end + 2), names, general)


def _head(path: Path, text: str) -> dict[str, tuple[Source, ...]]:
    """Key -> expressions of a head; only KEY may have several."""
    node = strict_yaml.tree(text, path)
    if node is None:
        return {}
    if not isinstance(node, yaml.MappingNode):
        line = node.start_mark.line + 1
        raise UserError(f"{path}:{line}: must be lines NAME: EXPRESSION and {KEY} CONDITION")
    found = {}
    for key, one in node.value:
        if not _NAME.fullmatch(key.value):
            line = key.start_mark.line + 1
            raise UserError(f"{path}:{line}: {key.value[:40]!r} is no name; write a_name: ...")
        several = isinstance(one, yaml.SequenceNode) and key.value == HOLDS
        nodes = one.value if several else [one]
        found[key.value] = tuple(_expression(path, text, item) for item in nodes)
    return found


def _expression(path: Path, text: str, node: yaml.Node) -> Source:
    """The expression of a node of YAML, with its line breaks unless it is quoted or folded."""
    start = node.start_mark
    if not isinstance(node, yaml.ScalarNode):
        raise UserError(f"{path}:{start.line + 1}: must be one expression")
    if node.style is None:
        return Source(text[start.index : node.end_mark.index], start.line + 1)
    return Source(node.value, start.line + 1 + (node.style in "|>"))
