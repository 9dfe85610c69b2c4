"""Reads the lines that a worker process prints, while the supervisor waits for its answer.

Each line is shortened and its control characters are escaped, so that no huge line and no terminal
control code reaches a log. A worker blocks when its output pipe is full, so the supervisor reads
the pipe whenever the worker runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from lmperf.measuring.printable import one_line

_CHUNK = 2**16
# Largest number of bytes kept of a line, and of lines forwarded from one chunk.
_LONGEST = 2**12
_MOST = 100


class Output:
    """A pipe that reads the output of one process line by line.

    Args:
        on_line: called with each line that is not blank.

    Attributes:
        theirs: the descriptor that the process writes to; the caller closes it once the process has
            started.
        last: the last line that is not blank, even if incomplete. The caller may reset it.
    """

    def __init__(self, on_line: Callable[[str], None]):
        self._on_line = on_line
        self._ours: int | None
        self._ours, self.theirs = os.pipe()
        os.set_blocking(self._ours, False)
        self._unended = b""
        self._open = True
        self.last = ""

    @property
    def readable(self) -> list[int]:
        """The descriptor to wait for, in a list; empty once every process has closed its end."""
        return [self._ours] if self._open else []

    def read(self) -> None:
        """Read the available output, at most _CHUNK bytes, and pass on its complete lines."""
        try:
            chunk = os.read(self._ours, _CHUNK)
        except BlockingIOError:
            return
        self._open = bool(chunk)
        *lines, unended = (self._unended + chunk).split(b"\n")
        self._unended = unended[-_LONGEST:]
        for text in filter(None, map(_text, lines[:_MOST])):
            self._on_line(text)
        ends = map(_text, (self._unended, *lines[: -_MOST - 1 : -1]))
        self.last = next(filter(None, ends), self.last)

    def close(self) -> None:
        if self._ours is not None:
            os.close(self._ours)
            self._ours = None


def _text(line: bytes) -> str:
    return one_line(line[:_LONGEST].decode(errors="backslashreplace"))
