"""`lmperf doctor --links`: measure copies and all-reduces between the GPUs, and judge them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lmperf.benchmark import Case
from lmperf.benchmarks import load
from lmperf.distributed.cost import bus_factor
from lmperf.errors import UserError
from lmperf.evidence.machine import nccl_settings
from lmperf.evidence.project import Project
from lmperf.measuring.gpus import all_gpus, visible_gpus
from lmperf.measuring.lock import machine_lock
from lmperf.measuring.progress import Reporter
from lmperf.measuring.run import measure
from lmperf.measuring.stopwatch import Stopwatch
from lmperf.reporting.links import SLOW, WRONG, Facts, Rate, judge

STEM = "collectives"
# Bytes of a message, the longest first: those decide, if time is short.
MESSAGES = (2 * 10**9, 10**9, 10**8, 10**7, 10**6)
# Numbers of GPUs among which a message can be split.
RANKS = (2, 4, 8)
# Seconds after which no further group is measured, and that one step may take.
_DEADLINE_S, _STEP_S = 80.0, 30.0


class _TimeUp(Exception):
    """Raised after a group if the time for measuring is over."""


def check_links(project: Project, say) -> int:
    """Print a line for each rate between the GPUs; return 1 if one is slow or missing, else 0.

    say: prints what a user should know of the progress.

    Raises:
        UserError: there are fewer than two GPUs, or torch is not installed.
    """
    gpus = visible_gpus(all_gpus()) if project.machine.kind == "cuda" else []
    if len(gpus) < 2:
        raise UserError(
            f"doctor --links measures between GPUs; this machine has {len(gpus)} that torch can use"
        )
    with machine_lock(say):
        facts, rates = facts_of(gpus), _measured(len(gpus))
    verdicts = judge(rates, facts)
    for one in verdicts:
        print(f"{one.state:<8} {one.words}")
    return 1 if any(one.state in (SLOW, WRONG) for one in verdicts) else 0


def cases_of(gpus: int) -> list[Case]:
    """The copies between two GPUs, and all-reduces over two GPUs and over as many as there are."""
    most = max(ranks for ranks in RANKS if ranks <= gpus)
    return [
        Case((*_cell(operation), ("message_bytes", message), ("ranks", ranks)), "library")
        for ranks in sorted({2, most})
        for message in MESSAGES
        for operation in (("copy", "all_reduce") if ranks == 2 else ("all_reduce",))
    ]


def _message(case: Case) -> tuple[Any, ...]:
    return case.axes["ranks"], case.axes["message_bytes"]


def _cell(operation: str) -> tuple[tuple[str, str], ...]:
    return ("operation", operation), ("dtype", "float32")


def _measured(gpus: int) -> list[Rate]:
    benchmark, cases, rows = load(STEM), cases_of(gpus), []
    benchmark.limit_s = _STEP_S
    # A group for each message: what is measured is saved, and the time looked at, after a group.
    groups = [list(group) for _, group in itertools.groupby(cases, key=_message)]
    began = time.monotonic()

    def save(found: list[dict[str, Any]], _: Mapping[str, Any]) -> None:
        rows.extend(found)
        if time.monotonic() - began > _DEADLINE_S:
            raise _TimeUp

    with Reporter(STEM, len(groups), log=None) as reporter:
        try:
            measure(benchmark, groups, "cuda", save, reporter, Stopwatch(0.0), {}, {}, quick=True)
        except _TimeUp:
            reporter.note(f"stopped after {_DEADLINE_S:g} s")
    return rates_of(cases, rows)


def rates_of(cases: Sequence[Case], rows: Iterable[Mapping[str, Any]]) -> list[Rate]:
    """The rate of each case, from its row; a case without a row was not measured in time."""
    known = {tuple(row[name] for name, _ in cases[0].cell): row for row in rows}
    return [_rate(case, known.get(tuple(value for _, value in case.cell))) for case in cases]


def _rate(case: Case, row: Mapping[str, Any] | None) -> Rate:
    axes = case.axes
    operation, ranks, message = axes["operation"], axes["ranks"], axes["message_bytes"]
    if row is None:
        return Rate(operation, ranks, message, None, "not measured in time")
    if row["status"] != "ok":
        reason = f"{row['status']}: {row.get('reason') or 'no reason recorded'}"
        return Rate(operation, ranks, message, None, reason)
    gbps = bus_factor(operation, ranks) * message / row["median_ms"] / 1e6
    return Rate(operation, ranks, message, gbps)


def facts_of(gpus: Sequence[str]) -> Facts:
    """What NVML and the environment tell of the GPUs with these UUIDs, and of their links."""
    import pynvml as nvml

    nvml.nvmlInit()
    handles = [nvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in gpus]
    names = dict.fromkeys(nvml.nvmlDeviceGetName(handle) for handle in handles)
    return Facts(
        device=", ".join(names),
        links=tuple(nvlinks(nvml, handle) for handle in handles),
        others=sum(_processes(nvml, handle) for handle in handles),
        settings=nccl_settings(),
    )


def nvlinks(nvml: Any, handle: Any) -> tuple[int, int] | None:
    """Numbers of the active NVLinks of a GPU and of all; None if NVML cannot tell."""
    states = []
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            states.append(nvml.nvmlDeviceGetNvLinkState(handle, link))
        except nvml.NVMLError_InvalidArgument:
            break  # the GPU has fewer links
        except nvml.NVMLError_NotSupported:
            return (sum(states), len(states)) if states else (0, 0)
        except nvml.NVMLError:
            return None
    return sum(states), len(states)


def _processes(nvml: Any, handle: Any) -> int:
    try:
        return len(nvml.nvmlDeviceGetComputeRunningProcesses(handle))
    except nvml.NVMLError:
        return 0
