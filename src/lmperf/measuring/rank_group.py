"""Starts, asks and ends the ranks of a group; runs in the worker that owns them.

If a rank ends, raises an error or runs out of memory, its peers would wait for it in a collective.
So they are ended at once. A rank that hangs is ended with the worker, at the benchmark's limit.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from multiprocessing import connection
from typing import Any

from lmperf.benchmark import CPU_DEVICES, Unsupported, WrongResult
from lmperf.measuring.faults import RankFailed, ending
from lmperf.measuring.rank_server import RankProcess, RankServer, kill

# Seconds to wait, after a rank raised an error, for the end of another one that caused it; and
# after a rank refused a case, for its peers to refuse it as well.
_CAUSE_S, _UNANIMOUS_S = 0.3, 5.0
_END_LIMIT_S = 1.0
# Bytes on a device that may stay allocated after a group is cleared: workspaces of libraries.
_LEFT_BYTES = 128 * 2**20

_REFUSALS = {"unsupported": Unsupported, "wrong": WrongResult}


class RankGroup:
    """Starts `ranks` processes that form a process group, and sends them requests.

    Args:
        server: starts the processes.
        device: cuda or cpu.
        cores: the CPU cores that the ranks may use; empty: all.

    Attributes:
        is_alive: whether the ranks can be asked.

    Raises:
        RankFailed: a rank could not be started.
    """

    def __init__(self, server: RankServer, ranks: int, device: str, cores: Sequence[int]):
        from torch.distributed import TCPStore

        self._store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        threads = None
        if device == "cpu":
            threads = max(1, (len(cores) or os.cpu_count() or 1) // max(ranks, CPU_DEVICES))
        port = self._store.port
        self._processes = [
            server.start(number, ranks, device, port, threads, cores) for number in range(ranks)
        ]
        self.is_alive = True
        self._replies()

    @property
    def pids(self) -> list[int]:
        """Process ids of the ranks; empty if they have been ended."""
        return [process.pid for process in self._processes] if self.is_alive else []

    def ask(self, *request: Any) -> list[Any]:
        """Send a request to every rank; return their results, by rank.

        Raises:
            Unsupported, WrongResult: every rank raised it.
            RankFailed: a rank failed, or only some ranks raised one of these; all were ended.
        """
        for process in self._processes:
            with contextlib.suppress(OSError):  # a dead rank is found when reading
                process.connection.send(request)
        return self._replies()

    def clear(self) -> None:
        """Free what the last group of cases left in the ranks; end the ranks if memory is left."""
        if max(self.ask("clear")) > _LEFT_BYTES:
            self.end()

    def end(self) -> None:
        """Kill the ranks and every process that they have started."""
        if not self.is_alive:
            return
        kill(*self.pids)
        for process in self._processes:
            connection.wait([process.ended], _END_LIMIT_S)
            process.close()
        self.is_alive = False

    def _replies(self) -> list[Any]:
        """Return the results of all ranks, once every rank has replied."""
        replies: dict[int, tuple[str, Any]] = {}
        until = None
        while len(replies) < len(self._processes):
            if not self._wait(replies, until):
                break
            kinds = {kind for kind, _ in replies.values()}
            if any(_is_final(*reply) for reply in replies.values()):
                break
            if until is None and kinds - {"done"}:
                until = time.monotonic() + (_CAUSE_S if "failed" in kinds else _UNANIMOUS_S)
        return self._judged(replies)

    def _wait(self, replies: dict[int, tuple[str, Any]], until: float | None) -> bool:
        """Add the replies that come next; return whether any came before `until`."""
        sources = {}
        for number, process in enumerate(self._processes):
            sources[process.ended] = number
            if number not in replies:
                sources[process.connection] = number
        left = None if until is None else max(0.0, until - time.monotonic())
        ready = connection.wait(list(sources), left)
        for source in ready:
            number = sources[source]
            process = self._processes[number]
            if number in replies and replies[number][0] == "dead":
                continue
            try:
                if process.connection.poll():
                    replies[number] = process.connection.recv()
                elif source == process.ended:
                    replies[number] = _death(process)
            except (EOFError, OSError):
                replies[number] = _death(process)
        return bool(ready)

    def _judged(self, replies: dict[int, tuple[str, Any]]) -> list[Any]:
        kinds = [replies.get(number, ("silent", None))[0] for number in range(len(self.pids))]
        results = [what for _, (_, what) in sorted(replies.items())]
        if set(kinds) == {"done"}:
            return results
        if len(set(kinds)) == 1 and kinds[0] in _REFUSALS:
            raise _REFUSALS[kinds[0]](results[0])
        self.end()
        number = min(replies, key=lambda one: _gravity(*replies[one]))
        raise RankFailed(_row(number, *replies[number]))


def _death(process: RankProcess) -> tuple[str, Any]:
    has_ended = connection.wait([process.ended], _END_LIMIT_S)
    return "dead", {
        "status": "crash",
        "reason": ending(process.exitcode() if has_ended else None),
    }


def _is_final(kind: str, what: Any) -> bool:
    """Return whether a reply is a cause: no other rank's reply could explain it."""
    return kind == "dead" or (kind == "failed" and what["status"] == "oom")


def _gravity(kind: str, what: Any) -> int:
    """Return the place of a reply among the causes of a failure, 0 for the likeliest."""
    if _is_final(kind, what):
        return 0
    return {"failed": 1, "wrong": 2, "unsupported": 3, "done": 4}[kind]


def _row(number: int, kind: str, what: Any) -> dict[str, Any]:
    if kind in _REFUSALS:
        status = {"unsupported": "unsupported", "wrong": "failed_check"}[kind]
        return {"status": status, "reason": f"rank {number}, but not every rank: {what}"}
    if "reason" in what:
        return {**what, "reason": f"rank {number}: {what['reason']}"}
    return what


class RankGroups:
    """The rank groups of a worker, by their number of ranks; they are reused while they live."""

    def __init__(self, server: RankServer, device: str, cores: Sequence[int]):
        self._server, self._device, self._cores = server, device, cores
        self._groups: dict[int, RankGroup] = {}

    def of(self, ranks: int) -> RankGroup:
        """Return the group of `ranks` processes; start it if it does not run.

        Raises:
            RankFailed: a rank could not be started.
        """
        found = self._groups.get(ranks)
        if found is None or not found.is_alive:
            self._groups[ranks] = found = RankGroup(self._server, ranks, self._device, self._cores)
        return found

    @property
    def largest(self) -> RankGroup | None:
        """The running group with the most ranks; None if none runs."""
        return self._groups[max(alive)] if (alive := [*self._alive()]) else None

    @property
    def pids(self) -> list[int]:
        """Process ids of all ranks."""
        return [pid for group in self._groups.values() for pid in group.pids]

    def clear(self) -> None:
        """Free what the last group of cases left in the ranks."""
        for ranks in self._alive():
            self._groups[ranks].clear()

    def _alive(self) -> list[int]:
        return [ranks for ranks, group in self._groups.items() if group.is_alive]
