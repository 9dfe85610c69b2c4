"""Notes: sentences of an author that are printed only while the evidence agrees with them.

A note states a condition over the evidence, and holds its numbers as expressions. If the condition
is false, or rests on a row that carries no sentence, the note is left out of the report and
``lmperf verify`` names it. `docs/notes.md` is the manual for authors.
"""

from lmperf.reporting.notes.files import Note, Source, note_files, read_notes
from lmperf.reporting.notes.judge import Judged, added, judge

__all__ = ["Judged", "Note", "Source", "added", "judge", "note_files", "read_notes"]
