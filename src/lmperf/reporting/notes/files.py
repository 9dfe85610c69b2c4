"""Read the files of notes: Markdown, in which each note begins with its condition.

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

from lmperf.errors import UserError
from lmperf.reporting.key import NOTES
from lmperf.reporting.sections import stems

FENCE, HOLDS = "---", "holds"
KEY = f"{HOLDS}:"
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_MOST_BYTES = 100_000


@dataclass(frozen=True)
class Note:
    """A note as its author wrote it.

    Attributes:
        path: its file.
        line: the line on which the condition starts; the text starts on ``text_line``.
        names: name -> the expression that it stands for, and the line on which that starts.
        general: whether the note is for every machine, so that a machine may lack its rows.
    """

    path: Path
    line: int
    condition: str
    text_line: int
    text: str
    names: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    general: bool = False

    @property
    def section(self) -> str:
        """The stem of the section that prints the note."""
        return self.path.stem


def read_notes(templates: Path, directory: Path) -> list[Note]:
    """The notes on a machine: its own, then those for every machine.

    Args:
        templates: the folder of templates, whose folder `notes` has the notes for every machine.
        directory: the folder of the machine.

    Raises:
        UserError: a file cannot be read, belongs to no section, or is not made of notes.
    """
    known, found = stems(templates), []
    for folder in (directory / NOTES, templates / NOTES):
        for path in note_files(folder):
            if path.stem not in known:
                raise UserError(f"{path}: no section {path.stem}; there are {', '.join(known)}")
            found += _of_file(path, general=folder.parent == templates)
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
    found: dict[str, tuple[str, int]] = {}
    for number in range(start + 1, end):
        name, colon, expression = lines[number].partition(":")
        if lines[number].startswith(" ") and found:  # continues the line before
            last = [*found][-1]
            found[last] = (f"{found[last][0]}\n{lines[number]}", found[last][1])
        elif colon and _NAME.fullmatch(name) and name not in found:
            found[name] = (expression, number + 1)
        else:
            words = f"is a second {name}" if name in found else f"must be NAME: EXPRESSION or {KEY}"
            raise UserError(f"{path}:{number + 1}: {words}")
    if HOLDS not in found:
        raise UserError(f"{path}:{start + 1}: the note states no condition; add {KEY} CONDITION")
    text = "\n".join(lines[end + 1 : stop])
    if not text.strip():
        raise UserError(f"{path}:{end + 1}: the note has no text")
    condition, line = found.pop(HOLDS)
    return Note(path, line, condition, end + 2, text, found, general)
