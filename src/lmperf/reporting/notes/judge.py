"""Decide which notes hold on the evidence of a machine, and fill in their values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lmperf.errors import UserError
from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.foreign import authored
from lmperf.reporting.notes.expressions import Expressions, WrongExpression
from lmperf.reporting.notes.files import Note
from lmperf.reporting.notes.functions import Reader
from lmperf.reporting.numbers import listed
from lmperf.reporting.sections import Composed

_MOST_REASONS = 2


@dataclass(frozen=True)
class Judged:
    """A note with its text on a machine.

    Attributes:
        text: Markdown with values; None if the note is left out.
        why: why the note is left out, and ``line``: the condition to look at; empty if printed.
        lacks_rows: whether it is left out because it is for machines that have other rows.
    """

    note: Note
    text: str | None = None
    why: str = ""
    line: int = 0
    lacks_rows: bool = False

    def is_in(self, section: str) -> bool:
        """Whether a section prints the note."""
        return self.text is not None and self.note.section == section

    @property
    def message(self) -> str:
        """A line that names the note and says why it is left out."""
        return f"{self.note.path}:{self.line}: note left out: {self.why}"


def judge(note: Note, evidence: MachineEvidence) -> Judged:
    """The note on this evidence.

    Condition and text are both evaluated in any case, so that a wrong expression is found at once.

    Raises:
        UserError: an expression of the note is wrong.
    """
    reader = Reader(evidence, note.general)
    expressions = Expressions(reader)
    try:
        for name, expression in note.names.items():
            expressions.define(name, *expression)
        false = [one.line for one in note.conditions if not expressions.holds(*one)]
        read = "; ".join(f"{name} is {listed(words)}" for name, words in reader.read.items())
        text = expressions.filled(*note.text)
    except WrongExpression as error:
        raise UserError(f"{note.path}:{error.line}: {error}") from None
    if reasons := list(dict.fromkeys(reader.reasons)):
        more = [f"and {len(reasons) - _MOST_REASONS} more"] if len(reasons) > _MOST_REASONS else []
        why = "; ".join([*reasons[:_MOST_REASONS], *more])
        lacks_rows = note.general and reader.lacks_rows
        return Judged(note, why=why, line=note.conditions[0].line, lacks_rows=lacks_rows)
    if false:
        return Judged(note, why=f"its condition is false: {read}", line=false[0])
    return Judged(note, authored(text))


def added(sections: Sequence[Composed], notes: Sequence[Judged]) -> list[Composed]:
    """The sections with the notes that hold."""
    return [
        replace(section, notes=tuple(one.text for one in notes if one.is_in(section.stem)))
        for section in sections
    ]
