"""A group of cases on its way from preparation to rows, over one or several workers."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lmperf.benchmark import Benchmark, Case
from lmperf.measuring.losses import Losses
from lmperf.measuring.process import Lost
from lmperf.measuring.rounds import Timings, in_turn, pace_of
from lmperf.measuring.seat import GroupSeat, HostLost
from lmperf.measuring.state import DRIFT

if TYPE_CHECKING:
    from lmperf.measuring.supervisor import Supervisor

Row = dict[str, Any]
# After so many time-outs an implementation is not tried any more.
_MOST_HUNG = 2


@dataclass(frozen=True)
class Place:
    """A case, and the worker that holds it, by the name of its host."""

    host: str
    case: Case


class Group:
    """Places whose cases are measured together.

    When a worker dies for the first time the case that was in turn goes on in a worker of its own,
    and the others are prepared again where they were: see `lmperf.measuring.losses`.

    Args:
        supervisor: has the workers.
        benchmark: what the cases are of.
        places: the cases, in the order of their rows.
        seed: of the inputs.
        again: whether the first place of each numerics is timed against itself too.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        benchmark: Benchmark,
        places: Sequence[Place],
        seed: int,
        again: bool = True,
    ):
        self._supervisor, self._benchmark = supervisor, benchmark
        self._places, self._seed, self._again = list(places), seed, again
        self._hosts = {place: place.host for place in places}
        # Of the workers that hold what is ready: host -> process id.
        self._holding: dict[str, int | None] = {}
        self._losses = Losses()
        self._rows: dict[tuple[Place, str], list[Row]] = {}
        self._ready: dict[tuple[Place, str], Row] = {}
        self._left_out = {*type(benchmark).phases} - {*benchmark.phases}

    def observed(self) -> dict[tuple[Place, str], list[Row]]:
        """The rows of observations that need no clock."""
        for host in self._all_hosts():
            self._until_through(host, "observe")
        return self._in_order()

    def timed(self) -> dict[tuple[Place, str], list[Row]]:
        """The rows of timings; once more, if the machine drifted meanwhile and is itself again."""
        self._supervisor.start(self._all_hosts())
        for host in self._all_hosts():
            self._until_through(host, "prepare")
        before = self._supervisor.reference()
        self._time_all()
        after = self._supervisor.reference()
        if self._drifted(before, after) and self._supervisor.may_repeat:
            before = self._supervisor.reference()
            if not self._drifted(before):  # else what is taken again would be marked again
                self._time_all()
                after = self._supervisor.reference()
            self._supervisor.repeated(in_vain=self._drifted(before, after))
        if self._drifted(before, after):
            self._mark_all("drift")
        self._set_all("reference", after)
        for host in set(self._all_hosts()) & set(self._supervisor.hosts):
            with contextlib.suppress(Lost):
                self._ask(host, "clear")
        return self._in_order()

    def _in_order(self) -> dict[tuple[Place, str], list[Row]]:
        keys = [(place, phase) for phase in self._benchmark.phases for place in self._places]
        # A version of the code may lack a phase.
        return {key: self._rows[key] for key in keys if key in self._rows}

    def _all_hosts(self) -> list[str]:
        return list(dict.fromkeys(self._hosts.values()))

    def host_of(self, place: Place) -> str:
        """The host that has a place now: another one than its own after a worker died."""
        return self._hosts[place]

    def _place(self, host: str, case: Case) -> Place:
        return next(at for at, its in self._hosts.items() if (its, at.case) == (host, case))

    def _until_through(self, host: str, request: str) -> None:
        """Have a host go through its cases, each phase of which then has rows or is ready."""
        while True:
            self._drop(host)
            self._give_up_hung()
            pending = self._pending(host)
            if not pending:
                return
            try:
                self._ask(host, request, *self._arguments(host))
                self._holding[host] = self._supervisor.pid_of(host)
                return
            except Lost as lost:
                self._rows.pop(self._key(host, lost), None)  # observations are only whole
                moved = self._note(host, lost, pending[0])
                if moved not in (None, host):
                    self._until_through(moved, request)

    def _pending(self, host: str) -> list[Place]:
        """The places of a host that lack a row."""
        return [
            place
            for place, at in self._hosts.items()
            if at == host
            and any((place, name) not in self._rows for name in self._benchmark.phases)
        ]

    def _arguments(self, host: str) -> tuple:
        """What a host's worker is asked to go through, without what has rows or is left out."""
        places = [place for place, at in self._hosts.items() if at == host]
        failures = {
            (place.case, phase): rows
            for (place, phase), rows in self._rows.items()
            if place in places
        }
        failures |= {(place.case, phase): [] for place in places for phase in self._left_out}
        made_of = self._benchmark.entry, self._benchmark.stem, self._benchmark.external
        return *made_of, [place.case for place in places], failures, self._seed

    def _drop(self, host: str) -> None:
        """A host that begins anew has nothing ready."""
        self._ready = {key: row for key, row in self._ready.items() if self._hosts[key[0]] != host}

    def _give_up_hung(self) -> None:
        """What has hung twice has its rows at once."""
        hung = self._supervisor.hung
        reason = "not tried: no answer in time twice before in this run"
        for place in self._places:
            if hung[place.host, place.case.implementation] >= _MOST_HUNG:
                for phase in self._benchmark.phases:
                    self._rows.setdefault((place, phase), [{"status": "timeout", "reason": reason}])
                    self._ready.pop((place, phase), None)

    def _ask(self, host: str, *request: Any, glance=None) -> Any:
        def told(kind: str, case: Case, phase: str | None, what: Any) -> None:
            key = (self._place(host, case), phase)
            if kind == "step":
                self._supervisor.said(what, case, phase)
            elif kind == "row":
                self._rows.setdefault(key, []).append(what)
            elif kind == "ready":
                self._ready[key] = what

        limit_s = self._benchmark.limit_s
        return self._supervisor.ask(host, *request, limit_s=limit_s, told=told, glance=glance)

    def _key(self, host: str, lost: Lost) -> tuple[Place, str | None] | None:
        """Where a worker was, if it said so."""
        return None if lost.case is None else (self._place(host, lost.case), lost.phase)

    def _note(self, host: str, lost: Lost, at: Place, phase: str | None = None) -> str | None:
        """The host that a place moves to, or the rows that a fault takes.

        `at` and `phase` are for a worker that did not say where it was.
        """
        place, phase = self._key(host, lost) or (at, phase)
        row = self._losses.row(place, phase, lost, place.case.name)
        if row is None:
            self._hosts[place] = self._supervisor.apart(place)
            return self._hosts[place]
        if row["status"] == "timeout":
            self._supervisor.hung[place.host, place.case.implementation] += 1
        for name in self._benchmark.phases if phase is None else [phase]:
            if phase is not None or (place, name) not in self._rows:
                self._rows[place, name] = [row]
            self._ready.pop((place, name), None)
        return None

    def _time_all(self) -> None:
        for phase in self._benchmark.phases:
            self._time(phase)

    def _time(self, phase: str) -> None:
        """Time a phase of all places in turn; anew where a worker is lost on the way."""
        pace = pace_of(self._benchmark.clock, self._supervisor.device, self._benchmark.patient)
        while True:
            self._renew()
            self._give_up_hung()
            ready = [place for place in self._places if (place, phase) in self._ready]
            if not ready:
                return
            seats = [GroupSeat(self, place, phase) for place in ready]
            try:
                timings = in_turn(seats, pace, again=self._again)
                if _loaded(timings) and self._supervisor.may_repeat:
                    timings = in_turn(list(timings), pace, again=self._again)
                    self._supervisor.repeated(in_vain=_loaded(timings))
                self._write(phase, timings)
            except HostLost as lost:
                for host in lost.hosts:
                    self._until_through(host, "prepare")
            else:
                return

    def _renew(self) -> None:
        """Prepare again what a worker held that was lost between: it is another one now."""
        for host in {self._hosts[place] for place, _ in self._ready}:
            if self._supervisor.pid_of(host) != self._holding[host]:
                self._until_through(host, "prepare")

    def _write(self, phase: str, timings: dict[GroupSeat, Timings]) -> None:
        """All rows of a round or, where a worker is lost on the way, none: they were in turn."""
        together, found = uuid.uuid4().hex[:12], {}
        for seat, timing in timings.items():
            columns = timing.columns()
            host = seat.host_and_loop(columns["median_ms"])
            if host is not None:
                prepared = self._ready[seat.place, phase]
                row = {"status": "ok", **columns, "together": together, **prepared, **host}
                found[seat.place, phase] = [row | achieved(row)]
        self._rows |= found

    def _drifted(self, *ratios: float | None) -> bool:
        known = [ratio for ratio in ratios if ratio is not None]
        return any(abs(ratio - 1) > DRIFT[self._supervisor.device] for ratio in known)

    def _timed_rows(self) -> list[Row]:
        return [row for rows in self._rows.values() for row in rows if "median_ms" in row]

    def _mark_all(self, mark: str) -> None:
        for row in self._timed_rows():
            row["marks"] = ";".join(filter(None, [row["marks"], mark]))

    def _set_all(self, column: str, value: float | None) -> None:
        for row in self._timed_rows():
            row[column] = value


def _loaded(timings: dict[GroupSeat, Timings]) -> bool:
    return any(timing.state.loaded for timing in timings.values())


def take_noise(row: Row, twin: Row) -> None:
    """Have what a second process of the same code took as `again_ms`, if both were timed."""
    if "rounds_ms" in row and "rounds_ms" in twin:
        row["again_ms"] = twin["rounds_ms"]


def achieved(row: Row) -> Row:
    """The rates that the median time gives."""
    seconds = row["median_ms"] / 1e3
    columns: Row = {}
    if row.get("flops"):
        columns["tflops"] = row["flops"] / seconds / 1e12
    if row.get("bytes"):
        columns["bandwidth_gbps"] = row["bytes"] / seconds / 1e9
    return columns
