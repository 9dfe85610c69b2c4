"""Tables and findings of external implementations: custom ones and peers (`lmperf.peers`).

An implementation counts as external if neither its benchmark nor `lmperf.names` knows its name.
The section of a benchmark compares each of them with every other implementation.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pandas as pd

from lmperf.benchmark import Timed
from lmperf.benchmarks import load
from lmperf.names import IMPLEMENTATIONS, dtype_words, implementation_words, in_order, phase_words
from lmperf.peers.table import PEERS
from lmperf.reporting import gates
from lmperf.reporting.evidence import MachineEvidence, axes, having
from lmperf.reporting.findings import SECTION, SHORT, Finding, NotMeasured, all_same
from lmperf.reporting.foreign import code
from lmperf.reporting.numbers import Count, Spread, counted, error, percent, ranged, ratio
from lmperf.reporting.side_by_side import Beside, each, side_by_side, speedup, time
from lmperf.reporting.speedup import (
    Series,
    averaged,
    compared,
    geometric_mean,
    speedup_cells,
)
from lmperf.reporting.tables import (
    STEPS,
    TableGroup,
    beside,
    kernel_note,
    kernel_times,
    number_cells,
    shortened,
    status_cells,
    status_words,
    step_times,
)
from lmperf.results import LOWER, Table
from lmperf.statistics import FASTER, SLOWER

TITLE = "Custom implementations and peers"
SPEEDUPS = "Speed-ups: median of the per-round ratios in the same numerics; above 1, {} is faster."


def names(evidence: MachineEvidence, stem: str) -> list[str]:
    """Sorted names of the external implementations among the rows of a benchmark."""
    frame = evidence.frame(stem)
    if frame is None:
        return []
    benchmark = load(stem)
    grids = (grid for grids in benchmark.grids.values() for grid in grids)
    known = {*(one.name for one in benchmark.implementations), *IMPLEMENTATIONS}
    known |= {name for grid in grids for name in grid["implementation"]}
    return sorted(set(frame["implementation"]) - known)


def another_model(frame: pd.DataFrame) -> pd.Series:
    """Whether each row's model has another number of parameters than our model of that size.

    Such a row measures a different model, not another way to run the same one.
    """
    if "parameters" not in frame:
        return pd.Series(False, frame.index)
    eager = having(frame, implementation="eager").groupby("size")["parameters"].max()
    known = frame["size"].map(eager)
    return known.notna() & frame["parameters"].notna() & (frame["parameters"] != known)


def table(stem: str) -> TableGroup:
    """The tables of external implementations: times and speed-ups for each, by phase and dtype."""
    return TableGroup("", TITLE, lambda evidence: _tables(evidence, stem))


def _tables(evidence: MachineEvidence, stem: str) -> list[Table]:
    external = names(evidence, stem)
    if not external or not isinstance(load(stem), Timed):
        return []
    parts = _parts(evidence, stem)
    return each(*(_table(evidence, stem, name, part) for name in external for part in parts))


def _parts(evidence: MachineEvidence, stem: str) -> list[pd.DataFrame]:
    """The rows of a benchmark by phase, and by dtype where it has that axis."""
    frame = evidence.frame(stem)
    parts = [having(frame, phase=phase) for phase in in_order("phase", frame["phase"])]
    if "dtype" not in axes(frame):
        return parts
    return [
        having(part, dtype=dtype) for part in parts for dtype in in_order("dtype", part["dtype"])
    ]


def _table(evidence: MachineEvidence, stem: str, name: str, rows: pd.DataFrame) -> Table | None:
    series = Series.of(implementation=name)
    shown = series.rows(rows)
    if (shown["status"] == "unsupported").all():  # also true without any row
        return None
    steps = load(stem).clock == "step"
    times, note = (step_times, STEPS) if steps else (kernel_times, kernel_note(rows))
    cells = times(shown) if shown["median_ms"].notna().any() else status_cells(shown)
    phase, median = rows["phase"].iloc[0], "median" if steps else ""
    columns = [time(name, cells, f"{phase}.{name}", second=median)]
    for peer in _timed_peers(evidence, stem, name, rows):
        cells = speedup_cells(evidence, stem, series, Series.of(implementation=peer))
        cells = cells[cells.index.isin(rows.index)]
        words = f"over {implementation_words(peer, axes(rows))}"
        columns.append(speedup(words, cells, f"{phase}.{name}.over.{peer}"))
    if shown["error_bound"].notna().any():
        columns.append(error_column(shown, f"{phase}.{name}.error"))
    words = [phase_words(phase)]
    words += [dtype_words(rows["dtype"].iloc[0], axes(rows))] if "dtype" in axes(rows) else []
    cell = [axis for axis in axes(rows) if axis != "dtype"]
    note = f"{note} {SPEEDUPS.format(name)}"
    return side_by_side(f"{name}, {', '.join(words)}", shown, cell, columns, note)


def error_column(rows: pd.DataFrame, name: str) -> Beside:
    """A column with an error and its bound for each row: of the tensor closest to its bound."""
    known = rows[rows["error_bound"].notna()]
    cells = beside(number_cells(known["max_error"], error), known["error_bound"], error)
    return Beside(
        "largest error / bound", cells, name, format="error", better=LOWER, second="bound"
    )


def _timed_peers(evidence: MachineEvidence, stem: str, name: str, rows: pd.DataFrame) -> list[str]:
    """The other implementations with a time among the rows; none if ``name`` has no time."""
    timed = set(rows.loc[gates.shown(rows), "implementation"])
    return [peer for peer in _peers(evidence, stem, name) if {peer, name} <= timed]


def _peers(evidence: MachineEvidence, stem: str, name: str) -> list[str]:
    return [
        one
        for one in in_order("implementation", evidence.frame(stem)["implementation"])
        if one != name
    ]


def finding(stem: str, name: str) -> Finding:
    """The finding that compares an external implementation with the others.

    Without a time it gives the reason. If a train step was timed, it compares train steps only,
    since a train step contains the other phases.
    """
    over = "{{ name }}, {{ phases }}{{ ', geometric mean' if several }} over {{ over | listed }}"
    return Finding(
        name=f"external_{stem}_{name}",
        question="How fast is an external implementation, compared with each of the others?",
        values=lambda evidence: _values(evidence, stem, name),
        answer=_answer,
        answers={
            "compared": f"{over}.",
            "in_part": f"{over}; no time in {{{{ without }}}} rows: {{{{ why | listed }}}}.",
            "withheld": "{{ name }} has no time to show: {{ why | listed }}.",
            "open": "{{ name }} was timed; too few of its comparisons are resolved to sum them up.",
            "alone": "{{ name }} was timed; there is nothing to compare it with.",
        },
        place=SECTION if name in PEERS else SHORT,
    )


def _values(evidence: MachineEvidence, stem: str, name: str) -> dict:
    frame = evidence.frame(stem)
    if frame is None or not isinstance(load(stem), Timed):
        raise NotMeasured
    rows = having(frame, implementation=name)
    if rows.empty:
        raise NotMeasured
    shown = gates.shown(rows)
    phases = in_order("phase", rows.loc[shown, "phase"])
    phases = ["train_step"] if "train_step" in phases else phases
    every, others = _peers(evidence, stem, name), names(evidence, stem)
    # Speed-ups over other external implementations are in the table alone.
    peers = [peer for peer in every if peer not in others] or every
    over = {
        implementation_words(peer, axes(frame)): _over(evidence, stem, name, peer, phases)
        for peer in peers
    }
    return {
        "name": _named(evidence, stem, rows),
        "phases": "/".join(map(phase_words, phases)),
        "over": [f"{peer} {words}" for peer, words in over.items() if words],
        "several": bool(having(rows[shown], phase=phases)["phase"].duplicated().any()),
        "any": bool(shown.any()),
        "beside": any(_timed_peers(evidence, stem, name, frame)),
        "without": Count(int((~shown).sum()), len(rows)),
        "why": _why(rows[~shown]),
    }


def _why(rows: pd.DataFrame) -> list[str]:
    """The distinct statuses of rows, each with the first reason recorded for it."""
    words = status_words(rows)
    found: dict[str, str] = {}
    for status, reason in zip(words, rows["reason"], strict=True):
        if status not in found:
            found[status] = f" ({shortened(reason, 90)})" if isinstance(reason, str) else ""
    return [status + reason for status, reason in found.items()]


def _named(evidence: MachineEvidence, stem: str, rows: pd.DataFrame) -> str:
    """The name of an implementation with its module and function, if recorded."""
    name, found = rows["implementation"].iloc[0], evidence.facts["environments"].values()
    uses = [facts.get("implementations", {}).get(f"{stem}.{name}") for facts in found]
    words = [code(use) for use in uses[-1:] if use]
    if another_model(evidence.frame(stem))[rows.index].any():
        words.append(f"another model{_work(evidence.frame(stem), rows)}")
    return f"{name} ({', '.join(words)})" if words else name


def _work(frame: pd.DataFrame, rows: pd.DataFrame) -> str:
    """FLOPs of an external model as a share of our eager model's, in words; empty if unknown."""
    eager = having(frame, implementation="eager")[[*axes(frame), "phase", "flops"]]
    both = rows.merge(eager, on=[*axes(frame), "phase"], suffixes=("", "_eager"))
    shares = (both["flops"] / both["flops_eager"]).dropna()
    if shares.empty:
        return ""
    return f" of {ranged(Spread.of(shares), partial(percent, places=0))} of the FLOPs"


