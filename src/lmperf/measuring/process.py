"""A worker's process, from outside: started, asked, stopped while others are in turn, ended.

Each worker leads a process group of its own: what it has started stops and ends with it.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import reduction
from typing import Any

from lmperf.measuring import worker

_PRELOADED = ["torch", "lmperf.measuring.serving"]
_START_LIMIT_S = 180.0
# How long a reply is waited for before the machine is looked at again, in seconds.
_GLANCE_S = 0.004

Told = Callable[..., None]


class Lost(Exception):
    """A worker that died, hung, or is not to be trusted; what its row shall say, and where it was.

    `case` and `phase` are those of its last step, None where the request itself tells.
    """

    def __init__(self, row: dict[str, Any], case: Any = None, phase: str | None = None):
        super().__init__(str(row))
        self.row, self.case, self.phase = row, case, phase


class Wrong(Exception):
    """A result that is not right; what its row shall say."""

    def __init__(self, row: dict[str, Any]):
        super().__init__(str(row))
        self.row = row


class _Inherited:
    """An open file that a worker gets, whichever way it is started."""

    def __init__(self, descriptor: int):
        self._descriptor = descriptor

    def __reduce__(self):
        return _opened, (reduction.DupFd(self._descriptor),)


def _opened(duplicate: Any) -> int:
    return duplicate.detach()


class WorkerProcess:
    """One worker.

    Args:
        device: cuda, mps or cpu.
        lock: descriptor of the open file that holds the device's lock.
        path: its `sys.path`, where it has code of its own; None for this process's code, for which
            workers are forked from one server that has imported torch and not touched the device,
            so that a new one costs milliseconds.

    Attributes:
        code: the directory that its lmperf was imported from.
        facts: what it says of the device.
    """

    def __init__(self, device: str, lock: int, path: Sequence[str] | None = None):
        context = multiprocessing.get_context("forkserver" if path is None else "spawn")
        if path is None:
            context.set_forkserver_preload(_PRELOADED)
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=worker.main, args=(theirs, device, _Inherited(lock)), daemon=False
        )
        with _search_path(path):
            self._process.start()
        theirs.close()
        self._stopped = False
        self.facts: dict[str, Any] = {}
        self.code = ""

    def wait_until_ready(self) -> None:
        """Wait until it has touched the device, and says what it is.

        Raises:
            Lost: it died, or took too long.
        """
        self.facts = self._reply(_START_LIMIT_S, lambda *_: None, None)
        self.code = self.facts.pop("code")

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(
        self,
        *request: Any,
        limit_s: float,
        told: Told = lambda *_: None,
        glance: Callable[[], None] | None = None,
    ) -> Any:
        """What a request gives.

        limit_s: seconds that a step may take. told: gets every other message on the way. glance:
        called now and then while nothing is said.

        Raises:
            Lost: the worker died, took longer, or says that it is not to be trusted any more.
            Wrong: a result is not right.
        """
        with contextlib.suppress(BrokenPipeError):  # a dead worker is found when it is read from
            self._connection.send(request)
        return self._reply(limit_s, told, glance)

    def _reply(self, limit_s: float, told: Told, glance: Callable[[], None] | None) -> Any:
        at: tuple[Any, str | None] = (None, None)
        while True:
            match self._receive(limit_s, at, glance):
                case ("done", result):
                    return result
                case ("wrong", row):
                    raise Wrong(row)
                case ("failed", case, phase, row):
                    raise Lost(row, case, phase)
                case message:
                    at = message[1], message[2]
                    told(*message)

    def _receive(self, limit_s: float, at: tuple, glance: Callable[[], None] | None) -> tuple:
        left = limit_s
        while not self._connection.poll(min(left, _GLANCE_S) if glance else left):
            left -= _GLANCE_S if glance else left
            if left <= 0:
                reason = f"no answer within {limit_s:g} s"
                raise Lost({"status": "timeout", "reason": reason}, *at)
            glance()
        try:
            return self._connection.recv()
        except (EOFError, ConnectionResetError):
            self._process.join()
            reason = _ending(self._process.exitcode)
            raise Lost({"status": "crash", "reason": reason}, *at) from None

    def pause(self) -> None:
        """Stop it and what it has started, so that nothing of it runs while others are timed."""
        if not self._stopped:
            self._signal(signal.SIGSTOP)
            self._stopped = True

    def resume(self) -> None:
        if self._stopped:
            self._signal(signal.SIGCONT)
            self._stopped = False

    def end(self) -> None:
        """End it and every process that it has started."""
        self._signal(signal.SIGKILL)
        self._process.kill()
        self._process.join()
        self._connection.close()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


def _ending(exitcode: int | None) -> str:
    if exitcode is not None and exitcode < 0:
        return f"the process was ended by {signal.Signals(-exitcode).name}"
    return f"the process ended with exit code {exitcode}"


@contextlib.contextmanager
def _search_path(path: Sequence[str] | None) -> Iterator[None]:
    """A process that is spawned gets this process's `sys.path`."""
    before = list(sys.path)
    if path is not None:
        sys.path[:] = path
    try:
        yield
    finally:
        sys.path[:] = before
