"""Starts, asks, pauses and ends a worker: a process that runs the timed code for its supervisor.

Each worker leads its own process group and adopts orphaned descendants (subreaper). So every
process that a worker has started can be paused and ended together with the worker.
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
from lmperf.measuring.faults import ending
from lmperf.measuring.output import Output

_PRELOADED = ("lmperf.measuring.follow", "torch", "lmperf.measuring.serving")
# On a CPU each worker uses a dispatch mode (`footprint.import_dispatch`), which imports this for a
# second.
_ON_CPU = "torch._dynamo"
_START_LIMIT_S = 180.0
# Seconds between two checks that a silent worker is alive: the end of its process may go
# unsignalled.
_CHECK_S = 1.0
# Seconds to wait for the end of a worker process after the worker closed the connection.
_END_LIMIT_S = 1.0
# Seconds between two calls of `on_wait` while a worker sends no message.
_WAIT_S = 0.004

OnMessage = Callable[..., None]


class WorkerLost(Exception):
    """Raised when a worker process died, hung, or reported that it must not be used again.

    Attributes:
        row: columns `status` and `reason` for the case that the worker was running.
        case, phase: the case and phase that the worker named in its last message; None if it sent
            no message.
    """

    def __init__(self, row: dict[str, Any], case: Any = None, phase: str | None = None):
        super().__init__(str(row))
        self.row, self.case, self.phase = row, case, phase

    @property
    def died(self) -> bool:
        """Whether the worker ended or raised an error, not timed out or ran out of memory.

        The case that was running need not be the cause: it is retried before a crash is recorded.
        """
        return self.row["status"] == "crash"


class CheckFailed(Exception):
    """Raised when a worker reports a wrong result; `row` has the columns `status` and `reason`."""

    def __init__(self, row: dict[str, Any]):
        super().__init__(str(row))
        self.row = row


class _Inherited:
    """A picklable open file descriptor, for a worker that is forked or spawned."""

    def __init__(self, descriptor: int):
        self._descriptor = descriptor

    def __reduce__(self):
        return _opened, (reduction.DupFd(self._descriptor),)


def _opened(duplicate: Any) -> int:
    return duplicate.detach()


class WorkerProcess:
    """Starts one worker process and exchanges requests and replies with it.

    Args:
        device: cuda, mps or cpu.
        locks: descriptors of the open files that hold the lock of the machine or of its GPUs.
        path: `sys.path` of a worker that runs other code than this process; the worker is spawned.
            None: the worker is forked, in milliseconds, from a server that has imported torch but
            has not touched the device.
        on_line: called with each line that the worker prints. A spawned worker inherits the output
            of this process instead, since its code may be older.

    Attributes:
        code: the directory from which the worker imported lmperf.
        facts: properties of the device as the worker reported them, e.g. its UUID.

    Raises:
        WorkerLost: the worker could not be started.
    """

    def __init__(
        self,
        device: str,
        locks: Sequence[int],
        path: Sequence[str] | None = None,
        on_line: Callable[[str], None] = lambda _: None,
    ):
        context = multiprocessing.get_context("forkserver" if path is None else "spawn")
        if path is None:
            _ensure_server(context, device)
        self._connection, theirs = context.Pipe()
        self._output = Output(on_line)
        # A spawned worker may run older code, which knows one lock: that of the machine.
        own = [_Inherited(self._output.theirs), [*map(_Inherited, locks[1:])]]
        own = own if path is None else []
        self._process = context.Process(
            target=worker.main, args=(theirs, device, _Inherited(locks[0]), *own), daemon=False
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
        """Wait until the worker has initialised the device and sent the device's properties.

        Raises:
            WorkerLost: the worker died, or was not ready in time.
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
        """Send a request to the worker and return its result.

        Args:
            limit_s: most seconds between two messages of the worker.
            on_message: called with each message that the worker sends before the result.
            on_wait: called every few milliseconds while the worker sends no message.

        Raises:
            WorkerLost: the worker died, timed out, or reported that it must not be used again.
            CheckFailed: the worker found the result of an implementation wrong.
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
        """Return whether the worker sends a message within `seconds`, but no later than `until`.

        Also reads the lines that the worker has printed.
        """
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
        return WorkerLost(_crash(ending(self._process.exitcode) + words), *at)

    def pause(self) -> None:
        """Stop the worker and its descendants, while another worker is timed."""
        if not self._paused:
            self._signal_group(signal.SIGSTOP)
            self._paused = descendants.stop(self.pid)

    def resume(self) -> None:
        """Continue the worker and its descendants after `pause`."""
        if self._paused:
            self._signal_group(signal.SIGCONT)
            descendants.send(self._paused, signal.SIGCONT)
            self._paused = set()

    def end(self) -> None:
        """Kill the worker and every process that it has started."""
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


def _ensure_server(context: Any, device: str) -> None:
    """Start the server that forks workers unless it runs; it ends when this process ends."""
    context.set_forkserver_preload([*_PRELOADED, *([_ON_CPU] if device == "cpu" else [])])
    with follow.owning_a_server():
        forkserver.ensure_running()


def _end_orphans() -> None:
    """Kill the descendants of ended workers, which the fork server has adopted as its children."""
    server = forkserver._forkserver._forkserver_pid
    if server is not None:
        workers = [process.pid for process in multiprocessing.active_children()]
        descendants.end_children(server, but=workers)


def _crash(reason: str) -> dict[str, Any]:
    return {"status": "crash", "reason": reason}


@contextlib.contextmanager
def _search_path(path: Sequence[str] | None) -> Iterator[None]:
    """Replace `sys.path` by `path` in this block, so that a process spawned there inherits it."""
    before = list(sys.path)
    if path is not None:
        sys.path[:] = path
    try:
        yield
    finally:
        sys.path[:] = before
