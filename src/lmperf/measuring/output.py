"""What a worker's process writes to stdout and stderr, read while its answer is waited for.

It is handed on line by line, made visible, so that neither a megabyte nor a terminal's control
codes reach a log. A worker that nobody reads would wait for its reader: it is read whenever it is
in turn.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from lmperf.measuring.printable import one_line

_CHUNK = 2**16
# Of a line without an end so much is kept, and of a chunk so many lines are looked at.
_LONGEST = 2**12
_MOST = 100


class Output:
    """The lines of one process.

    Args:
        heard: gets each line.

    Attributes:
        theirs: the descriptor that the process shall write to, to be closed here once it has it.
        last: the last line with anything on it since `last` was set, ended or not.
    """

    def __init__(self, heard: Callable[[str], None]):
        self._heard = heard
        self._ours: int | None
        self._ours, self.theirs = os.pipe()
        os.set_blocking(self._ours, False)
        self._unended = b""
        self._open = True
        self.last = ""

    @property
    def readable(self) -> list[int]:
        """The descriptor to wait for, none once all writers are gone."""
        return [self._ours] if self._open else []

    def read(self) -> None:
        """Take in what is there now, at most a chunk."""
        try:
            chunk = os.read(self._ours, _CHUNK)
        except BlockingIOError:
            return
        self._open = bool(chunk)
        *lines, unended = (self._unended + chunk).split(b"\n")
        self._unended = unended[-_LONGEST:]
        for text in filter(None, map(_text, lines[:_MOST])):
            self._heard(text)
        ends = map(_text, (self._unended, *lines[: -_MOST - 1 : -1]))
        self.last = next(filter(None, ends), self.last)

    def close(self) -> None:
        if self._ours is not None:
            os.close(self._ours)
            self._ours = None


def _text(line: bytes) -> str:
    return one_line(line[:_LONGEST].decode(errors="backslashreplace"))
