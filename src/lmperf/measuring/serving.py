"""Answers the supervisor's requests, in a worker process."""

from __future__ import annotations

import gc
from collections.abc import Collection, Sequence
from functools import partial, reduce
from multiprocessing.connection import Connection
from typing import Any

from lmperf.benchmark import (
    Case,
    Implementation,
    Observed,
    RankedObserved,
    RankedTimed,
    Unsupported,
    WrongResult,
    ranks_of,
    resolve,
)
from lmperf.measuring import reference
from lmperf.measuring.cores import FastCores, usable_cores
from lmperf.measuring.emulated import require_instructions
from lmperf.measuring.faults import Poisoned, failure_row, guarded
from lmperf.measuring.prepared import Prepared, clear
from lmperf.measuring.rank_group import RankGroups
from lmperf.measuring.rank_server import RankServer
from lmperf.measuring.ranked import RankedPrepared
from lmperf.measuring.readings import Reading


class Serving:
    """Answers the supervisor's requests, and holds the prepared cases of the current group."""

    def __init__(self, connection: Connection, device: str, server: RankServer):
        self._connection, self._device = connection, device
        self._prepared: Prepared | None = None
        # On a CPU all cores are the device.
        self._ranks = RankGroups(server, device, usable_cores())
        self._cores = FastCores() if device == "cuda" else None
        gc.freeze()  # later garbage collections skip the imported modules

    def answer(self, name: str, arguments: list) -> None:
        """Run the request `name`, and send its result, or the status and reason of its failure."""
        if self._cores:
            self._cores.choose(self._ranks.pids)
        try:
            self._send("done", getattr(self, f"_{name}")(*arguments))
        except WrongResult as wrong:
            self._send("wrong", failure_row(wrong))
        except Poisoned as fault:
            self._send("failed", fault.case, fault.phase, fault.row)

    def _send(self, *message: Any) -> None:
        self._connection.send(message)

    def _prepare(
        self,
        entry: str,
        stem: str,
        external: dict[str, Implementation],
        cases: Sequence[Case],
        skipped: Collection[tuple[Case, str]],
        seed: int,
    ) -> None:
        benchmark = resolve(entry)(stem, external)
        arguments = benchmark, cases, skipped, self._device, seed, self._send
        if isinstance(benchmark, RankedTimed):
            self._prepared = RankedPrepared(self._ranks, *arguments)
        else:
            self._prepared = Prepared(*arguments)
        self._prepared.prepare()

    def _warm_up(self, *arguments: Any) -> tuple[float, float]:
        return self._prepared.warm_up(*arguments)

    def _slice(self, *arguments: Any) -> dict[str, Any]:
        return self._prepared.slice(*arguments)

    def _host_and_loop(self, *arguments: Any) -> dict[str, float]:
        return self._prepared.host_and_loop(*arguments)

    def _sustain(self, *arguments: Any) -> list[float]:
        return self._prepared.sustain(*arguments)

    def _check_last(self, *arguments: Any) -> bool:
        return self._prepared.check_last(*arguments)

    def _clear(self) -> None:
        self._prepared = None
        self._ranks.clear()
        clear(self._device)

    def _host_reference(self) -> Reading:
        return reference.measure_host(self._device)

    def _reference(self) -> Reading:
        if self._device == "cuda" and (group := self._ranks.largest):
            return reduce(partial(Reading.merged, choose=max), group.ask("reference"))
        try:
            return reference.measure(self._device)
        finally:
            if self._device == "cuda":  # the next groups need its memory
                reference.release()

    def _observe(
        self,
        entry: str,
        stem: str,
        external: dict[str, Implementation],
        cases: Sequence[Case],
        skipped: Collection[tuple[Case, str]],
        seed: int,
    ) -> None:
        benchmark = resolve(entry)(stem, external)
        for case in cases:
            for phase in benchmark.phases_of(case):
                if (case, phase) not in skipped:
                    for row in self._observations(benchmark, case, phase, seed):
                        self._send("row", case, phase, row)
        self._clear()

    def _observations(
        self, benchmark: Observed, case: Case, phase: str, seed: int
    ) -> list[dict[str, Any]]:
        self._send("step", case, phase, "observing")

        def observe() -> list[dict[str, Any]]:
            require_instructions(benchmark, case, self._device)
            if not isinstance(benchmark, RankedObserved):
                return benchmark.observe(case, phase, self._device, seed)
            made_of = benchmark.entry, benchmark.stem, benchmark.external
            group = self._ranks.of(ranks_of(benchmark, case))
            return group.ask("observe", *made_of, case, phase, seed)[0]

        try:
            rows = guarded(case, phase, observe)
        except (Unsupported, WrongResult) as reason:
            return [failure_row(reason)]
        return [{"status": "ok", **row} for row in rows]
