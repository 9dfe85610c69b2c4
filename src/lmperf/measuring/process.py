"""A worker process that ends with everything it started, and with the process that started it.

    supervisor -> keeper -> worker -> ranks, compilers, whatever an implementation starts

The keeper forks the worker before torch is imported, and adopts orphans (subreaper): a process that
made itself a daemon stays below it. It ends all of them when the worker ends, when it is told to
(SIGTERM), and when the supervisor dies, even by kill -9 (the kernel then sends it SIGTERM). If the
keeper itself is killed, the kernel kills the worker. The keeper holds the lock of the device.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lmperf.errors import Interrupted, described, trace_of
from lmperf.measuring.printable import one_line

_DEATH_SIGNAL, _SUBREAPER = 1, 36  # of prctl(2)
_LONGEST = 2**12  # bytes kept of a line of output
# How long a process may clean up once it is interrupted; the keeper may take longer.
_CLEAN_UP_S, _END_LIMIT_S = 3.0, 10.0


class Lost(Exception):
    """Raised when the worker has ended or closed its connection; the message says how."""


def keep(supervisor: int, pipe: int, *held: int) -> None:
    """Fork: return in the worker, which has the pipe; the keeper has `held`, and never returns."""
    prctl(_SUBREAPER, 1)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    die_with(supervisor, signal.SIGTERM)
    keeper, worker, code = os.getpid(), os.fork(), 1
    if worker == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        can_be_interrupted()
        die_with(keeper)
        for one in held:
            os.close(one)
        return
    os.close(pipe)
    with contextlib.suppress(BaseException):
        while (ended := os.wait())[0] != worker:
            pass
        code = os.waitstatus_to_exitcode(ended[1])
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    end(worker)  # children cannot be listed on every system
    end_children()
    os._exit(code if code >= 0 else 128 - code)


def can_be_interrupted() -> None:
    """Have SIGINT raise Interrupted here; what a shell starts with & ignores it."""

    def interrupt(*_: object) -> None:
        raise Interrupted

    signal.signal(signal.SIGINT, interrupt)


def end(child: int) -> None:
    """Interrupt a child that has not ended, so that it removes its locks; kill it if need be."""
    until = time.monotonic() + _CLEAN_UP_S
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        if os.waitpid(child, os.WNOHANG)[0]:  # raises if it is waited for: its id may be another's
            return
        os.kill(child, signal.SIGINT)
        while time.monotonic() < until:
            if os.waitpid(child, os.WNOHANG)[0]:
                return
            time.sleep(0.01)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def locks_of_builds() -> str:
    """Return words on the locks of torch's extension builder, each of which makes every import of
    its extension wait; an empty text if there are none.

    A build leaves its lock behind if it is killed.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "torch_extensions")
    folder = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or cache)
    locks = sorted(map(str, [*folder.glob("*/lock"), *folder.glob("*/*/lock")]))
    words = "if nothing compiles now, delete the lock of torch's extension builder:"
    return f"; {words} {', '.join(locks)}" if locks else ""


def end_children(but: Sequence[int] = ()) -> None:
    """Kill the children of this process except some, and wait for them.

    The orphans that they leave become children here if this process adopts orphans.
    """
    while left := [pid for pid in children(os.getpid()) if pid not in but]:
        for pid in left:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def adopt_orphans(adopt: bool = True) -> None:
    """Adopt descendants of this process whose own parent ends (subreaper), or no longer."""
    prctl(_SUBREAPER, int(adopt))


def die_with(parent: int, number: int = signal.SIGKILL) -> None:
    """Have the kernel send this process a signal when its parent ends.

    If `parent` is not its parent, it has ended already: so does this process.
    """
    prctl(_DEATH_SIGNAL, number)
    if os.getppid() != parent:  # it ended before the kernel watched it
        os._exit(1)


def prctl(option: int, value: int) -> None:
    """Call prctl(2), which only Linux has."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def children(pid: int) -> list[int]:
    """Return the ids of the children of a process, started by any thread or adopted."""
    found = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found += map(int, (task / "children").read_text().split())
    return found


def family(pid: int) -> list[int]:
    """Return the ids of a process and all of its descendants; without /proc, only its own."""
    return [pid, *(one for child in children(pid) for one in family(child))]


class Process:
    """Starts a worker, which runs `worker.main(pipe)`; a context that ends it.

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
        for one in (ours, output):
            self._select.register(one, selectors.EVENT_READ)
        places = map(os.path.abspath, sys.path if path is None else path)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, *map(str, (os.getpid(), theirs, *held))],
            stdin=subprocess.PIPE,
            stdout=printed,
            stderr=printed,
            pass_fds=(theirs, *held),
            start_new_session=True,
            env={**environ, "PYTHONPATH": os.pathsep.join(places)},
        )
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
        for one in self._unended:
            os.close(one)
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
            for key, _ in sorted(ready, key=lambda one: one[0].fd == self._ours):
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


if __name__ == "__main__":
    supervisor, pipe, *held = map(int, sys.argv[1:])
    keep(supervisor, pipe, *held)
    os.set_inheritable(pipe, False)
    worker = os.getpid()
    try:
        importlib.import_module("lmperf.measuring.worker").main(pipe)
    except KeyboardInterrupt:
        os._exit(128 + signal.SIGINT)  # without waiting for threads
    except Exception as error:
        if os.getpid() != worker:
            raise  # a process that an implementation has forked
        words = described(error)
        failed = {"status": "crash", "reason": words}
        for message in ({"traceback": trace_of(error), "words": words}, {"failed": failed}):
            os.write(pipe, f"{json.dumps(message)}\n".encode())
        os._exit(1)
