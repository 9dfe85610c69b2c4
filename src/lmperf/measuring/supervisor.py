"""The supervisor: gives groups to a worker process, and turns a lost worker into a row.

Workers are forked from one server that has imported torch and not touched the device, so a new one
costs milliseconds. Each leads a process group of its own, which a time-out kills whole.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from typing import Any

from lmperf.benchmark import Benchmark, Case
from lmperf.measuring import worker

_PRELOADED = ["torch", "torch._dynamo", "lmperf.measuring.worker", "lmperf.measuring.rounds"]
_START_LIMIT_S = 180.0
_MAX_ATTEMPTS = 40

Watcher = Callable[[str, Case | None, str | None], None]


class WorkerLost(Exception):
    """No worker could be started; the message says how it ended."""


class Supervisor:
    """Owns the worker of one device.

    Args:
        device: cuda, mps or cpu.
        watch: told what a worker does: (words, case or None, phase or None).
    """

    def __init__(self, device: str, watch: Watcher = lambda *_: None):
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(_PRELOADED)
        self._device = device
        self._watch = watch
        self._process: multiprocessing.process.BaseProcess | None = None
        self.facts: dict[str, Any] = {}

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def measure(self, benchmark: Benchmark, group: Sequence[Case], seed: int) -> list[dict]:
        """The rows of a group, one or more for every case and phase, whatever befalls a worker."""
        failures: worker.Failures = {}
        for _ in range(_MAX_ATTEMPTS):
            rows, fault = self._attempt(benchmark, group, failures, seed)
            if fault is None:
                return rows
            failures.update(self._declared(benchmark, group, failures, fault))
            self.stop()
        raise WorkerLost(f"{group[0].name}: {_MAX_ATTEMPTS} workers were lost on this group")

    def _declared(self, benchmark, group, failures, fault) -> worker.Failures:
        """The rows that a fault takes: one phase of a case, or all of them."""
        case, phase, row = fault
        phases = benchmark.phases if phase is None else [phase]
        return {(case, name): row for name in phases if (case, name) not in failures}

    def _attempt(self, benchmark, group, failures, seed):
        if self._process is None:
            self._start()
        self._send((benchmark.stem, benchmark.own_implementations, group, failures, seed))
        rows: list[dict] = []
        current: tuple[Case, str | None] = (group[0], None)
        while True:
            message = self._receive(benchmark.limit_s)
            match message:
                case ("step", case, phase, words):
                    current = (case, phase)
                    self._watch(words, case, phase)
                case ("rows", new):
                    rows += new
                case ("failed", case, phase, row):
                    return rows, (case, phase, row)
                case ("done",):
                    return rows, None
                case ("lost", row):
                    return rows, (*current, row)

    def _send(self, request: tuple) -> None:
        with contextlib.suppress(BrokenPipeError):  # a dead worker is found when it is read from
            self._connection.send(request)

    def _start(self) -> None:
        self._connection, theirs = self._context.Pipe()
        self._process = self._context.Process(
            target=worker.main, args=(theirs, self._device), daemon=False
        )
        self._process.start()
        theirs.close()
        message = self._receive(_START_LIMIT_S)
        if message[0] == "waiting":
            self._watch(f"waiting for another measurement on {self._device}", None, None)
            message = self._receive(None)
        if message[0] != "ready":
            raise WorkerLost(
                f"no worker could be started on {self._device}: {message[1]['reason']}"
            )
        self.facts = message[1]

    def _receive(self, limit_s: float | None) -> tuple:
        """The worker's next message; `("lost", row)` when it died or took longer than `limit_s`."""
        if not self._connection.poll(limit_s):
            self.stop()
            return ("lost", {"status": "timeout", "reason": f"no answer within {limit_s:g} s"})
        try:
            return self._connection.recv()
        except (EOFError, ConnectionResetError):
            self._process.join()
            return ("lost", {"status": "crash", "reason": _ending(self._process.exitcode)})

    def stop(self) -> None:
        """End the worker and every process that it started."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        self._process.join()
        self._connection.close()
        self._process = None


def _ending(exitcode: int | None) -> str:
    if exitcode is not None and exitcode < 0:
        return f"the process was ended by {signal.Signals(-exitcode).name}"
    return f"the process ended with exit code {exitcode}"
