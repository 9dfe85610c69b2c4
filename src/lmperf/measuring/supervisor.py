"""Measures groups in a worker process; a crash, a hang or a kill of the worker becomes a row.

One worker measures all groups, one after another. It sends a message before each step of a case. If
the next one does not come in time, or the worker ends, the case that ran has failed; a new worker
goes on with what has no row. A case whose process ended is tried once more, since somebody may have
killed it. An implementation that changes what cannot be put back is measured after all others, in a
worker of its own. Whatever ends this process ends the worker, and loses the group that it measured.
"""

from __future__ import annotations

import os
import pickle
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import Any

from lmperf.benchmark import Benchmark, Case
from lmperf.errors import UserError, kept
from lmperf.measuring.job import Job, seed_of
from lmperf.measuring.process import Lost, Process
from lmperf.measuring.processes import locks_of_builds
from lmperf.measuring.progress import Progress
from lmperf.measuring.rounds import is_back_to_back
from lmperf.measuring.sensors import Gpus

Row = dict[str, Any]
Rows = dict[tuple[Case, str], list[Row]]
Save = Callable[[list[Case], list[Row]], None]
# Seconds until a worker has imported torch, and from then until its first step; between two looks
# at the GPUs, and at a silent worker.
_START_LIMIT_S, _LOOK_S, _WAIT_S = 180.0, 0.05, 5.0
# Processes that a step may end: somebody else may have ended the first one. And time-outs after
# which an implementation is not run again.
_MOST_ENDED, _MOST_TIMEOUTS = 2, 2
_SKIPPED = {"status": "timeout", "reason": "skipped: it timed out twice in this run"}
# Seconds by which the clock of a worker may be behind: all processes share one.
_CLOCK_S = 0.5
_MOST_LINES = 100  # of the worker's output that are passed on
_HIDDEN = "SyncActivityProfilerHandler"  # in lines of PyTorch's profiler about its own start


