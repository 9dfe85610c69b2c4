"""Reads what a worker prints, while its supervisor waits for an answer.

Output is forwarded line by line, shortened and with control characters escaped, so that neither a
megabyte nor a terminal's control codes reach a log. A worker blocks when its pipe is full, so the
pipe is read whenever the worker runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from lmperf.measuring.printable import one_line

_CHUNK = 2**16
# Most bytes that are kept of a line, and most lines that are forwarded from one chunk.
_LONGEST = 2**12
_MOST = 100


class Output:
    """The output of one process.

    Args:
        on_line: called with each line.

    Attributes:
        theirs: the descriptor that the process writes to; the caller closes it after the start.
        last: the last line that is not blank since `last` was set, complete or not.
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
        """The descriptor to wait for; none once all writers have closed theirs."""
        return [self._ours] if self._open else []

    def read(self) -> None:
        """Read what is available, at most one chunk."""
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
