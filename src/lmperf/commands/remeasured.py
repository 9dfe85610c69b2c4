"""What measuring marked rows again adds to a job: waiting for rest, and counting cleared rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from lmperf.commands.options import say
from lmperf.evidence.plan import Plan
from lmperf.evidence.project import Project
from lmperf.evidence.repeatability import Repeats


@contextmanager
def at_rest(project: Project, job: Plan | Repeats) -> Iterator[None]:
    """Wait until the machine is at rest if marked rows are measured again; then say how many hold.

    Raises:
        UserError: the machine is still at work after the longest wait.
    """
    from lmperf.measuring.lock import MACHINE
    from lmperf.measuring.rest import wait_for_rest, watch_here

    before = job.unsettled if job.remeasure else set()
    if before:
        # On a GPU of its own, a job must not wait for the job on the GPU that measured last.
        uuids = MACHINE.gpus or project.device_uuids
        wait_for_rest(watch_here(project.machine.kind, uuids), say)
    yield
    if before:
        cleared = before - replace(job).unsettled  # the copy reads the files again
        print(f"{job.stem}: {len(cleared)} of {len(before)} marked rows cleared")
