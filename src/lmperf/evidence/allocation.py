"""What a job asks a cluster for: GPUs, a time limit, memory."""

from __future__ import annotations

import math
from typing import Any

from lmperf.evidence.plan import Plan
from lmperf.evidence.project import Project
from lmperf.measuring.forecast import expected_s

# The limit is so many times the expected time, and so many minutes more to start. A job that hits
# it has stored its groups; the next one goes on from there.
_TIMES, _START_MIN = 2.0, 10
# The limit of a job whose benchmark was never recorded on this kind of device, or that has several.
_UNRECORDED_MIN = 240
# MiB of host memory for each process that measures, by kind of device: kernels, and models, whose
# compilers run beside them. Estimates, with room to spare: torch alone takes 3 GiB with CUDA.
_MEMORY_MIB = {"cuda": (16_000, 32_000), "cpu": (4_000, 8_000), "mps": (4_000, 8_000)}


def allocation(project: Project, *plans: Plan) -> dict[str, Any]:
    """Return Snakemake's resources of a job that measures a benchmark, or rows of several.

    `gpu` is the number of devices to hold; only where a cluster's partition is configured are there
    `slurm_partition`, `runtime` (minutes) and `mem_mb` as well, and `gpu` counts no CPU.
    """
    gpus = max(plan.gpus for plan in plans)
    if project.config.partition is None:
        return {"gpu": gpus}
    kind = project.machine.kind
    models = any(axis.name == "size" for plan in plans for axis in plan.benchmark.axes)
    return {
        "gpu": gpus if kind == "cuda" else 0,
        "runtime": _minutes(project, *plans) if len(plans) == 1 else _UNRECORDED_MIN,
        "mem_mb": max(gpus, 1) * _MEMORY_MIB[kind][models],
        "slurm_partition": project.config.partition,
    }


def _minutes(project: Project, plan: Plan) -> int:
    name = plan.benchmark.group_name
    groups = [
        (plan.stem, name(group[0].cell), len(group)) for group in plan.benchmark.groups(plan.chosen)
    ]
    recorded = expected_s(project.machine.kind, groups)
    if recorded is None:
        return _UNRECORDED_MIN
    return math.ceil(_START_MIN + _TIMES * _pace(project) * sum(recorded) / 60)


def _pace(project: Project) -> float:
    """How many times as long as recorded the jobs on this machine took, by their costs."""
    jobs = [job for job in project.known_costs() if job["expected_s"]]
    took, expected = (sum(float(job[name]) for job in jobs) for name in ("wall_s", "expected_s"))
    return max(1.0, took / expected) if expected else 1.0
