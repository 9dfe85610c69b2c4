"""Train steps that the waterfall shows: each rung of the ladder with the time of the one before.

The figures of end to end and of memory draw them, a panel for each size.
"""

from __future__ import annotations

import pandas as pd

from lmperf.dtypes import dtype_of
from lmperf.reporting import gates, marks
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.numbers import signed_percent
from lmperf.reporting.rounds import parse_rounds
from lmperf.reporting.sections.end_to_end import ladder, losses, ways
from lmperf.reporting.speedup import resolved
from lmperf.statistics import FASTER, SLOWER, median_interval
from lmperf.transformer.rungs import RUNGS, Rung

LEAST_RUNGS = 2
BY_NAME = {rung.name: rung for rung in RUNGS}


def usual(evidence: MachineEvidence) -> pd.DataFrame:
    """The rungs that figures show, named as in ``ladder.rungs``, at one context and batch a size.

    The context is that of the ladder, or that of the head table if no cell has the whole ladder.
    The batch is the one with most rungs. Sizes with fewer than ``LEAST_RUNGS`` times are left out.
    """
    frame = evidence.frame(ways.STEM)
    if frame is None:
        return pd.DataFrame({"size": []})
    whole, steps = ladder.rungs(frame), ladder.techniques(frame)
    of = ways.usual_steps(evidence) if whole.empty else whole
    steps = having(steps, context_length=of["context_length"].mode().max() if len(of) else None)
    number = steps.groupby(["size", "batch"])["size"].transform("size")
    steps = steps[number == number.groupby(steps["size"]).transform("max")]
    steps = steps[steps["batch"] == steps.groupby("size")["batch"].transform("min")]
    timed = gates.shown(steps).groupby(steps["size"]).transform("sum")
    return steps[timed >= LEAST_RUNGS]


def times(evidence: MachineEvidence, rows: pd.DataFrame) -> pd.DataFrame:
    """The rungs of one size that have a time, the lowest rung first, with eight more columns.

    ``ms``, ``low`` and ``high``: the time of a step and its interval; the sustained time if all
    rungs of the size have one (``lasting``), else the burst time. ``before``: time of the rung
    before; NaN if a rung in between has no time. ``saves`` and ``costs``: whether the verdict on
    the two is that the rung is faster or slower; neither if it is the same or unresolved, or if a
    time may not hold. ``doubtful``: whether its own time may not hold.
    """
    pairs = ladder.adjacent(evidence, rows)
    rows = rows[gates.shown(rows)]
    rows = rows.sort_values("implementation", key=lambda names: names.map([*BY_NAME].index))
    lasting = bool(rows["sustained_ms"].notna().all())
    ms, rounds = ("sustained_ms", "sustained_rounds_ms") if lasting else ("median_ms", "rounds_ms")
    low, high = median_interval(parse_rounds(rows[rounds]))
    found = [
        resolved(evidence, ways.STEM, ladder.series_of(rung), ladder.series_of(base))
        for rung, base in pairs
    ]
    faster, slower = (
        rows.index.isin([row for part in found for row in having(part, verdict=verdict).index])
        for verdict in (FASTER, SLOWER)
    )
    by_name = rows.set_index("implementation")[ms]
    bases = {rung.name: by_name.get(base.name) for rung, base in pairs}
    before = rows["implementation"].map(bases).astype(float)
    return rows.assign(
        lasting=lasting,
        **{"ms": rows[ms], "low": low, "high": high, "before": before},
        saves=faster & (rows[ms] < before),
        costs=slower & (rows[ms] > before),
        doubtful=marks.doubtful(rows, ways.STEM),
    )


def with_float32_weights(evidence: MachineEvidence, rows: pd.DataFrame) -> pd.DataFrame:
    """The fastest rung of ``rows`` (from ``times``) with float32 weights, with its speed-up.

    The speed-up is over eager float32, which is not among the rungs. Empty if it is unresolved, or
    if a time may not hold. Rungs whose own time may not hold are passed over: ``alone`` is whether
    there are none, so that no other rung can be faster.
    """
    rungs = rows["implementation"].map(BY_NAME)
    kept = rows[[keeps_weights(rung) and rung != ladder.BASE for rung in rungs]]
    kept = kept.assign(alone=not kept["doubtful"].any())
    kept = kept[~kept["doubtful"]].sort_values("ms").iloc[:1]
    if kept.empty:
        return kept
    name = kept["implementation"].iloc[0]
    found = resolved(
        evidence, ways.STEM, ladder.series_of(BY_NAME[name]), ladder.series_of(ladder.BASE)
    )
    return kept.join(found[["ratio", "verdict"]], how="inner")


def loss_changes(evidence: MachineEvidence, size: str) -> dict[str, str]:
    """Rung without float32 weights -> its loss over that with them, less 1, in words.

    Rungs without a loss are left out.
    """
    names = [name for name, rung in BY_NAME.items() if not keeps_weights(rung)]
    known = losses.losses(evidence)
    return {n: _loss_words(known.loc[(size, n)]) for n in names if (size, n) in known.index}


def _loss_words(found: pd.Series) -> str:
    change = found["loss"] / found["base"] - 1
    if change != change:
        return "loss unclear"
    if abs(change) > losses.NEAR and losses.is_inside(found):
        return "loss as float32"
    return f"loss {signed_percent(change)}"


def keeps_weights(rung: Rung) -> bool:
    """Whether a rung stores its weights in float32."""
    return dtype_of(rung.dtype).storage == "float32"