def _over(evidence: MachineEvidence, stem: str, name: str, peer: str, phases: Sequence[str]) -> str:
    """The geometric mean speed-up over ``peer`` in each phase, and the numbers of verdicts.

    As ``0.71x/0.65x (faster in 1, slower in 9 of 12 resolved rows)`` or ``on par``; empty if no
    row was compared, or too few of them hold.
    """
    series, base = (Series.of(implementation=one) for one in (name, peer))
    found, means = (
        having(which(evidence, stem, series, base), phase=phases) for which in (compared, averaged)
    )
    if found.empty or set(means["phase"]) < set(phases):
        return ""
    if all_same(found):
        return f"on par in {counted(len(found), 'resolved row')}"
    ratios = [having(means, phase=phase)["ratio"] for phase in phases]
    faster, slower = ((found["verdict"] == verdict).sum() for verdict in (FASTER, SLOWER))
    verdicts = [f"{word} in {n}" for word, n in ((FASTER, faster), (SLOWER, slower)) if n]
    words = "/".join(ratio(geometric_mean(values)) for values in ratios)
    return f"{words} ({', '.join(verdicts)} of {counted(len(found), 'resolved row')})"


def _answer(values: dict) -> str:
    if not values["any"]:
        return "withheld"
    if not values["over"]:
        return "open" if values["beside"] else "alone"
    return "in_part" if values["without"].k else "compared"
