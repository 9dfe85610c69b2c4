"""The interactive figure of end to end: the time of a train step on each rung of the ladder."""

from __future__ import annotations

from lmperf.names import in_order, mark_words
from lmperf.reporting import marks
from lmperf.reporting.charts import Spec, bar_chart
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.numbers import significant, whole
from lmperf.reporting.sections.end_to_end.figure import (
    MARKED,
    SAVED,
    SLOWER_BY,
    STEP,
    UNCLEAR,
    labels,
    title,
)
from lmperf.reporting.sections.end_to_end.waterfall import BY_NAME, times, usual

COLOURS = {STEP: "blue", MARKED: "mustard", SAVED: "green", SLOWER_BY: "orange", UNCLEAR: "grey"}


def charts(evidence: MachineEvidence) -> list[Spec]:
    """A bar for each rung of a size, and what the rung saved or lost; a panel for each size."""
    rows = usual(evidence)
    sizes = in_order("size", rows["size"])
    if not sizes:
        return []
    timed = {size: times(evidence, having(rows, size=size)) for size in sizes}
    records, words = [], on_one_line(labels(evidence, rows))
    for size, steps in timed.items():
        order = [name for name in BY_NAME if name in set(steps["implementation"])]
        steps = steps.assign(
            before=steps["before"].fillna(steps["ms"]), words=_marks(steps)
        ).sort_values("implementation", key=lambda names, order=order: names.map(order.index))
        for step in steps.to_dict("records"):
            records += _bars(size, words[step["implementation"]], step)
    faint, lines = (SAVED, SLOWER_BY, UNCLEAR), [*words.values()]
    return [bar_chart(title(evidence, timed), records, COLOURS, "ms", faint, lines)]


def on_one_line(words: dict[str, str]) -> dict[str, str]:
    """The labels of the rungs, from ``labels``, without line breaks."""
    return {name: text.replace("\n", " ") for name, text in words.items()}


def _marks(steps) -> list[str]:
    return [", ".join(map(mark_words, names)) or "none" for names in marks.names_of(steps)]


def _bars(size: str, line: str, step: dict) -> list[dict]:
    """The bar of a rung: the time that it takes, and what it saved or lost, as in the figure."""
    least, most = sorted((step["ms"], step["before"]))
    kind = SAVED if step["saves"] else SLOWER_BY if step["costs"] else UNCLEAR
    solid = step["ms"] if kind == UNCLEAR else least
    timed = "sustained" if step["lasting"] else "burst"
    shown = {
        "panel": f"{size}, batch {step['batch']:g}, {timed}",
        "line": line,
        "value": f"{significant(step['ms'])} ms",
        "interval": f"{significant(step['low'])} to {significant(step['high'])}",
        "n": whole(step["sustained_steps"] if step["lasting"] else step["repetitions"]),
        "marks": step["words"],
    }
    parts = [
        (MARKED if step["doubtful"] else STEP, solid),
        *([(kind, most - solid)] if most > solid else []),
    ]
    return [{**shown, "name": name, "y": float(ms)} for name, ms in parts]
