"""A place of a group in turn: what is asked of its worker, and whether its clock is believed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lmperf.benchmark import Case
from lmperf.measuring.process import Lost, Wrong
from lmperf.measuring.rounds import Taken

if TYPE_CHECKING:
    from lmperf.measuring.group import Group, Place, Row


def numerics_of(case: Case) -> str | None:
    """What a case computes in, by its axis dtype."""
    return dict(case.cell).get("dtype")


class HostLost(Exception):
    """A worker was lost: what it held is to be prepared again, on these hosts."""

    def __init__(self, *hosts: str):
        super().__init__(*hosts)
        self.hosts = hosts


class GroupSeat:
    """A place in turn: see `lmperf.measuring.rounds.Seat`."""

    def __init__(self, group: Group, place: Place, phase: str):
        self._group, self.place, self._phase = group, place, phase
        self.numerics = numerics_of(place.case)

    def warm_up(self, least_ms: float) -> tuple[float, float] | None:
        return self._asked("warm_up", least_ms)

    def slice(self, repetitions: int, checked: bool) -> Taken | None:
        watch = self._group._supervisor.clock_watch
        began = time.perf_counter_ns()
        watch.begin()
        found = self._asked("slice", repetitions, checked, glance=watch.sample)
        state = watch.end()
        if found is None:
            return None
        outside = began, time.perf_counter_ns()
        if reason := other_clock(outside, found.pop("between"), found["times"]):
            self._refuse({"status": "failed_check", "reason": reason})
            return None
        return Taken(state=state, **found)

    def host_and_loop(self, call_ms: float) -> dict[str, float] | None:
        """Columns `host_ms` and `eager_ms`; None where the seat is lost."""
        return self._asked("host_and_loop", call_ms)

    def _asked(self, request: str, *arguments: Any, glance=None) -> Any:
        group, case, phase = self._group, self.place.case, self._phase
        host = group.host_of(self.place)
        group._supervisor.said("timing", case, phase)
        try:
            return group._ask(host, request, case, phase, *arguments, glance=glance)
        except Wrong as wrong:
            self._refuse(wrong.row)
            return None
        except Lost as lost:
            moved = group._note(host, lost, self.place, phase)
            raise HostLost(*dict.fromkeys((host, moved or host))) from None

    def _refuse(self, row: Row) -> None:
        key = (self.place, self._phase)
        prepared = self._group._ready.pop(key)
        self._group._rows[key] = [{**prepared, **row}]


def other_clock(
    outside: tuple[int, int], told: tuple[int, int], times: Sequence[float]
) -> str | None:
    """Why a slice is not believed: its worker tells another time than the process that asked.

    All processes of a machine read one clock that never runs backwards. outside: when the slice
    was asked for and when it was there, in ns. told: when it began and ended, by the worker. times:
    ms of its calls.
    """
    if outside[0] <= told[0] <= told[1] <= outside[1] and sum(times) <= (told[1] - told[0]) / 1e6:
        return None
    took_ms, told_ms = ((end - begin) / 1e6 for begin, end in (outside, told))
    return (
        f"its clock says {told_ms:.3g} ms, of which {sum(times):.3g} ms in calls, for what took"
        f" {took_ms:.3g} ms by the clock outside"
    )
