"""Findings that say why a technique makes a train step faster or slower, from profiles."""

from __future__ import annotations

import pandas as pd

from lmperf.reporting.ceilings import SUSTAINED, matmul_ceiling
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.findings import Finding, NotMeasured, measured
from lmperf.reporting.host_bound import host_bound, queued
from lmperf.reporting.sections.end_to_end import ways
from lmperf.reporting.sections.end_to_end.ways import BF16, BLOCKS, CELL, EAGER, FLOAT32, STEP, Way
from lmperf.reporting.sections.profiles.kernel_classes import COPY, ELEMENTWISE, REDUCTION
from lmperf.reporting.sections.profiles.rows import KERNEL, by_class, kernels, kind_of, usual_size
from lmperf.statistics import SLOWER


def _profiles(evidence: MachineEvidence, **where) -> pd.DataFrame:
    """Profiled train steps with the time of each kernel class (``by_class``) and ``instances``."""
    if kind_of(evidence) != KERNEL:
        raise NotMeasured
    case = [*CELL, "dtype", "implementation"]
    steps = measured(having(by_class(evidence), phase=STEP, **where))
    instances = having(kernels(evidence), phase=STEP).groupby(case)["instances"].sum()
    return steps.merge(instances.reset_index(), on=case)


def _largest(steps: pd.DataFrame) -> pd.DataFrame:
    """The steps of the longest context, and of the largest batch there."""
    longest = having(steps, context_length=steps["context_length"].max())
    return having(longest, batch=longest["batch"].max())


def _slower(evidence: MachineEvidence) -> dict:
    """The host-bound step that bf16 autocast slows down most, and the launches of its size."""
    rows = ways.steps_over(evidence, Way(EAGER, BF16))
    rows = measured(rows[(rows["verdict"] == SLOWER) & host_bound(rows)])
    row = rows.loc[rows["ratio"].idxmin()]
    steps = _profiles(evidence, size=row["size"], implementation=EAGER, dtype=[FLOAT32, BF16])
    launches = _largest(steps).set_index("dtype")["instances"]
    if not {FLOAT32, BF16} <= set(launches.index):
        raise NotMeasured
    return {
        **row[["size", "context_length", "ratio"]],
        "busy": queued(rows)[row.name],
        "before": int(launches[FLOAT32]),
        "after": int(launches[BF16]),
        "profiled": steps["context_length"].max(),
        "stale": bool(steps["stale"].any()),
    }


def _compiled(evidence: MachineEvidence) -> dict:
    """Launches of a bf16 autocast step, eager and compiled by block, and what fusing saves.

    ``rest``: elementwise kernels, reductions and copies take less time than in the eager step.
    """
    steps = _profiles(evidence, dtype=BF16, implementation=[EAGER, BLOCKS])
    compiled = having(steps, implementation=BLOCKS)
    steps = having(steps, size=usual_size(measured(compiled)))
    steps = _largest(steps).set_index("implementation")
    if not {EAGER, BLOCKS} <= set(steps.index):
        raise NotMeasured
    rest = steps[[ELEMENTWISE, REDUCTION, COPY]].sum(axis=1)
    return {
        **steps.iloc[0][["size", "context_length"]],
        "stale": bool(steps["stale"].any()),
        "before": int(steps.loc[EAGER, "instances"]),
        "after": int(steps.loc[BLOCKS, "instances"]),
        "falls": rest[BLOCKS] < rest[EAGER],
    }


def _matmul_alone(evidence: MachineEvidence) -> dict:
    """How much faster a matmul is in bf16 than in float32, beside eager steps in bf16 autocast."""
    rates = [matmul_ceiling(evidence, dtype, SUSTAINED) for dtype in (FLOAT32, BF16)]
    if None in rates:
        raise NotMeasured
    steps = measured(ways.steps_over(evidence, Way(EAGER, BF16)))
    before, after = rates
    return {"gain": after / before, "before": before, "after": after, "most": steps["ratio"].max()}


_SLOWER = (
    "At {{ size }}, context {{ context_length }}, bf16 autocast runs at {{ ratio | ratio }} of"
    " float32's speed: the host is busy for {{ busy | percent(0) }} of the step."
)
_MATMUL = (
    "Back to back, a large matmul runs at {{ after | sig }} TFLOP/s in bf16, {{ gain | ratio }}"
    " float32's rate"
)
_LAUNCHES = (
    "Compiling by block turns {{ before | thousands }} launches of a bf16 step into"
    " {{ after | thousands }} ({{ size }}, context {{ context_length }}{{ ', stale' if stale }})"
)
FINDINGS = (
    Finding(
        name="matmul_alone",
        question="Do steps gain as much from bf16 as matmuls?",
        values=_matmul_alone,
        answer=lambda v: "less" if v["most"] < v["gain"] else "as_much",
        answers={
            "less": _MATMUL
            + ". An eager step gains at most {{ most | ratio }}: it is more than matmuls.",
            "as_much": _MATMUL + ". A step gains up to {{ most | ratio }}.",
        },
    ),
    Finding(
        name="slower_in_bf16",
        question="Why is bf16 autocast slower than float32 at short contexts?",
        values=_slower,
        answer=lambda v: "casts" if v["after"] > v["before"] else "host",
        answers={
            "casts": _SLOWER + " Autocast adds casts: {{ before | thousands }} launches become"
            " {{ after | thousands }} (profile at context {{ profiled }}{{ ', stale' if stale }}).",
            "host": _SLOWER,
        },
    ),
    Finding(
        name="compiling_saves",
        question="What does compiling save?",
        values=_compiled,
        answer=lambda v: "fused" if v["falls"] and v["after"] < v["before"] else "is",
        answers={
            "fused": _LAUNCHES
            + ". Fused kernels read and write fewer tensors between two matmuls.",
            "is": _LAUNCHES + ".",
        },
    ),
)
