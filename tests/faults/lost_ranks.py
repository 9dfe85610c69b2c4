"""Faults of a rank at random moments: killed, stopped, or out of memory.

    python tests/faults/lost_ranks.py --tries 20
    python tests/faults/lost_ranks.py --tries 3 kill hang
    python tests/faults/lost_ranks.py --tries 3 --device cuda

Each try measures a group of two cases on two processes (gloo on a CPU, NCCL on two GPUs), and
disturbs a rank at a random moment of it; every third try begins with the start of the ranks. It
passes if

- each case has one row, with a status that the fault can have (`ok` if the case was measured again,
  or had its row already), and no wrong time passes its check;
- the group took no longer than an undisturbed one, the new workers, and the benchmark's limit if a
  rank hung: nothing waits for a time-out of the library;
- the next group is measured, in ranks of which none had been disturbed;
- no rank of the disturbed group is left.

The results are printed as a table.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "measuring"))

from processes import is_running
from ranked_toy import RankedToy, case_of

from lmperf.measuring import group
from lmperf.measuring.descendants import children
from lmperf.measuring.readings import Reading
from lmperf.measuring.rounds import Pace
from lmperf.measuring.supervisor import Supervisor
from lmperf.measuring.workers import PROJECT, Workers

NAMES = ("right", "allocates")
# Bytes by which a rank may still grow once its memory is limited.
_SPARE = 2**20


def _limit_memory(pid: int) -> None:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + _SPARE
    resource.prlimit(pid, resource.RLIMIT_AS, (limit, limit))


# Fault -> (what is done to the rank, the statuses that a case may have then).
FAULTS: dict[str, tuple[Callable[[int], None], set[str]]] = {
    "kill": (lambda pid: os.kill(pid, signal.SIGKILL), {"ok", "crash"}),
    "hang": (lambda pid: os.kill(pid, signal.SIGSTOP), {"ok", "timeout"}),
    "memory": (_limit_memory, {"ok", "oom", "crash"}),
}


class QuickWorkers(Workers):
    def reading(self, request: str) -> Reading:
        return Reading(1.0, 1.0)


def ranks(supervisor: Supervisor) -> list[int]:
    """The process ids of all ranks: worker, server, keepers, ranks."""
    worker = supervisor.workers.pid_of(PROJECT)
    servers = children(worker) if worker else ()
    keepers = (keeper for server in servers for keeper in children(server))
    return [rank for keeper in keepers for rank in children(keeper)]


@dataclass
class Tally:
    """The tries of one fault.

    Attributes:
        struck: tries in which a rank was disturbed before the group was measured.
        statuses: number of rows by status.
        longest_s: seconds of the longest disturbed group.
        broken: what went wrong, a line each.
    """

    struck: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    longest_s: float = 0.0
    broken: list[str] = field(default_factory=list)


class Tries:
    """Measures groups with one supervisor, and disturbs some of them."""

    def __init__(self, supervisor: Supervisor, draw: random.Random):
        self._supervisor, self._draw = supervisor, draw
        self._benchmark = RankedToy("ranked_toy")
        self.cold_s = self._seconds()
        self.warm_s = self._seconds()
        self._benchmark.limit_s = self.limit_s = max(6.0, 2 * self.cold_s)

    def _seconds(self) -> float:
        began = time.monotonic()
        assert [row["status"] for row in self._measure(*NAMES)] == ["ok", "ok"]
        return time.monotonic() - began

    def _measure(self, *names: str) -> list[dict]:
        cases = [case_of(name) for name in names]
        return self._supervisor.measure(self._benchmark, cases, 1, twins=False)

    def run(self, fault: str, number: int, tally: Tally) -> None:
        """Disturb one group, and add what happened to the tally."""
        self._supervisor.history.timeouts.clear()
        if number % 3 == 0:
            self._supervisor.workers.end(PROJECT)
        moment = self._draw.uniform(0, self.warm_s if number % 3 else self.cold_s)
        disturb, expected = FAULTS[fault]
        struck: list[int] = []
        over = threading.Event()

        def strike() -> None:
            over.wait(moment)
            while not over.is_set() and not struck:
                if alive := ranks(self._supervisor):
                    pid = self._draw.choice(alive)
                    disturb(pid)
                    struck.append(pid)
                over.wait(0.005)

        other = threading.Thread(target=strike)
        began = time.monotonic()
        other.start()
        rows = self._measure(*NAMES)
        took_s = time.monotonic() - began
        over.set()
        other.join()
        tally.struck += bool(struck)
        tally.longest_s = max(tally.longest_s, took_s)
        where = f"try {number}, after {moment:.2f} s: "
        tally.broken += [where + words for words in self._faults(fault, rows, took_s, expected)]
        for row in rows:
            tally.statuses[row["status"]] = tally.statuses.get(row["status"], 0) + 1
        if struck and fault != "kill":  # it may have been disturbed once all was measured
            self._supervisor.workers.end(PROJECT)
        (after,) = self._measure("right")
        if after["status"] != "ok":
            tally.broken.append(f"{where}the next group has {after}")
        if any(map(is_running, struck)):
            tally.broken.append(f"{where}the disturbed rank is left")

    def _faults(self, fault: str, rows: list[dict], took_s: float, expected: set[str]):
        if [row["implementation"] for row in rows] != [*NAMES]:
            yield f"rows of {[row['implementation'] for row in rows]}"
        for row in rows:
            if row["status"] not in expected:
                yield f"{row['implementation']} has {row['status']}: {row.get('reason')}"
            if row["status"] == "ok" and not 0 < row["median_ms"] < 1e3 * self.limit_s:
                yield f"{row['implementation']} took {row['median_ms']} ms"
            if row["status"] == "oom" and not row["requested_bytes"] and not row["free_bytes"]:
                yield "out of memory without bytes"
        # At most three workers start: one for the case alone, one for the others.
        if took_s > self.warm_s + 4 * self.cold_s + (fault == "hang") * self.limit_s + 5:
            yield f"the group took {took_s:.1f} s"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=", ".join(FAULTS))
    parser.add_argument("--tries", type=int, default=20)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(16))
    given = parser.parse_args()
    group.pace_of = lambda *_: Pace(5, 10, 0.5)
    group.MOST_TAKES = 1  # the machine may be at work
    tallies = {name: Tally() for name in given.faults or FAULTS}
    with Supervisor(given.device) as supervisor:
        supervisor.workers = QuickWorkers(given.device)
        tries = Tries(supervisor, random.Random(given.seed))
        print(
            f"seed {given.seed}; undisturbed {tries.cold_s:.1f} s with the start of the ranks,"
            f" {tries.warm_s:.1f} s without; limit {tries.limit_s:.1f} s",
            flush=True,
        )
        for name, tally in tallies.items():
            for number in range(given.tries):
                tries.run(name, number, tally)
                print(f"{name} {number + 1}: {tally.statuses} {tally.broken[-1:]}", flush=True)
    lines = [
        [name, given.tries, one.struck, one.statuses, f"{one.longest_s:.1f}", len(one.broken)]
        for name, one in tallies.items()
    ]
    print(tabulate(lines, ["fault", "tries", "struck", "rows", "longest s", "wrong"]))
    broken = [f"{name}: {words}" for name, one in tallies.items() for words in one.broken]
    print("\n".join(broken) or "nothing waited, nothing was wrong")
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
