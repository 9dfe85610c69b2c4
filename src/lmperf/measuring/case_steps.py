"""Runs the steps of cases: each is told before it begins, and an exception becomes a row.

So a crash or a hang is that of the case that ran. The process goes on after an exception, unless
its device no longer works.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from lmperf.benchmark import Benchmark, Case, Unsupported
from lmperf.errors import Interrupted, trace_of
from lmperf.measuring.clock import synchronizer
from lmperf.measuring.failures import Failed, Harmful, failure_row
from lmperf.measuring.isolation import DEVICE, Worlds
from lmperf.measuring.ranks import Alone
from lmperf.measuring.sensors import MOST_LOAD, Load

_LASTING = "lasting"  # status of a step that changed what cannot be put back
_OTHER_DEVICE = (
    "it makes another CUDA device the current one (torch.cuda.set_device); it must work on the"
    " device of its inputs"
)
_WAITS = (
    "other processes use more than a tenth of the processors: what they disturb is timed twice,"
    " so this run takes longer"
)


class CaseSteps:
    """The steps of a group's cases, in a single process or on one of several ranks.

    Args:
        team: the ranks that measure together, or `ranks.Alone`.
        tell: sends the supervisor a message.
        worlds: those of the implementations that this process has measured.

    Attributes:
        contexts: case -> the context of its steps, such as one that allows TF32.
    """

    def __init__(
        self,
        benchmark: Benchmark,
        cases: Sequence[Case],
        device: str,
        team: Alone,
        tell: Callable[..., None],
        worlds: Worlds,
    ):
        self.benchmark, self.device, self.team, self.tell = benchmark, device, team, tell
        self.contexts: dict[Case, Callable[[], AbstractContextManager]] = {}
        self._cases, self._worlds = cases, worlds
        self._synchronize = synchronizer(device)
        self._own_pid = os.getpid()
        self._pid = self._own_pid if team.rank is None else os.getppid()

    def is_external(self, case: Case) -> bool:
        """Whether the implementation of a case is not the project's own."""
        return case.implementation in self.benchmark.external

    def rows(self, case: Case, phase: str, rows: Sequence[dict[str, Any]]) -> None:
        """Tell the rows of a phase of a case, marked if it is measured in a process of its own."""
        for row in rows if self._worlds.apart else ():
            row["marks"] = ";".join(filter(None, (row.get("marks"), "process")))
        self.tell(rows=[*rows], case=self._cases.index(case), phase=phase)

    def run(
        self, words: str, case: Case, phase: str | None, call: Callable[[], Any], lasts_s: float = 0
    ) -> Any:
        """Run a step of a case on every rank, and return its result.

        End the process if the step changed what cannot be put back.

        lasts_s: how long the step takes beyond what a step usually takes.

        Raises:
            Failed: it raised an exception, here or on another rank.
        """
        self.tell(step=words, case=self._cases.index(case), phase=phase, lasts_s=lasts_s)
        failure = result = None
        try:
            with self._within(case, often=words == "timing"):
                result = call()
        except BaseException as error:  # also sys.exit and KeyboardInterrupt of an implementation
            # In a process that the implementation has forked, or in one that is being ended.
            if os.getpid() != self._own_pid or isinstance(error, Interrupted):
                raise
            failure = failure_row(error)
            if failure["status"] == "crash" and not self._moves(case):
                self.tell(traceback=trace_of(error), words=f"{case.name}: {failure['reason']}")
            if isinstance(error, Harmful):
                self.tell(failed=failure)
                os._exit(1)
        if self._moves(case):  # events of another device would not time the call
            failure = failure_row(Unsupported(_OTHER_DEVICE))
        if self._worlds.lasting:
            failure = {"status": _LASTING, "reason": ", ".join(self._worlds.lasting)}
        if failure := self.team.agreed(failure):
            if failure["status"] == _LASTING:
                self._end_as_changed(failure["reason"])
            del result
            self.recover()
            raise Failed(dict(failure))
        return result

    def _moves(self, case: Case) -> bool:
        return self.is_external(case) and self._worlds.has_changed(case.implementation, DEVICE)

    def _end_as_changed(self, changed: str) -> None:
        if not self.team.is_first:
            signal.pause()  # the end of one rank would end the first one before it has told
        self.tell(changed=changed)
        os._exit(1)

    @contextmanager
    def _within(self, case: Case, often: bool) -> Iterator[None]:
        """The context of a step: what the implementation has set, if it is not the project's, and
        in it the context of the case."""
        external = self.benchmark.external.get(case.implementation)
        world = self._worlds.of(external.name, external.module, often) if external else None
        with world or nullcontext(), self.contexts.get(case, nullcontext)():
            yield

    @contextmanager
    def ours(self, case: Case) -> Iterator[None]:
        """The context of code of the project in a step of another implementation."""
        with self._worlds.of(None), self.contexts.get(case, nullcontext)():
            yield

    def recover(self) -> None:
        """Free what a step has left; end the process if its device no longer works."""
        gc.collect()
        try:
            self._synchronize()
            if self.device == "cuda":
                torch.cuda.empty_cache()
        except Exception as error:
            self.tell(failed=failure_row(error))
            os._exit(1)

    def quieter(self, take: Callable[[], Any]) -> tuple[float, Any]:
        """Return the load of others and the result of a take, on a CPU of the quieter one of two if
        others used the processors; a take that failed (None) is final."""
        takes = []
        for _ in range(2 if self.device == "cpu" else 1):
            others, result = Load(self._pid), take()
            (load,) = self.team.longest([others.share()])
            takes.append((load, result))
            if result is None or load <= MOST_LOAD:
                return takes[-1]
            if self.device == "cpu":
                self.tell(note=_WAITS)
        return min(takes, key=lambda pair: pair[0])
