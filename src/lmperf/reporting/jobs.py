"""The jobs that measured the rows of a report, and the devices on which they ran."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from lmperf.benchmarks import load
from lmperf.evidence.repeatability import STEM
from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.numbers import listed


def jobs_of(evidence: MachineEvidence) -> pd.DataFrame:
    """The measuring jobs that ran while a row of the evidence was measured."""
    if evidence.cost is None:
        return pd.DataFrame(columns=["stem", "wall_s"])
    return evidence.cost[rows_by_job(evidence) > 0]


def rows_by_job(evidence: MachineEvidence) -> pd.Series:
    """For each job, the number of rows of its benchmark that were measured while it ran."""
    jobs = evidence.cost
    begin, end = _at(jobs["started_at"]).dt.floor("s"), _at(jobs["finished_at"]).dt.ceil("s")
    counts = pd.Series(0, jobs.index)
    for stem, of_stem in jobs.groupby("stem"):
        if stem == STEM:
            frame = pd.concat([*evidence.repeats.values()]) if evidence.repeats else None
        else:
            frame = evidence.frame(str(stem))
        if frame is not None:
            at = _at(frame["measured_at"])
            for job in of_stem.index:
                counts[job] = int(((at >= begin[job]) & (at <= end[job])).sum())
    return counts


def _at(times: pd.Series) -> pd.Series:
    """The text as timestamps in UTC; NaT where it is no timestamp."""
    return pd.to_datetime(times, format="ISO8601", errors="coerce", utc=True)


def on_several_devices(evidence: MachineEvidence, benchmarks: Sequence[str]) -> str:
    """The titles of the benchmarks whose rows were measured on several devices, in words.

    A ranked benchmark counts its sets of GPUs. Empty if there is none, or if jobs did not record
    their devices.
    """
    jobs = jobs_of(evidence)
    if "gpus" not in jobs:
        return ""
    known = jobs[jobs["gpus"].notna() & (jobs["gpus"] != "")]
    counts = known.groupby("stem")["gpus"].nunique()
    several = [load(stem).title for stem in benchmarks if counts.get(stem, 0) > 1]
    return listed(several) if several else ""
