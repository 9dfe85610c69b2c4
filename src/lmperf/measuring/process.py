"""A worker's process, from outside: started, asked, stopped while others are in turn, ended.

Each worker leads a process group of its own, and adopts what its children leave behind: all that it
has started stops and ends with it.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import connection, forkserver, reduction
from typing import Any

from lmperf.measuring import descendants, follow, worker
from lmperf.measuring.output import Output

_PRELOADED = ["lmperf.measuring.follow", "torch", "lmperf.measuring.serving"]
_START_LIMIT_S = 180.0
# How often a worker that says nothing is looked at, in seconds: its end is not always heard.
_CHECK_S = 1.0
# How long a worker that has closed its connection may take to end, in seconds.
_END_LIMIT_S = 1.0
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

    @property
    def died(self) -> bool:
        """Whether its process ended or raised: by whose doing, only another try can tell."""
        return self.row["status"] == "crash"


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
        lock: descriptor of the open file that holds the machine's lock.
        path: its `sys.path`, where it has code of its own; None for this process's code, for which
            workers are forked from one server that has imported torch and not touched the device,
            so that a new one costs milliseconds.
        heard: gets each line that it writes to stdout or stderr; with a path it has those of this
            process, since its code may be older than this.

    Attributes:
        code: the directory that its lmperf was imported from.
        facts: what it says of the device.

    Raises:
        Lost: it could not be started.
    """

    def __init__(
        self,
        device: str,
        lock: int,
        path: Sequence[str] | None = None,
        heard: Callable[[str], None] = lambda _: None,
    ):
        context = multiprocessing.get_context("forkserver" if path is None else "spawn")
        if path is None:
            _ensure_server(context)
        self._connection, theirs = context.Pipe()
        self._output = Output(heard)
        output = [_Inherited(self._output.theirs)] if path is None else []
        self._process = context.Process(
            target=worker.main, args=(theirs, device, _Inherited(lock), *output), daemon=False
        )
        self._stopped: set[int] = set()
        self.facts: dict[str, Any] = {}
        self.code = ""
        try:
            with _search_path(path):
                self._process.start()
            atexit.register(self.end)  # before multiprocessing waits for it, if we do not end it
        except BaseException as error:
            self._connection.close()
            self._output.close()
            if isinstance(error, EOFError | ConnectionError):
                raise Lost(_crash("the server of workers ended")) from None
            raise
        finally:
            theirs.close()
            os.close(self._output.theirs)

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
        self._output.last = ""
        with contextlib.suppress(OSError):  # a dead worker is found when it is read from
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
        until = time.monotonic() + limit_s
        while not self._heard_within(_GLANCE_S if glance else _CHECK_S, until):
            if glance:
                glance()
            if not self._process.is_alive() and not self._connection.poll():
                raise self._ended(at)
            if time.monotonic() >= until:
                reason = f"no answer within {limit_s:g} s"
                raise Lost({"status": "timeout", "reason": reason}, *at)
        try:
            return self._connection.recv()
        except (EOFError, ConnectionResetError):
            raise self._ended(at) from None

    def _heard_within(self, seconds: float, until: float) -> bool:
        """Whether there is a message, after at most some seconds; its output is taken in."""
        left = max(0.0, min(seconds, until - time.monotonic()))
        sources = [self._connection, self._process.sentinel, *self._output.readable]
        ready = connection.wait(sources, left)
        if self._connection in ready:
            return True
        if ready:
            self._output.read()
        return False

    def _ended(self, at: tuple) -> Lost:
        self._process.join(_END_LIMIT_S)
        while self._output.readable and connection.wait(self._output.readable, 0):
            self._output.read()
        words = f', after it wrote "{last}"' if (last := self._output.last) else ""
        return Lost(_crash(_ending(self._process.exitcode) + words), *at)

    def is_alive(self) -> bool:
        return self._process.is_alive()

    def pause(self) -> None:
        """Stop it and what it has started, so that nothing of it runs while others are timed."""
        if not self._stopped:
            self._signal_group(signal.SIGSTOP)
            self._stopped = descendants.stop(self.pid)

    def resume(self) -> None:
        if self._stopped:
            self._signal_group(signal.SIGCONT)
            descendants.send(self._stopped, signal.SIGCONT)
            self._stopped = set()

    def end(self) -> None:
        """End it and every process that it has started."""
        self._signal_group(signal.SIGSTOP)
        family = descendants.stop(self.pid) if self._process.is_alive() else set()
        descendants.send(family, signal.SIGKILL)
        self._signal_group(signal.SIGKILL)
        self._process.kill()
        self._process.join()
        self._connection.close()
        self._output.close()
        _end_orphans()
        atexit.unregister(self.end)

    def _signal_group(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


def _ensure_server(context: Any) -> None:
    """Start the server that workers are forked from, if there is none; it ends with us."""
    context.set_forkserver_preload(_PRELOADED)
    with follow.owning_a_server():
        forkserver.ensure_running()


def _end_orphans() -> None:
    """End what lost workers left behind: the server has adopted it."""
    server = forkserver._forkserver._forkserver_pid
    if server is not None:
        workers = [process.pid for process in multiprocessing.active_children()]
        descendants.end_children(server, but=workers)


def _crash(reason: str) -> dict[str, Any]:
    return {"status": "crash", "reason": reason}


def _ending(exitcode: int | None) -> str:
    if exitcode is None:
        return "the process closed its connection"
    if exitcode >= 0:
        return f"the process ended with exit code {exitcode}"
    known = {number.value: number.name for number in signal.Signals}
    return f"the process was ended by {known.get(-exitcode, f'signal {-exitcode}')}"


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