class Supervisor:
    """Measures groups of a benchmark on a device.

    Args:
        locks: descriptors of the device's lock, which is held until all processes have ended.
        gpus: UUIDs of the GPUs that measure.

    Attributes:
        facts: properties of the software, as the worker reported them.
    """

    def __init__(
        self,
        benchmark: Benchmark,
        device: str,
        progress: Progress,
        locks: Sequence[int] = (),
        gpus: Sequence[str] = (),
    ):
        self._benchmark, self._device, self._progress = benchmark, device, progress
        self._locks, self._gpus = locks, gpus
        self._died: Counter[tuple[Case | None, str | None]] = Counter()
        self._timeouts: Counter[str] = Counter()
        self._alone: set[Case] = set()
        self._apart: set[str] = set()
        self._said: set[str] = set()
        self._checks = False
        self.facts: dict[str, Any] = {}

    def measure(self, groups: Sequence[list[Case]], save: Save, checks_first: bool = False) -> None:
        """Measure the groups; `save` takes each, and its rows, as soon as it is done.

        checks_first: whether the first group is only checked. It has rows for what fails, and then
            no other group is measured.

        Raises:
            UserError: no worker can be started.
        """
        left, rows, self._checks = deque(groups), {}, checks_first
        with empty_cache() as cache:
            while left:
                apart = self._set_apart(left[0])
                together = [
                    *takewhile(lambda group, apart=apart: self._set_apart(group) == apart, left)
                ]
                try:
                    with self._worker(together, rows, cache, apart is not None) as worker:
                        self._follow(worker, left, len(left) - len(together), rows, save)
                except _Lost as lost:
                    self._record(lost, left[0], rows)
                except _Changed as changed:
                    self._progress.note(str(changed))
                    self._apart.add(changed.name)
                    checked = [left.popleft()] if self._checks else []
                    left = deque([*checked, *_last(left, changed.name)])

    def _set_apart(self, group: list[Case]) -> str | None:
        """The implementation of a group that is measured in a process of its own; None: others."""
        return name if (name := group[0].implementation) in self._apart else None

    def _worker(self, groups: Sequence[list[Case]], rows: Rows, cache: str, apart: bool) -> Process:
        skipped = {key for group in groups for key in self._too_slow(group)}
        done, alone = frozenset(rows.keys() | skipped), frozenset(self._alone)
        job = Job(
            *(self._benchmark, self._device, [*groups], done, alone),
            apart=apart,
            checks_first=self._checks,
        )
        return Process(
            pickle.dumps(job),
            self._locks,
            job.environ(cache, self._gpus),
            on_line=self._on_line,
        )

    def _on_line(self, line: str) -> None:
        """Pass on a line that a worker has printed, once: libraries repeat their warnings."""
        if _HIDDEN in line:
            return
        if line not in self._said and len(self._said) < _MOST_LINES:
            self._said.add(line)
            self._progress.note(f"the worker writes: {line}")

    def _follow(self, worker: Process, left: deque, others: int, rows: Rows, save: Save) -> None:
        """Receive the messages of a worker until its groups are done, and `others` are left.

        Raises:
            _Lost: the worker ended, or took too long for a step.
            _Changed: an implementation changed what cannot be put back.
        """
        gpus, at = Gpus(self._gpus), _At(limit_s=_START_LIMIT_S)
        while len(left) > others:
            # On a CPU, this process must not run beside the timed code.
            wait_s = _LOOK_S if gpus and at.samples else min(_WAIT_S, at.left_s)
            try:
                message = worker.receive(wait_s)
            except Lost as lost:
                raise _Lost(at, {"status": "crash", "reason": str(lost)}, died=True) from None
            if at.samples:
                gpus.sample((at.case, at.phase))
            match message:
                case None:
                    if not at.left_s:
                        reason = f"no answer within {at.limit_s:g} s"
                        raise _Lost(at, {"status": "timeout", "reason": reason})
                case {"late_s": late_s} if abs(late_s) > _CLOCK_S:
                    words = f"its clock is wrong: it is {late_s:.2g} s behind"
                    raise _Lost(at, {"status": "failed_check", "reason": words}, died=True)
                case {"failed": row}:
                    raise _Lost(at, row, died=message.get("died", False))
                case {"changed": words}:
                    raise _Changed(at.case.implementation, words)
                case {"ready": facts}:
                    self.facts, at = facts, _At(limit_s=_START_LIMIT_S)
                case {"traceback": trace, "words": words}:
                    self._progress.note(f"{words}{kept(trace)}")
                case {"note": words} if words not in self._said:
                    self._said.add(words)
                    self._progress.note(words)
                case {"step": words, "case": number, "phase": phase, "lasts_s": lasts_s}:
                    limit_s = self._benchmark.limit_s + lasts_s
                    at = _At(left[0][number], phase, limit_s, samples=words == "timing")
                    self._progress.step(f"{words}: {at.case.name}")
                case {"rows": told, "case": number, "phase": phase}:
                    its_case = left[0][number]
                    rows[its_case, phase] = [
                        self._whole(its_case, phase, row, gpus) for row in told
                    ]
                case {"done": _}:
                    failed, self._checks = self._checks and bool(rows), False
                    self._save(left.popleft(), rows, save)
                    if failed:
                        left.clear()
                    at = _At(limit_s=self._benchmark.limit_s)

    def _whole(self, case: Case, phase: str, row: Row, gpus: Gpus) -> Row:
        """Return a row with what names it, and what the sensors say of it."""
        seen = gpus.columns((case, phase))
        if is_back_to_back(self._benchmark, phase) or self._benchmark.runs_back_to_back(case):
            seen.pop("marks", None)  # the clock and the power of the cap are what is measured
        marks = ";".join(filter(None, (seen.pop("marks", ""), row.get("marks"))))
        return {**_named(case, phase), **row, **seen, **({"marks": marks} if marks else {})}

    def _save(self, group: list[Case], rows: Rows, save: Save) -> None:
        for key in self._too_slow(group):
            rows.setdefault(key, [{**_named(*key), **_SKIPPED}])
        keys = [(case, phase) for case in group for phase in self._benchmark.phases_of(case)]
        save(group, [row for key in keys for row in rows.get(key, [])])
        rows.clear()

    def _too_slow(self, group: list[Case]) -> list[tuple[Case, str]]:
        """The cases and phases of implementations that timed out too often in this run."""
        slow = [case for case in group if self._timeouts[case.implementation] >= _MOST_TIMEOUTS]
        return [(case, phase) for case in slow for phase in self._benchmark.phases_of(case)]

    def _record(self, lost: _Lost, group: list[Case], rows: Rows) -> None:
        """Add the rows of the case that a lost worker ran; none if it is tried once more."""
        case, phase, row = lost.at.case, lost.at.phase, lost.row
        self._died[case, phase] += 1
        if lost.died and self._died[case, phase] < _MOST_ENDED:
            where = f" in {case.name}" if case else ""
            self._progress.note(f"{row['reason']}{where}; it is tried once more")
            return
        if case is None:
            raise UserError(f"no worker can be started: {row['reason']}")
        if row["status"] == "oom" and len(group) > 1 and case not in self._alone:
            self._alone.add(case)
            return
        if row["status"] == "timeout":
            self._timeouts[case.implementation] += 1
            row = {**row, "reason": f"{row['reason']}{locks_of_builds()}"}
        # What hangs or harms in one phase would do so in the others; what crashes need not.
        only_one = phase and row["status"] in ("crash", "oom")
        for lost_phase in [phase] if only_one else self._benchmark.phases_of(case):
            where = f" in its {phase}" if phase not in (None, lost_phase) else ""
            failed = {**_named(case, lost_phase), **row, "reason": f"{row['reason']}{where}"}
            rows.setdefault(
                (case, lost_phase), [{**failed, "seed": seed_of(self._benchmark, group)}]
            )


