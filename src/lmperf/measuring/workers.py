"""Manages the worker processes of one device: only one runs at a time, the others are paused.

The project's implementations share one worker. Each peer (another project's implementation) and
each custom implementation has a worker of its own, so that threads or settings that it leaves
behind in the process cannot affect other implementations.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lmperf.benchmark import Case
from lmperf.measuring.interrupts import delayed_signals
from lmperf.measuring.lock import MACHINE
from lmperf.measuring.process import OnMessage, WorkerLost, WorkerProcess
from lmperf.measuring.readings import Reading
from lmperf.measuring.state import Watch, watch

OnStep = Callable[[str, Case | None, str | None], None]
_REFERENCE_LIMIT_S = 120.0
# Name of the worker of the project's implementations.
PROJECT = ""
# Number of lines of the implementations' output that are passed on to the user.
_MOST_LINES = 100


class WorkerStartError(Exception):
    """Raised if a worker could not be started; the message says why."""


class Workers:
    """Starts, asks, pauses and ends the worker processes of one device.

    Args:
        device: cuda, mps or cpu.
        on_step: called before every step of a worker with (words, case or None, phase or None).
        note: called with each line for the user: the process that holds the machine's lock, and
            the output of implementations.
        paths: worker name -> `sys.path` of that worker, which must import lmperf from its first
            directory. Workers not in `paths` run the code of this process. Workers in `paths` live
            until `stop`, and the first of them measures the reference cell.

    Attributes:
        facts: properties of the device, as the last started worker reported them.
    """

    def __init__(
        self,
        device: str,
        on_step: OnStep = lambda *_: None,
        note: Callable[[str], None] = lambda _: None,
        paths: Mapping[str, Sequence[str]] | None = None,
    ):
        self.device, self.on_step = device, on_step
        self.facts: dict[str, Any] = {}
        self._note = note
        self._paths = dict(paths or {})
        # Name of a worker for a single case -> name of the worker that had the case before.
        self._isolated: dict[str, str] = {}
        self._processes: dict[str, WorkerProcess] = {}
        self._has_lock = False
        self._lines = 0
        self._devices = 1
        self._watch: Watch | None = None

    @property
    def names(self) -> list[str]:
        """The names of the running workers."""
        return list(self._processes)

    @property
    def pids(self) -> list[int]:
        """The process ids of the running workers."""
        return [process.pid for process in self._processes.values()]

    def pid_of(self, name: str) -> int | None:
        """The process id of a worker; None if it does not run."""
        process = self._processes.get(name)
        return process.pid if process else None

    @property
    def watch(self) -> Watch:
        """The sampler of the machine's state during slices; a worker must have started before."""
        if self._watch is None:
            first = [uuid] if (uuid := self.facts.get("uuid")) else []
            uuids = self.facts.get("uuids", first)[: self._devices]
            self._watch = watch(self.device, uuids, lambda: self.pids)
        return self._watch

    def use_devices(self, devices: int) -> None:
        """Watch the first `devices` devices of this machine from now on."""
        if devices != self._devices:
            self._devices, self._watch = devices, None

    def start(self, names: Sequence[str]) -> None:
        """Start the named workers that are not running, in parallel.

        Raises:
            WorkerStartError: a worker did not start, or imported lmperf from another directory.
        """
        if not self._has_lock:
            MACHINE.take(self._note)
            self._has_lock = True
        new = [name for name in names if name not in self._processes]
        for name in new:
            with contextlib.suppress(WorkerLost):  # `_wait_for` starts it again
                self._begin(name)
        for name in new:
            self._wait_for(name)

    def ask(
        self,
        name: str,
        *request: Any,
        limit_s: float,
        on_message: OnMessage = lambda *_: None,
        on_wait: Callable[[], None] | None = None,
    ) -> Any:
        """Send a request to a worker and return its result; arguments as of `WorkerProcess.ask`.

        Starts the worker if it is not running, and pauses all other workers.

        Raises:
            WorkerLost: the worker died or hung; its process has been ended.
            CheckFailed: the worker found a result wrong.
        """
        process = self._switch_to(name)
        try:
            return process.ask(*request, limit_s=limit_s, on_message=on_message, on_wait=on_wait)
        except WorkerLost:
            self.end(name)
            raise

    def isolate(self, name: str, case: Case) -> str:
        """Return the name of a new worker for one case, with the same code as the worker `name`."""
        isolated = f"{name} {case.name}, alone".strip()
        self._isolated[isolated] = name
        return isolated

    def reading(self, request: str) -> Reading | None:
        """Return the times of the references; None if they cannot be measured.

        request: `reference` for all of them, `host_reference` for those of the host.
        """
        self.on_step("references", None, None)
        name = next(iter(self._paths), PROJECT)
        for _ in range(2):  # the first worker may have been killed from outside
            try:
                return self.ask(name, request, limit_s=_REFERENCE_LIMIT_S)
            except WorkerLost as lost:
                if not lost.died:
                    break
        return None

    def _switch_to(self, name: str) -> WorkerProcess:
        for other, process in self._processes.items():
            if other != name:
                process.pause()
        if name not in self._processes:
            self.start([name])
        self._processes[name].resume()
        return self._processes[name]

    def _begin(self, name: str) -> None:
        def on_line(line: str) -> None:
            self._forward(f"{self._isolated.get(name, name) or 'the worker'} writes: {line}")

        locks, path = MACHINE.filenos(), self._path_of(name)
        # Interrupted here, a worker would print a traceback: it waits for the data of its start.
        with delayed_signals(), MACHINE.visible():
            self._processes[name] = WorkerProcess(self.device, locks, path, on_line)

    def _path_of(self, name: str) -> Sequence[str] | None:
        return self._paths.get(self._isolated.get(name, name))

    def _wait_for(self, name: str) -> None:
        """Wait until a worker is ready; restart it once if it dies (it may have been killed)."""
        for last in (False, True):
            try:
                if name not in self._processes:
                    self._begin(name)
                self._processes[name].wait_until_ready()
                break
            except WorkerLost as lost:
                self.end(name)
                if last or not lost.died:
                    words = f"no worker could be started on {self.device}: {lost.row['reason']}"
                    raise WorkerStartError(words) from None
        code, path = self._processes[name].code, self._path_of(name)
        has_own = bool(path) and (Path(path[0]) / "lmperf").is_dir()  # not a user's repository
        if has_own and not Path(code).is_relative_to(Path(path[0]).resolve()):
            self.end(name)
            raise WorkerStartError(f"a worker imported lmperf from {code}, not from {path[0]}")
        self.facts = self._processes[name].facts

    def _forward(self, line: str) -> None:
        self._lines += 1
        if self._lines <= _MOST_LINES:
            self._note(line)
        elif self._lines == _MOST_LINES + 1:
            self._note("further output of implementations is not shown")

    def end(self, name: str) -> None:
        """End a worker and every process that it started."""
        with delayed_signals():
            process = self._processes.pop(name, None)
            if process is not None:
                process.end()

    def end_custom(self) -> None:
        """End the workers of peers, custom implementations, isolated cases and twins."""
        kept = {PROJECT, *self._paths}
        for name in [name for name in self._processes if name not in kept]:
            self.end(name)
        self._isolated.clear()

    def stop(self) -> None:
        """End all workers and release the lock of the machine."""
        with delayed_signals():
            for name in list(self._processes):
                self.end(name)
            if self._has_lock:
                MACHINE.release()
            self._has_lock = False
