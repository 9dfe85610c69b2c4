"""The supervisor: gives groups to workers, and turns what is lost with one into a row.

The project's implementations share a worker; each of the user's own has one to itself, so that
nothing that it leaves behind reaches a peer. They are timed in turn by hand-over: a worker that is
not in turn is stopped.
"""

from __future__ import annotations

import contextlib
import fcntl
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lmperf.benchmark import Benchmark, Case, Timed
from lmperf.measuring.group import Group, Place, Row
from lmperf.measuring.process import Lost, Told, WorkerProcess
from lmperf.measuring.state import Watch, drift, watch

Watcher = Callable[[str, Case | None, str | None], None]
_REFERENCE_LIMIT_S = 120.0
# A machine that is unquiet whenever it is looked at will be so the next time, too.
_MOST_IN_VAIN = 2
# The worker of the project's own implementations.
PROJECT = ""


class WorkerLost(Exception):
    """No worker could be started; the message says how it ended."""


def lock_path(device: str) -> Path:
    """The kernel lock that serialises measurement on a device, for every user of this machine."""
    return Path(tempfile.gettempdir()) / f"lmperf-{device}.lock"


class Supervisor:
    """Owns the workers of one device.

    Args:
        device: cuda, mps or cpu.
        observer: told what a worker does: (words, case or None, phase or None).
        paths: host -> `sys.path` of its worker, the first of which its lmperf must come from; a
            host that is not named has this process's code. Those that are named last until `stop`,
            and the first of them measures the reference cell.
    """

    def __init__(
        self,
        device: str,
        observer: Watcher = lambda *_: None,
        paths: Mapping[str, Sequence[str]] | None = None,
    ):
        self._device = device
        self._observer = observer
        self._paths = dict(paths or {})
        self._workers: dict[str, WorkerProcess] = {}
        self._lock = open(lock_path(device), "a")  # noqa: SIM115 - held until `stop`
        self._held = False
        self._in_vain = 0
        self._first_reference: tuple[float, float] | None = None
        self.watch: Watch | None = None
        self.facts: dict[str, Any] = {}

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._lock.close()

    def measure(self, benchmark: Benchmark, cases: Sequence[Case], seed: int) -> list[dict]:
        """The rows of a group, one or more for every case and phase, whatever befalls a worker."""
        places = [Place(_host(benchmark, case), case) for case in cases]
        found = self.rows(benchmark, places, seed)
        return [
            {**place.case.axes, "implementation": place.case.implementation, "phase": phase, **row}
            for (place, phase), rows in found.items()
            for row in rows
        ]

    def rows(
        self, benchmark: Benchmark, places: Sequence[Place], seed: int, again: bool = True
    ) -> dict[tuple[Place, str], list[Row]]:
        """The rows of each place and phase, with the seed of their inputs; `again` as for Group."""
        group = Group(self, benchmark, places, seed, again)
        found = group.timed() if isinstance(benchmark, Timed) else group.observed()
        self._forget_own()
        return {key: [{**row, "seed": seed} for row in rows] for key, rows in found.items()}

    def ask(self, host: str, *request: Any, limit_s: float, told: Told, glance=None) -> Any:
        """Ask the worker of a host, which is started if need be; the others are stopped meanwhile.

        Raises:
            Lost: with the worker, which has been ended.
            Wrong: a result is not right.
        """
        process = self._turn(host)
        try:
            return process.ask(*request, limit_s=limit_s, told=told, glance=glance)
        except Lost:
            self._end(host)
            raise

    def said(self, words: str, case: Case | None, phase: str | None) -> None:
        """Hand on what happens."""
        self._observer(words, case, phase)

    def reference(self) -> float | None:
        """How much longer the reference cell takes than at first, the matmul or the copy: 1 is as
        long; None where it cannot be measured."""
        host = next(iter(self._paths), PROJECT)
        try:
            now = self.ask(host, "reference", limit_s=_REFERENCE_LIMIT_S, told=lambda *_: None)
        except Lost:
            return None
        self._first_reference = self._first_reference or now
        return drift(now, self._first_reference)

    @property
    def device(self) -> str:
        return self._device

    @property
    def hosts(self) -> list[str]:
        """Those that have a worker now."""
        return list(self._workers)

    def others(self) -> str | None:
        """What else this machine does before it is measured, in a line; None where it rests."""
        self.start([PROJECT])
        return self.clock_watch.before().words

    @property
    def may_repeat(self) -> bool:
        """Whether timings of an unquiet machine are worth taking again: it was quiet before."""
        return self._in_vain < _MOST_IN_VAIN

    def repeated(self, in_vain: bool) -> None:
        """Timings were taken again; whether the machine was unquiet once more."""
        self._in_vain = self._in_vain + 1 if in_vain else 0

    @property
    def clock_watch(self) -> Watch:
        """What watches the machine while a slice runs."""
        if self.watch is None:
            self.watch = watch(
                self._device,
                self.facts.get("uuid"),
                lambda: [process.pid for process in self._workers.values()],
            )
        return self.watch

    def _turn(self, host: str) -> WorkerProcess:
        for name, process in self._workers.items():
            if name != host:
                process.pause()
        if host not in self._workers:
            self.start([host])
        self._workers[host].resume()
        return self._workers[host]

    def start(self, hosts: Sequence[str]) -> None:
        """Start the workers of hosts that have none, side by side.

        Raises:
            WorkerLost: one did not start, or has other code than it must have.
        """
        self._take_lock()
        new = [host for host in hosts if host not in self._workers]
        for host in new:
            path = self._paths.get(host)
            self._workers[host] = WorkerProcess(self._device, self._lock.fileno(), path)
        for host in new:
            try:
                self._wait_for(self._workers[host], self._paths.get(host))
            except WorkerLost:
                self._end(host)
                raise

    def _wait_for(self, process: WorkerProcess, path: Sequence[str] | None) -> None:
        try:
            process.wait_until_ready()
        except Lost as lost:
            reason = lost.row["reason"]
            raise WorkerLost(f"no worker could be started on {self._device}: {reason}") from None
        if path and not Path(process.code).is_relative_to(Path(path[0]).resolve()):
            raise WorkerLost(f"a worker has lmperf from {process.code}, not from {path[0]}")
        self.facts = process.facts

    def _take_lock(self) -> None:
        if self._held:
            return
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._observer(f"waiting for another measurement on {self._device}", None, None)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._held = True

    def _forget_own(self) -> None:
        """What a user's implementation did to its process ends with its group."""
        for host in [host for host in self._workers if host != PROJECT and host not in self._paths]:
            self._end(host)

    def _end(self, host: str) -> None:
        process = self._workers.pop(host, None)
        if process is not None:
            process.end()

    def stop(self) -> None:
        """End all workers and every process that they started, and let the device go."""
        for host in list(self._workers):
            self._end(host)
        with contextlib.suppress(ValueError):
            fcntl.flock(self._lock, fcntl.LOCK_UN)
        self._held = False


def _host(benchmark: Benchmark, case: Case) -> str:
    own = case.implementation in benchmark.own_implementations
    return case.implementation if own else PROJECT
