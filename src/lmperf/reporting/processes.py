"""Several pages at once: one process for each task, as many at a time as there are processors."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context


def results(tasks: Sequence[Callable]) -> Iterator:
    """What tasks without arguments return, in order; a single one runs in this process.

    The tasks and what they return must be picklable.
    """
    if len(tasks) < 2:
        yield from (task() for task in tasks)
        return
    # A fork of this process would hang where threads that draw figures run in it.
    processes = get_context("forkserver")
    processes.set_forkserver_preload(["lmperf.reporting.site"])
    with ProcessPoolExecutor(min(len(tasks), os.cpu_count() or 1), processes) as pool:
        for waiting in [pool.submit(task) for task in tasks]:
            yield waiting.result()
