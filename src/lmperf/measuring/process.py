"""A worker's process as its supervisor sees it: started, asked, paused and ended.

Each worker leads a process group of its own and adopts the orphans of its children, so that
whatever it started is paused and ended with it.
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
# How often a silent worker is looked at, in seconds: its end is not always signalled.
_CHECK_S = 1.0
# How long a worker that closed its connection may take to end, in seconds.
_END_LIMIT_S = 1.0
# How often `on_wait` is called while a worker is silent, in seconds.
_WAIT_S = 0.004

OnMessage = Callable[..., None]


class WorkerLost(Exception):
    """A worker died, hung, or reported that it cannot be used any more.

    Attributes:
        row: status and reason for the row of what it was running.
        case, phase: what it was running by its last message; None if it sent none.
    """

    def __init__(self, row: dict[str, Any], case: Any = None, phase: str | None = None):
        super().__init__(str(row))
        self.row, self.case, self.phase = row, case, phase

    @property
    def died(self) -> bool:
        """Whether its process ended or raised. Only a retry shows whether its case caused that."""
        return self.row["status"] == "crash"


class CheckFailed(Exception):
    """A worker found a result wrong; `row` has status and reason."""

    def __init__(self, row: dict[str, Any]):
        super().__init__(str(row))
        self.row = row


class _Inherited:
    """An open file that a worker inherits, both if it is forked and if it is spawned."""

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
        path: its `sys.path`, if it runs other code than this process. With None it is forked, in
            milliseconds, from a server that has imported torch but has not touched the device.
        on_line: called with each line that it prints. With a path it inherits the output of this
            process instead, since its code may be older.

    Attributes:
        code: the directory from which it imported lmperf.
        facts: what it reported about the device.

    Raises:
        WorkerLost: it could not be started.
    """

    def __init__(
        self,
        device: str,
        lock: int,
        path: Sequence[str] | None = None,
        on_line: Callable[[str], None] = lambda _: None,
    ):
        context = multiprocessing.get_context("forkserver" if path is None else "spawn")
        if path is None:
            _ensure_server(context)
        self._connection, theirs = context.Pipe()
        self._output = Output(on_line)
        output = [_Inherited(self._output.theirs)] if path is None else []
        self._process = context.Process(
            target=worker.main, args=(theirs, device, _Inherited(lock), *output), daemon=False
        )
        self._paused: set[int] = set()
        self.facts: dict[str, Any] = {}
        self.code = ""
        try:
            with _search_path(path):
                self._process.start()
            atexit.register(self.end)  # runs before multiprocessing would wait for the worker
        except BaseException as error:
            self._connection.close()
            self._output.close()
            if isinstance(error, EOFError | ConnectionError):
                raise WorkerLost(_crash("the server that forks workers ended")) from None
            raise
        finally:
            theirs.close()
            os.close(self._output.theirs)

    def wait_until_ready(self) -> None:
        """Wait until it has initialised the device and sent its facts.

        Raises:
            WorkerLost: it died, or took too long.
        """
        self.facts = self._reply(_START_LIMIT_S, lambda *_: None, None)
        self.code = self.facts.pop("code")

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_paused(self) -> bool:
        return bool(self._paused)

    def ask(
        self,
        *request: Any,
        limit_s: float,
        on_message: OnMessage = lambda *_: None,
        on_wait: Callable[[], None] | None = None,
    ) -> Any:
        """Send a request; returns the result.

        Args:
            limit_s: seconds that one step may take.
            on_message: called with every message before the result.
            on_wait: called every few milliseconds while the worker is silent.

        Raises:
            WorkerLost: the worker died, timed out, or reported that it cannot be used any more.
            CheckFailed: a result is wrong.
        """
        self._output.last = ""
        with contextlib.suppress(OSError):  # a dead worker is found when reading
            self._connection.send(request)
        return self._reply(limit_s, on_message, on_wait)

    def _reply(
        self, limit_s: float, on_message: OnMessage, on_wait: Callable[[], None] | None
    ) -> Any:
        at: tuple[Any, str | None] = (None, None)
        while True:
            match self._receive(limit_s, at, on_wait):
                case ("done", result):
                    return result
                case ("wrong", row):
                    raise CheckFailed(row)
                case ("failed", case, phase, row):
                    raise WorkerLost(row, case, phase)
                case message:
                    at = message[1], message[2]
                    on_message(*message)

    def _receive(self, limit_s: float, at: tuple, on_wait: Callable[[], None] | None) -> tuple:
        until = time.monotonic() + limit_s
        while not self._has_message(_WAIT_S if on_wait else _CHECK_S, until):
            if on_wait:
                on_wait()
            if not self._process.is_alive() and not self._connection.poll():
                raise self._ended(at)
            if time.monotonic() >= until:
                reason = f"no answer within {limit_s:g} s"
                raise WorkerLost({"status": "timeout", "reason": reason}, *at)
        try:
            return self._connection.recv()
        except (EOFError, ConnectionResetError):
            raise self._ended(at) from None

    def _has_message(self, seconds: float, until: float) -> bool:
        """Whether a message arrives within so many seconds; reads the worker's output as well."""
        left = max(0.0, min(seconds, until - time.monotonic()))
        sources = [self._connection, self._process.sentinel, *self._output.readable]
        ready = connection.wait(sources, left)
        if self._connection in ready:
            return True
        if ready:
            self._output.read()
        return False

    def _ended(self, at: tuple) -> WorkerLost:
        self._process.join(_END_LIMIT_S)
        while self._output.readable and connection.wait(self._output.readable, 0):
            self._output.read()
        words = f', after it wrote "{last}"' if (last := self._output.last) else ""
        return WorkerLost(_crash(_ending(self._process.exitcode) + words), *at)

    def pause(self) -> None:
        """Stop it and its descendants, so that they use nothing while another worker is timed."""
        if not self._paused:
            self._signal_group(signal.SIGSTOP)
            self._paused = descendants.stop(self.pid)

    def resume(self) -> None:
        """Continue it after `pause`."""
        if self._paused:
            self._signal_group(signal.SIGCONT)
            descendants.send(self._paused, signal.SIGCONT)
            self._paused = set()

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
    """Start the server that forks workers, if there is none; it ends with this process."""
    context.set_forkserver_preload(_PRELOADED)
    with follow.owning_a_server():
        forkserver.ensure_running()


def _end_orphans() -> None:
    """End the orphans of lost workers, which the fork server has adopted."""
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
    """Replace `sys.path` in this block: a spawned process inherits it."""
    before = list(sys.path)
    if path is not None:
        sys.path[:] = path
    try:
        yield
    finally:
        sys.path[:] = before
