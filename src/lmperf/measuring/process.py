"""A worker process that ends with everything it started, and with the process that started it."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lmperf.errors import one_line
from lmperf.measuring import keeper

_LONGEST = 2**12  # bytes kept of a line of output
_END_LIMIT_S = 10.0  # the keeper waits for what the worker cleans up


class Lost(Exception):
    """Raised when the worker has ended or closed its connection; the message says how."""


class Process:
    """Starts a keeper and its worker, which runs `worker.main(pipe)`; a context that ends it.

    The worker writes its messages to the pipe, as lines of JSON, and reads from standard input.

    Args:
        first: bytes that the worker reads first.
        held: descriptors that the keeper holds open until everything has ended.
        path: `sys.path` of the worker.
        on_line: called with each line that the worker prints.
    """

    def __init__(
        self,
        first: bytes,
        held: Sequence[int],
        environ: Mapping[str, str],
        path: Sequence[str] | None = None,
        on_line: Callable[[str], None] = lambda _: None,
    ):
        self._on_line, self.last = on_line, ""
        self._waiting: deque[dict[str, Any]] = deque()
        (ours, theirs), (output, printed) = os.pipe(), os.pipe()
        self._select, self._unended = selectors.DefaultSelector(), {ours: b"", output: b""}
        self._ours = ours
        for descriptor in (ours, output):
            self._select.register(descriptor, selectors.EVENT_READ)
        places = map(os.path.abspath, sys.path if path is None else path)
        command = [sys.executable, "-P", "-m", keeper.__name__]
        try:
            self._process = subprocess.Popen(
                [*command, *map(str, (os.getpid(), theirs, *held))],
                stdin=subprocess.PIPE,
                stdout=printed,
                stderr=printed,
                pass_fds=(theirs, *held),
                start_new_session=True,
                env={**environ, "PYTHONPATH": os.pathsep.join(places)},
            )
        except BaseException:
            self._close()
            raise
        finally:
            os.close(theirs)
            os.close(printed)
        self._write(first)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        """End the worker and everything that it has started."""
        self._process.terminate()
        try:
            self._process.wait(_END_LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._close()

    def _close(self) -> None:
        """Close this side of the pipes."""
        for descriptor in self._unended:
            os.close(descriptor)
        self._select.close()

    def send(self, **message: Any) -> None:
        """Write a message to the worker's standard input."""
        self._write(json.dumps(message).encode() + b"\n")

    def _write(self, text: bytes) -> None:
        with contextlib.suppress(OSError):  # a dead worker is found when reading
            self._process.stdin.write(text)
            self._process.stdin.flush()

    def receive(self, seconds: float) -> dict[str, Any] | None:
        """Return the next message of the worker; None if it sends none within `seconds`.

        The message has the key `late_s` if this process was waiting for it: by how many seconds the
        worker's clock was behind when it came.

        Raises:
            Lost: the worker has ended, and all of its messages have been received.
        """
        until, waited = time.monotonic() + seconds, False
        while not self._waiting:
            ready = self._select.select(0.0)
            if not ready:
                waited, ready = True, self._select.select(max(0.0, until - time.monotonic()))
            for key, _ in sorted(ready, key=lambda pair: pair[0].fd == self._ours):
                self._read(key.fd)  # what it printed first
            if not self._waiting and time.monotonic() >= until:
                return None
        message = self._waiting.popleft()
        if waited and "at" in message:
            message["late_s"] = time.perf_counter() - message["at"] / 1e9
        return message

    def _read(self, source: int) -> None:
        chunk = os.read(source, 2**16)
        *lines, unended = (self._unended[source] + chunk).split(b"\n")
        if source == self._ours:
            self._unended[source] = unended
            try:
                self._waiting += map(json.loads, lines)
            except ValueError:  # somebody else has written to the pipe
                raise Lost("the worker's messages cannot be read") from None
            if not chunk and not self._waiting:
                raise Lost(self._ending())
            return
        self._unended[source] = unended[-_LONGEST:]
        for line in (*lines, unended):
            self.last = _text(line) or self.last
        for line in filter(None, map(_text, lines)):
            self._on_line(line)
        if not chunk:
            self._select.unregister(source)

    def _ending(self) -> str:
        """How the worker ended, and the last line that it printed."""
        try:
            code = self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            return "the process closed its connection"
        names = {number.value: number.name for number in signal.Signals}
        ended_by = names.get(-code if code < 0 else code - 128)
        how = f"was ended by {ended_by}" if ended_by else f"ended with exit code {code}"
        return f"the process {how}" + (f', after it wrote "{self.last}"' if self.last else "")


def _text(line: bytes) -> str:
    return one_line(line[:_LONGEST].decode(errors="backslashreplace"))
