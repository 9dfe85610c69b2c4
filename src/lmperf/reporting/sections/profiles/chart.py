"""The interactive figure of the profiles."""

from __future__ import annotations

from lmperf.reporting.charts import Spec, bar_chart
from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.numbers import significant
from lmperf.reporting.sections.profiles.figure import UNKNOWN, WAITING, bars_of, title
from lmperf.reporting.sections.profiles.kernel_classes import CLASSES
from lmperf.reporting.sections.profiles.rows import classes_of, kind_of


def charts(evidence: MachineEvidence) -> list[Spec]:
    """Each case as a bar: ms of each class of kernels, then the time the device waits."""
    cases, names = bars_of(evidence)
    if cases.empty:
        return []
    kind = kind_of(evidence)
    colours = {CLASSES[name].words: CLASSES[name].look.colour for name in classes_of(cases)}
    colours[WAITING[kind]] = "ink"
    records = []
    for name, case in zip(names, cases.to_dict("records"), strict=True):
        parts = {CLASSES[each].words: case[each] for each in classes_of(cases)}
        if case["wall_ms"] > case["total_ms"]:
            parts[WAITING[kind]] = case["wall_ms"] - case["total_ms"]
        records += [_record(case, name, part, ms, kind) for part, ms in parts.items()]
    return [bar_chart(title(cases, kind), records, colours, "ms", (WAITING[kind],))]


def _record(case: dict, name: str, part: str, ms: float, kind: str) -> dict:
    unknown = f"; {UNKNOWN[kind]}" if case["withheld"] else ""
    return {
        "panel": f"{case['size']}, context {case['context_length']:g}, batch {case['batch']:g}",
        "line": name.replace("\n", " "),
        "name": part,
        "y": float(ms),
        "value": f"{significant(ms)} of {significant(case['total_ms'])} ms of kernels{unknown}",
        "interval": "none, one profile",
        "n": 1,
        "marks": "none",
    }
