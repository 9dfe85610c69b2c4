"""The supervisor: gives groups to workers, and turns what is lost with one into a row.

The project's implementations share a worker; each of the user's own has one to itself, so that
nothing that it leaves behind reaches a peer. They are timed in turn by hand-over: a worker that is
not in turn is stopped.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lmperf.benchmark import Benchmark, Case, Timed
from lmperf.measuring.group import Group, Place, Row, take_noise
from lmperf.measuring.interrupts import held_back
from lmperf.measuring.lock import MACHINE
from lmperf.measuring.process import Lost, Told, WorkerProcess
from lmperf.measuring.seat import numerics_of
from lmperf.measuring.state import Watch, drift, watch

Watcher = Callable[[str, Case | None, str | None], None]
_REFERENCE_LIMIT_S = 120.0
# A machine that is unquiet whenever it is looked at will be so the next time, too.
_MOST_IN_VAIN = 2
# The worker of the project's own implementations.
PROJECT = ""
# A second one of theirs, for the noise of two processes; what follows the name of another host.
TWIN = "once more"
# So many lines of what implementations write are handed on.
_MOST_LINES = 100


class WorkerLost(Exception):
    """No worker could be started; the message says how it ended."""


class Supervisor:
    """Owns the workers of one device.

    Args:
        device: cuda, mps or cpu.
        observer: told what a worker does: (words, case or None, phase or None).
        paths: host -> `sys.path` of its worker, the first of which its lmperf must come from; a
            host that is not named has this process's code. Those that are named last until `stop`,
            and the first of them measures the reference cell.
        note: told what a person should know, in a line each: who else measures, and what
            implementations write.

    Attributes:
        hung: the time-outs of an implementation, by its host and its name.
    """

    def __init__(
        self,
        device: str,
        observer: Watcher = lambda *_: None,
        paths: Mapping[str, Sequence[str]] | None = None,
        note: Callable[[str], None] = lambda _: None,
    ):
        self._device = device
        self._observer, self._note = observer, note
        self._paths = dict(paths or {})
        self._apart: dict[str, str] = {}
        self._workers: dict[str, WorkerProcess] = {}
        self._held = False
        self._lines = 0
        self._in_vain = 0
        self._first_reference: tuple[float, float] | None = None
        self.hung: Counter[tuple[str, str]] = Counter()
        self.watch: Watch | None = None
        self.facts: dict[str, Any] = {}

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def measure(self, benchmark: Benchmark, cases: Sequence[Case], seed: int) -> list[dict]:
        """The rows of a group, one or more for every case and phase, whatever befalls a worker."""
        places = [Place(_host(benchmark, case), case) for case in cases]
        found = self._beside_twins(benchmark, places, seed)
        return [
            {**place.case.axes, "implementation": place.case.implementation, "phase": phase, **row}
            for (place, phase), rows in found.items()
            for row in rows
        ]

    def _beside_twins(
        self, benchmark: Benchmark, places: Sequence[Place], seed: int
    ) -> dict[tuple[Place, str], list[Row]]:
        """The rows of a group, with the noise of two processes where several have a part in it."""
        twins = _twins(places) if isinstance(benchmark, Timed) else {}
        if twins:
            found = self.rows(benchmark, [*places, *twins.values()], seed, again=False)
            if not any(row["status"] == "oom" for rows in found.values() for row in rows):
                for place, twin in twins.items():
                    for phase in benchmark.phases:
                        (row,), (other,) = found[place, phase], found.pop((twin, phase))
                        take_noise(row, other)
                return found
            for twin in twins.values():  # which the others may have had no room beside
                self._end(twin.host)
        return self.rows(benchmark, places, seed)

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

    def apart(self, place: Place) -> str:
        """A host for a case alone, until its group is through; it has the code of its place's."""
        host = f"{place.host} {place.case.name}, alone".strip()
        self._apart[host] = place.host
        return host

    def pid_of(self, host: str) -> int | None:
        """The process id of a host's worker, None where it has none."""
        process = self._workers.get(host)
        return process.pid if process else None

    def said(self, words: str, case: Case | None, phase: str | None) -> None:
        """Hand on what happens."""
        self._observer(words, case, phase)

    def reference(self) -> float | None:
        """How much longer the reference cell takes than at first, the matmul or the copy: 1 is as
        long; None where it cannot be measured."""
        now = self._reference_times()
        if now is None:
            return None
        self._first_reference = self._first_reference or now
        return drift(now, self._first_reference)

    def _reference_times(self) -> tuple[float, float] | None:
        host = next(iter(self._paths), PROJECT)
        for _ in range(2):  # a worker that dies may have been ended from outside
            try:
                return self.ask(host, "reference", limit_s=_REFERENCE_LIMIT_S, told=lambda *_: None)
            except Lost as lost:
                if not lost.died:
                    break
        return None

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
            with contextlib.suppress(Lost):  # it is tried again
                self._begin(host)
        for host in new:
            self._wait_for(host)

    def _begin(self, host: str) -> None:
        def heard(line: str) -> None:
            self._hand_on(f"{self._apart.get(host, host) or 'the worker'} writes: {line}")

        lock, path = MACHINE.fileno(), self._path_of(host)
        self._workers[host] = WorkerProcess(self._device, lock, path, heard)

    def _path_of(self, host: str) -> Sequence[str] | None:
        return self._paths.get(self._apart.get(host, host))

    def _wait_for(self, host: str) -> None:
        """Wait until a worker is ready; one that dies may have been ended from outside."""
        for last in (False, True):
            try:
                if host not in self._workers:
                    self._begin(host)
                self._workers[host].wait_until_ready()
                break
            except Lost as lost:
                self._end(host)
                if last or not lost.died:
                    words = f"no worker could be started on {self._device}: {lost.row['reason']}"
                    raise WorkerLost(words) from None
        code, path = self._workers[host].code, self._path_of(host)
        if path and not Path(code).is_relative_to(Path(path[0]).resolve()):
            self._end(host)
            raise WorkerLost(f"a worker has lmperf from {code}, not from {path[0]}")
        self.facts = self._workers[host].facts

    def _take_lock(self) -> None:
        if not self._held:
            MACHINE.take(self._note)
            self._held = True

    def _hand_on(self, line: str) -> None:
        self._lines += 1
        if self._lines <= _MOST_LINES:
            self._note(line)
        elif self._lines == _MOST_LINES + 1:
            self._note("what implementations write from here on is not shown")

    def _forget_own(self) -> None:
        """What a user's implementation did to its process ends with its group."""
        kept = {PROJECT, TWIN, *self._paths}
        for host in [host for host in self._workers if host not in kept]:
            self._end(host)
        self._apart.clear()

    def _end(self, host: str) -> None:
        with held_back():
            process = self._workers.pop(host, None)
            if process is not None:
                process.end()

    def stop(self) -> None:
        """End all workers and every process that they started, and let the machine go."""
        with held_back():
            for host in list(self._workers):
                self._end(host)
            if self._held:
                MACHINE.release()
            self._held = False


def _twins(places: Sequence[Place]) -> dict[Place, Place]:
    """For a group over several workers: the first place of each numerics, in a worker more.

    Two processes of one code differ by more than two slices of one.
    """
    if len({place.host for place in places}) < 2:
        return {}
    first: dict[str | None, Place] = {}
    for place in places:
        first.setdefault(numerics_of(place.case), place)
    return {one: Place(f"{one.host} {TWIN}".strip(), one.case) for one in first.values()}


def _host(benchmark: Benchmark, case: Case) -> str:
    own = case.implementation in benchmark.external
    return case.implementation if own else PROJECT