class _At:
    """The step that a worker runs: its case and phase, if any, and when it must have ended."""

    def __init__(
        self,
        case: Case | None = None,
        phase: str | None = None,
        limit_s: float = 0.0,
        samples: bool = False,
    ):
        self.case, self.phase, self.limit_s, self.samples = case, phase, limit_s, samples
        self._until = time.monotonic() + limit_s

    @property
    def left_s(self) -> float:
        return max(0.0, self._until - time.monotonic())


class _Lost(Exception):
    """Raised when a worker is lost in a step; `died`: somebody else may have ended it."""

    def __init__(self, at: _At, row: Row, died: bool = False):
        super().__init__(str(row))
        self.at, self.row, self.died = at, row, died


class _Changed(Exception):
    """Raised when an implementation changed what cannot be put back for others."""

    def __init__(self, name: str, words: str):
        super().__init__(f"{name} changes {words}; it is measured in a process of its own")
        self.name = name


def _last(groups: Iterable[list[Case]], name: str) -> list[list[Case]]:
    """Return groups with the cases of an implementation behind all others."""
    groups = [*groups]
    others = [[case for case in group if case.implementation != name] for group in groups]
    its = [[case for case in group if case.implementation == name] for group in groups]
    return [group for group in (*others, *its) if group]


@contextmanager
def empty_cache() -> Iterator[str]:
    """Yield a new folder for compiled code, so that the times of first calls can be compared.

    It lies in TORCHINDUCTOR_CACHE_DIR if that is set, since programs cannot be executed everywhere.

    Raises:
        UserError: it cannot be created.
    """
    within = os.environ.get("TORCHINDUCTOR_CACHE_DIR") or tempfile.gettempdir()
    try:
        os.makedirs(within, exist_ok=True)
        cache = tempfile.TemporaryDirectory(
            prefix="lmperf-inductor-", dir=within, ignore_cleanup_errors=True
        )
    except OSError as error:
        words = f"{within}: no folder can be created for the compile cache ({error.strerror})"
        raise UserError(
            f"{words}; set TORCHINDUCTOR_CACHE_DIR or TMPDIR to a folder with free space"
        ) from None
    with cache as folder:
        yield folder


def _named(case: Case, phase: str) -> Row:
    return {**case.columns, "phase": phase}
