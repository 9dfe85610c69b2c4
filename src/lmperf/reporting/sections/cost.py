"""What it cost to measure this report: wall time by benchmark, and the share inside measurement."""

from __future__ import annotations

import pandas as pd

from lmperf.benchmark import stems
from lmperf.reporting.claims import Claim, NotMeasured
from lmperf.reporting.evidence import MachineEvidence, in_order
from lmperf.reporting.numbers import percent, significant
from lmperf.reporting.tables import markdown

INSIDE = {
    "timing_s": "warm-up and repetitions",
    "first_calls_s": "first calls, compilation",
    "observing_s": "observations",
}
OUTSIDE = {
    "preparing_s": "preparing",
    "checking_s": "gates",
    "memory_s": "memory",
    "start_s": "start, imports",
    "other_s": "other",
}
LIMIT_MINUTES = {"gpu": 40.0, "cpu": 5.0}
LEAST_INSIDE = 0.75
RESTS_ON = tuple(stems())


def tables(evidence: MachineEvidence) -> dict[str, str]:
    """``cost``: one line a benchmark and their sum; empty where no job was recorded."""
    jobs = jobs_of(evidence)
    if jobs.empty:
        return {"cost": ""}
    columns = ["wall_s", *INSIDE, *OUTSIDE]
    sums = jobs.groupby("stem")[columns].sum().reindex(in_order("stem", jobs["stem"]))
    counts = jobs.groupby("stem").size()
    lines = [_line(stem, int(counts[stem]), row) for stem, row in sums.iterrows()]
    lines.append(_line("all", len(jobs), sums.sum()))
    return {"cost": markdown(pd.DataFrame(lines), "Seconds of measuring", left=["benchmark"])}


def _line(stem: str, jobs: int, row: pd.Series) -> dict:
    words = {**INSIDE, **OUTSIDE}
    seconds = {f"{words[name]} (s)": significant(row[name]) for name in words}
    inside = row[list(INSIDE)].sum() / row["wall_s"]
    wall = significant(row["wall_s"])
    return {
        "benchmark": stem,
        "jobs": jobs,
        "wall (s)": wall,
        **seconds,
        "inside measurement": percent(inside),
    }


def jobs_of(evidence: MachineEvidence) -> pd.DataFrame:
    """The jobs from which a row of the evidence stems."""
    if evidence.cost is None:
        return pd.DataFrame(columns=["stem", "wall_s"])
    return evidence.cost[_rows_by_job(evidence) > 0]


def _rows_by_job(evidence: MachineEvidence) -> pd.Series:
    """How many rows of the evidence were measured while each job ran."""
    jobs = evidence.cost
    begin = pd.to_datetime(jobs["started_at"], format="ISO8601").dt.floor("s")
    end = pd.to_datetime(jobs["finished_at"], format="ISO8601").dt.ceil("s")
    counts = pd.Series(0, jobs.index)
    for stem, own in jobs.groupby("stem"):
        frame = evidence.frame(str(stem))
        if frame is not None:
            at = pd.to_datetime(frame["measured_at"], format="ISO8601")
            for job in own.index:
                counts[job] = int(((at >= begin[job]) & (at <= end[job])).sum())
    return counts


def _whole(evidence: MachineEvidence) -> pd.DataFrame:
    """The jobs, if every row of the evidence stems from one of them; else NotMeasured."""
    frames = [frame for stem in evidence.frames if (frame := evidence.frame(stem)) is not None]
    rows = sum(len(frame) for frame in frames)
    if rows == 0:
        raise NotMeasured("there is no row")
    known = 0 if evidence.cost is None else int(_rows_by_job(evidence).sum())
    if known < rows:
        raise NotMeasured(f"the jobs of {rows - known} of {rows} rows were not recorded")
    return jobs_of(evidence)


def _wall(evidence: MachineEvidence) -> dict:
    jobs = _whole(evidence)
    preset = evidence.facts.get("preset", "cpu")
    lacking = sum(len(rows) for rows in evidence.lacking.values())
    return {
        "minutes": jobs["wall_s"].sum() / 60,
        "jobs": len(jobs),
        "rows": sum(len(f) for stem in evidence.frames if (f := evidence.frame(stem)) is not None),
        "lacking": lacking,
        "preset": preset,
        "limit": LIMIT_MINUTES.get(preset, float("inf")),
    }


def _inside(evidence: MachineEvidence) -> dict:
    jobs = _whole(evidence)
    wall = jobs["wall_s"].sum()
    outside = jobs[list(OUTSIDE)].sum()
    return {
        "share": jobs[list(INSIDE)].sum().sum() / wall,
        "parts": [(words, jobs[name].sum() / wall) for name, words in INSIDE.items()],
        "largest": OUTSIDE[outside.idxmax()],
        "largest_share": outside.max() / wall,
        "least": LEAST_INSIDE,
    }


def _at_least(evidence: MachineEvidence) -> dict:
    frames = [f for stem in evidence.frames if (f := evidence.frame(stem)) is not None]
    timed = [f for f in frames if f["mean_ms"].notna().any() and "repetitions" in f]
    if not timed:
        raise NotMeasured("no row was timed")
    seconds = sum((f["mean_ms"] * f["repetitions"]).sum() for f in timed) / 1e3
    firsts = [f.dropna(subset=["compile_s"]) for f in timed]
    compiling = sum(f.drop_duplicates("compile_s")["compile_s"].sum() for f in firsts)
    return {
        "repetitions": sum(int(f["repetitions"].sum()) for f in timed),
        "seconds": seconds,
        "compiling": compiling,
    }


CLAIMS = (
    Claim(
        name="wall",
        text="Measuring these {{ rows }} rows took {{ minutes | sig }} minutes of wall time in"
        " {{ jobs }} {{ 'job' if jobs == 1 else 'jobs' }}"
        "{% if lacking %}; {{ lacking }} rows of the grid are not there yet{% endif %}.",
        values=_wall,
        holds=lambda v: v["minutes"] <= v["limit"],
        about="the wall time of measuring",
        instead="The {{ preset }} preset shall take {{ limit }} minutes at most.",
        summary=True,
    ),
    Claim(
        name="inside",
        text="{{ share | percent }} of that time lies inside measurement ("
        "{% for words, part in parts %}{{ words }} {{ part | percent }}"
        "{{ ', ' if not loop.last }}{% endfor %}); most of the rest is {{ largest }},"
        " {{ largest_share | percent }}.",
        values=_inside,
        holds=lambda v: v["share"] >= v["least"],
        about="the share of the time inside measurement",
        instead="It shall be {{ least | percent }} at least.",
        summary=True,
    ),
    Claim(
        name="at_least",
        text="The rows alone account for {{ seconds | rounded }} s in {{ repetitions | sig }} timed"
        " repetitions, and for {{ compiling | rounded }} s of first calls where something compiles"
        " or tunes itself.",
        values=_at_least,
        holds=lambda v: v["seconds"] > 0,
        about="the seconds that the rows account for",
        instead="That is no time at all.",
    ),
)
