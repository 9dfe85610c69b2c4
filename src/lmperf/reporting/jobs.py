"""The jobs that measured the rows of a report, and the devices on which they ran."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from lmperf.benchmark import Timed
from lmperf.benchmarks import load
from lmperf.evidence.repeatability import STEM
from lmperf.reporting import gates
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.numbers import Count, counted, listed

CEILINGS = "ceilings"


def jobs_of(evidence: MachineEvidence) -> pd.DataFrame:
    """The measuring jobs that ran while a row of the evidence was measured."""
    if evidence.cost is None:
        return pd.DataFrame(columns=["stem", "started_at", "finished_at", "wall_s"])
    return evidence.cost[rows_by_job(evidence) > 0]


def rows_by_job(evidence: MachineEvidence) -> pd.Series:
    """For each job, the number of rows of its benchmark that it measured.

    A row that several jobs may have measured (see ``_may_have_measured``) counts for the first.
    """
    return evidence.once(
        ("rows_by_job",), lambda: _by_job(evidence.cost, lambda stem: _rows(evidence, stem))
    )


def _rows(evidence: MachineEvidence, stem: str) -> pd.DataFrame | None:
    if stem == STEM:
        return pd.concat([*evidence.repeats.values()]) if evidence.repeats else None
    return evidence.frame(stem)


def _by_job(jobs: pd.DataFrame, rows_of: Callable[[str], pd.DataFrame | None]) -> pd.Series:
    """For each job, how many of the rows that ``rows_of`` gives for its benchmark it measured."""
    counts = pd.Series(0, jobs.index)
    for stem, of_stem in jobs.groupby("stem"):
        frame = rows_of(str(stem))
        if frame is not None:
            possible = _may_have_measured(frame, of_stem)
            first = possible.argmax(axis=1)[possible.any(axis=1)]
            counts[of_stem.index] = np.bincount(first, minlength=len(of_stem))
    return counts


def devices_of_rows(evidence: MachineEvidence, rows: pd.DataFrame, stem: str) -> pd.Series:
    """What identifies the GPUs that measured each row: their UUIDs, else the start of the job.

    Older rows have no UUIDs, but their job may have. Missing where no job is recorded, or where
    jobs on different GPUs ran at the same time.

    stem: of the jobs, as in ``cost.csv``.
    """
    recorded = _gpus(rows)
    if evidence.cost is None or "measured_at" not in rows:
        return recorded
    found, several = pd.Series(None, rows.index, dtype=object), pd.Series(False, rows.index)
    jobs = having(evidence.cost, stem=stem)
    named = _gpus(jobs).fillna(jobs["started_at"])
    for device, of_job in zip(named, _may_have_measured(rows, jobs).T, strict=True):
        several |= of_job & found.notna() & (found != device)
        found[of_job] = device
    return recorded.fillna(found.mask(several, None))


def _gpus(rows_or_jobs: pd.DataFrame) -> pd.Series:
    """The UUIDs that rows or jobs recorded, as text; None where they did not."""
    index = rows_or_jobs.index
    # A column without any text is one of numbers, which takes no text in.
    found = rows_or_jobs.get("gpus", pd.Series(None, index)).astype(object).replace("", None)
    return found.where(found.notna(), None)


def _may_have_measured(rows: pd.DataFrame, jobs: pd.DataFrame) -> np.ndarray:
    """Whether each job ran when each row was measured, on its GPUs: a line for each row.

    Where the row or the job did not record its GPUs, the time alone decides.
    """
    of_rows, of_jobs = (_gpus(one).to_numpy() for one in (rows, jobs))
    unknown = pd.isna(of_rows)[:, None] | pd.isna(of_jobs)
    return _inside(_at(rows["measured_at"]), jobs) & (unknown | (of_rows[:, None] == of_jobs))


def _inside(at: pd.Series, jobs: pd.DataFrame) -> np.ndarray:
    """Whether each time lies in the window of each job: a line for each time.

    Older rows and jobs have whole seconds: a time in no window counts as in one that is longer by
    up to a second at both ends.
    """
    begin, end = _at(jobs["started_at"]), _at(jobs["finished_at"])
    exact = _between(at, begin, end)
    wider = _between(at, begin.dt.floor("s"), end.dt.ceil("s"))
    return np.where(exact.any(axis=1, keepdims=True), exact, wider)


def _between(at: pd.Series, begin: pd.Series, end: pd.Series) -> np.ndarray:
    times, begin, end = (one.to_numpy("datetime64[ns]") for one in (at, begin, end))
    return (times[:, None] >= begin) & (times[:, None] <= end)


def _at(times: pd.Series) -> pd.Series:
    """The text as timestamps in UTC; NaT where it is no timestamp."""
    return pd.to_datetime(times, format="ISO8601", errors="coerce", utc=True)


def on_several_devices(evidence: MachineEvidence, benchmarks: Sequence[str]) -> str:
    """The benchmarks whose rows were measured on several devices, in words: ``Attention (2 GPUs)``.

    Of a ranked benchmark, several sets of GPUs. Empty if there is none, or if jobs did not record
    their devices.
    """
    jobs = _with_gpus(evidence)
    sets = jobs.groupby("stem")["gpus"].nunique()
    several = [stem for stem in benchmarks if sets.get(stem, 0) > 1]
    of = {stem: _counted_gpus(evidence, [stem]) for stem in several}
    return listed([f"{load(stem).title} ({words})" for stem, words in of.items()]) if of else ""


def beside_other_jobs(evidence: MachineEvidence, benchmarks: Sequence[str]) -> str:
    """Those of the benchmarks that were measured while a job ran on other GPUs, in words.

    Every recorded job counts as another one, also if its rows have been replaced since.
    """
    ours = _with_gpus(evidence)
    if ours.empty:
        return ""
    others = _recorded_gpus(evidence.cost)
    begin, end = _at(others["started_at"]), _at(others["finished_at"])
    apart = [
        stem
        for job, stem, gpus in zip(ours.index, ours["stem"], ours["gpus"], strict=True)
        if ((begin < end[job]) & (end > begin[job]) & (others["gpus"] != gpus)).any()
    ]
    found = [load(stem).title for stem in benchmarks if stem in apart]
    return listed(found) if found else ""


def sets_of_gpus(evidence: MachineEvidence, benchmarks: Sequence[str] | None = None) -> set[str]:
    """The sets of GPUs that measured rows, each as ``UUID;UUID``.

    Jobs that did not record their GPUs do not count.

    benchmarks: those whose rows count; None: all.
    """
    jobs = _with_gpus(evidence)
    return {*jobs["gpus"]} if benchmarks is None else {*jobs["gpus"][jobs["stem"].isin(benchmarks)]}


def gpus_words(evidence: MachineEvidence) -> str:
    """On how many GPUs the rows were measured, as ``at least 7 GPUs``; empty if not on several."""
    several = len(_gpus_of(_with_gpus(evidence))) > 1
    return _counted_gpus(evidence, jobs_of(evidence)["stem"].unique()) if several else ""


def _counted_gpus(evidence: MachineEvidence, stems: Sequence[str]) -> str:
    """The number of GPUs of the jobs of some benchmarks, in words."""
    known, every = _with_gpus(evidence), jobs_of(evidence)
    known, every = (jobs[jobs["stem"].isin(stems)] for jobs in (known, every))
    at_least = "at least " if len(known) < len(every) else ""
    return f"{at_least}{counted(len(_gpus_of(known)), 'GPU')}"


def apart_from_ceilings(evidence: MachineEvidence, benchmarks: Sequence[str]) -> Count:
    """How many rows with a time were measured on other GPUs than the ceilings, of how many.

    Rows of jobs that did not record their GPUs do not count. None is apart without ceilings.
    """
    known = _with_gpus(evidence)
    ceilings = _gpus_of(known[known["stem"] == CEILINGS])
    timed = [stem for stem in benchmarks if stem != CEILINGS and isinstance(load(stem), Timed)]

    def timed_rows(stem: str) -> pd.DataFrame | None:
        frame = evidence.frame(stem) if stem in timed else None
        return None if frame is None else frame[gates.shown(frame) & frame["median_ms"].notna()]

    jobs = known[known["stem"].isin(timed)]
    elsewhere = [bool(ceilings) and ceilings.isdisjoint(_split(gpus)) for gpus in jobs["gpus"]]
    rows = _by_job(evidence.cost, timed_rows)[jobs.index] if len(jobs) else pd.Series(dtype=int)
    return Count(int(rows[elsewhere].sum()), int(rows.sum()))


def _with_gpus(evidence: MachineEvidence) -> pd.DataFrame:
    """The jobs of rows that recorded their GPUs."""
    return _recorded_gpus(jobs_of(evidence))


def _recorded_gpus(jobs: pd.DataFrame) -> pd.DataFrame:
    """Those of the jobs that recorded their GPUs."""
    jobs = jobs if "gpus" in jobs else jobs.assign(gpus=None)
    return jobs[jobs["gpus"].notna() & (jobs["gpus"] != "")]


def _gpus_of(jobs: pd.DataFrame) -> set[str]:
    return {gpu for gpus in jobs["gpus"] for gpu in _split(gpus)}


def _split(gpus: str) -> set[str]:
    return set(gpus.split(";"))
