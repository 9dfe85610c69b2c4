"""What a worker does on each request, with the group of cases that it holds."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

from lmperf.benchmark import Case, Observed, Unsupported, WrongResult, load
from lmperf.measuring import reference
from lmperf.measuring.faults import Poisoned, failure_row, guarded
from lmperf.measuring.prepared import Failures, Prepared, clear


class Serving:
    """What a worker does on each request; the group that it holds."""

    def __init__(self, connection: Connection, device: str):
        self._connection, self._device = connection, device
        self._prepared: Prepared | None = None
        gc.freeze()  # the modules are there to stay: a collection need not go through them

    def answer(self, name: str, arguments: list) -> None:
        """Do what is asked, and say how it ended."""
        try:
            self._say("done", getattr(self, f"_{name}")(*arguments))
        except WrongResult as wrong:
            self._say("wrong", failure_row(wrong))
        except Poisoned as fault:
            self._say("failed", fault.case, fault.phase, fault.row)

    def _say(self, *message: Any) -> None:
        self._connection.send(message)

    def _prepare(
        self,
        stem: str,
        implementations: dict,
        cases: Sequence[Case],
        failures: Failures,
        seed: int,
    ) -> None:
        benchmark = load(stem, implementations)
        self._prepared = Prepared(benchmark, cases, failures, self._device, seed, self._say)
        self._prepared.prepare()

    def _warm_up(self, *arguments: Any) -> tuple[float, float]:
        return self._prepared.warm_up(*arguments)

    def _slice(self, *arguments: Any) -> dict[str, Any]:
        return self._prepared.slice(*arguments)

    def _host_and_loop(self, *arguments: Any) -> dict[str, float]:
        return self._prepared.host_and_loop(*arguments)

    def _clear(self) -> None:
        self._prepared = None
        clear(self._device)

    def _reference(self) -> tuple[float, float]:
        try:
            return reference.measure(self._device)
        finally:
            if self._device == "cuda":  # its memory is what groups are short of
                reference.release()

    def _observe(
        self,
        stem: str,
        implementations: dict,
        cases: Sequence[Case],
        failures: Failures,
        seed: int,
    ) -> None:
        benchmark = load(stem, implementations)
        for case in cases:
            for phase in benchmark.phases:
                if (case, phase) not in failures:
                    for row in self._observations(benchmark, case, phase, seed):
                        self._say("row", case, phase, row)
        clear(self._device)

    def _observations(
        self, benchmark: Observed, case: Case, phase: str, seed: int
    ) -> list[dict[str, Any]]:
        self._say("step", case, phase, "observing")
        try:
            rows = guarded(case, phase, lambda: benchmark.observe(case, phase, self._device, seed))
        except (Unsupported, WrongResult) as reason:
            return [failure_row(reason)]
        return [{"status": "ok", **row} for row in rows]
