"""Tables and findings of external implementations: custom ones and peers (`lmperf.peers`).

An implementation counts as external if neither its benchmark nor `lmperf.names` knows its name.
The section of a benchmark compares each of them with every other implementation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import pandas as pd

from lmperf.benchmark import Timed
from lmperf.benchmarks import load
from lmperf.names import IMPLEMENTATIONS, implementation_words, in_order, phase_words
from lmperf.peers.table import PEERS
from lmperf.reporting import gates
from lmperf.reporting.evidence import MachineEvidence, axes, having
from lmperf.reporting.findings import PAGE, SHORT, Finding, NotMeasured, all_same
from lmperf.reporting.foreign import code
from lmperf.reporting.numbers import Count, Spread, error, percent, ranged, ratio
from lmperf.reporting.side_by_side import Beside, each, side_by_side, speedup, time
from lmperf.reporting.speedup import (
    Series,
    averaged,
    compared,
    every,
    geometric_mean,
    speedup_cells,
)
from lmperf.reporting.tables import (
    TableGroup,
    beside,
    from_frame,
    kernel_note,
    kernel_times,
    number_cell,
    number_cells,
    shortened,
    status_cells,
    status_words,
    step_note,
    step_times,
)
from lmperf.results import LOWER, STALE, Table
from lmperf.statistics import FASTER, SAME, SLOWER, UNRESOLVED

TITLE = "Custom implementations and peers"
# Phases that contain all others, the first one that was timed counts.
WHOLE = ("train_step", "forward_backward")
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
    """The tables of external implementations: times and speed-ups for each, by phase."""
    return TableGroup("", TITLE, lambda evidence: _tables(evidence, stem))


def _tables(evidence: MachineEvidence, stem: str) -> list[Table]:
    external = names(evidence, stem)
    if not external or not isinstance(load(stem), Timed):
        return []
    frame = evidence.frame(stem)
    parts = [having(frame, phase=phase) for phase in in_order("phase", frame["phase"])]
    return each(
        *(_summary(evidence, stem, name) for name in external),
        *(_table(evidence, stem, name, part) for name in external for part in parts),
    )


def _summary(evidence: MachineEvidence, stem: str, name: str) -> Table | None:
    """A table with the mean speed-up of an external implementation over each other one, by phase.

    It counts the verdicts of all comparisons; a mean leaves out those that may not hold. There is
    no mean without a resolved comparison.
    """
    lines = []
    for peer in _peers(evidence, stem, name):
        pair = [Series.of(implementation=one) for one in (name, peer)]
        timed = every(evidence, stem, *pair)
        cells = speedup_cells(evidence, stem, *pair)
        old = {row for row, cell in cells.items() if STALE in cell.marks}
        for phase in in_order("phase", timed["phase"]):
            held = having(timed, phase=phase)
            ratios = averaged(evidence, stem, *pair, phase=phase)
            open_ = ~held["holds"] | (held["verdict"] == UNRESOLVED)
            counts = {
                verdict: int((held["verdict"][~open_] == verdict).sum())
                for verdict in (FASTER, SLOWER, SAME)
            }
            known = len(ratios) and not open_.all()
            mean = geometric_mean(ratios["ratio"]) if known else None
            stale = (STALE,) if known and old & {*ratios.index} else ()
            words = {
                "over": implementation_words(peer, axes(timed)),
                "phase": phase_words(phase),
                "mean": replace(number_cell(mean, ratio), marks=stale),
            }
            lines.append({**words, **counts, "open": int(open_.sum())})
    if not lines:
        return None
    headers = {"mean": "speed-up, geometric mean", "open": "unresolved or marked"}
    return from_frame(f"{name} over each", pd.DataFrame(lines), headers=headers)


def _table(evidence: MachineEvidence, stem: str, name: str, rows: pd.DataFrame) -> Table | None:
    series = Series.of(implementation=name)
    shown = series.rows(rows)
    if (shown["status"] == "unsupported").all():  # also true without any row
        return None
    steps = load(stem).clock == "step"
    times, note = (
        (step_times, step_note(stem, shown)) if steps else (kernel_times, kernel_note(rows))
    )
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
    note = f"{note} {SPEEDUPS.format(name)}"
    return side_by_side(f"{name}, {phase_words(phase)}", shown, axes(rows), columns, note)


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
    """The finding that compares an external implementation with the fastest of the others.

    Without a time it gives the reason. If a train step was timed, it compares train steps only,
    since a train step contains the other phases; likewise forward and backward together.
    """
    over = (
        "{{ name }}: {% for phase, ratio in ratios.items() %}{{ ratio | ratio }} {{ phase }}"
        "{{ ', ' if not loop.last }}{% endfor %} over {{ peer }}, the fastest of the others"
        "{% if counted %}; {{ counted }}{% endif %}.{{ another }}"
    )
    return Finding(
        name=f"external_{stem}_{name}",
        question="How fast is an external implementation, compared with the fastest of the others?",
        values=lambda evidence: _values(evidence, stem, name),
        answer=_answer,
        answers={
            "compared": over,
            "in_part": f"{over} No time in {{{{ without }}}} rows: {{{{ kinds | listed }}}}.",
            "par": "{{ name }}: on par with {{ peer }}, the fastest of the others.{{ another }}",
            "withheld": "{{ name }} has no time to show: {{ why | listed }}.",
            "open": "{{ name }} was timed; too few of its {{ phases | listed }} comparisons are"
            " resolved to sum them up.",
            "alone": "{{ name }} was timed; there is nothing to compare it with.",
        },
        place=PAGE if name in PEERS else SHORT,
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
    phases = next(([phase] for phase in WHOLE if phase in phases), phases)
    all_peers, others = _peers(evidence, stem, name), names(evidence, stem)
    # Speed-ups over other external implementations are in the table alone.
    peers = [peer for peer in all_peers if peer not in others] or all_peers
    found = {peer: _over(evidence, stem, name, peer, phases) for peer in peers}
    fastest = _fastest(found)
    over = found[fastest] if fastest else None
    return {
        "name": _named(evidence, stem, name),
        "peer": fastest and implementation_words(fastest, axes(frame)),
        "ratios": {} if over is None else _by_phase(over),
        "counted": _counted(over) if fastest and len(phases) == 1 else "",
        "phases": list(map(phase_words, phases)),
        "par": over is not None and all_same(over),
        "another": _another(frame, rows),
        "any": bool(shown.any()),
        "beside": any(_timed_peers(evidence, stem, name, frame)),
        "without": Count(int((~shown).sum()), len(rows)),
        "why": _why(rows[~shown]),
        "kinds": list(dict.fromkeys(status_words(rows[~shown]))),
    }


def _fastest(found: Mapping[str, pd.DataFrame]) -> str | None:
    """The implementation with the least speed-ups over it, of those compared in enough cells.

    found: implementation -> rows of the external one with their speed-up over it. One with less
    than half as many rows as another does not count.
    """
    enough = max(map(len, found.values()), default=0) / 2
    means = {
        name: geometric_mean(rows["ratio"])
        for name, rows in found.items()
        if len(rows) and len(rows) >= enough
    }
    return min(means, key=lambda name: means[name], default=None)


def _by_phase(rows: pd.DataFrame) -> dict[str, float]:
    phases = in_order("phase", rows["phase"])
    means = (geometric_mean(having(rows, phase=phase)["ratio"]) for phase in phases)
    return dict(zip(map(phase_words, phases), means, strict=True))


def _counted(rows: pd.DataFrame) -> str:
    """The most frequent verdict of one phase's rows, as ``faster in 5 of 6 resolved cells``."""
    counts = {verdict: int((rows["verdict"] == verdict).sum()) for verdict in (FASTER, SLOWER)}
    most = max(counts, key=lambda verdict: counts[verdict])
    return f"{most} in {Count(counts[most], len(rows))} resolved cells"


def _why(rows: pd.DataFrame) -> list[str]:
    """The distinct statuses of rows, each with the first reason recorded for it."""
    words = status_words(rows)
    found: dict[str, str] = {}
    for status, reason in zip(words, rows["reason"], strict=True):
        if status not in found:
            found[status] = f" ({shortened(reason, 90)})" if isinstance(reason, str) else ""
    return [status + reason for status, reason in found.items()]


def _named(evidence: MachineEvidence, stem: str, name: str) -> str:
    """The name of an implementation with its module and function, if recorded."""
    found = evidence.facts["environments"].values()
    uses = [facts.get("implementations", {}).get(f"{stem}.{name}") for facts in found]
    return next((f"{name} ({code(use)})" for use in uses[-1:] if use), name)


def _another(frame: pd.DataFrame, rows: pd.DataFrame) -> str:
    """A sentence that says so if an external model is another model, with its share of FLOPs."""
    if not another_model(frame)[rows.index].any():
        return ""
    eager = having(frame, implementation="eager")[[*axes(frame), "phase", "flops"]]
    both = rows.merge(eager, on=[*axes(frame), "phase"], suffixes=("", "_eager"))
    shares = (both["flops"] / both["flops_eager"]).dropna()
    words = ranged(Spread.of(shares), partial(percent, places=0)) if len(shares) else ""
    return f" It is another model{f', of {words} of the FLOPs' if words else ''}."


def _over(
    evidence: MachineEvidence, stem: str, name: str, peer: str, phases: Sequence[str]
) -> pd.DataFrame:
    """The rows of these phases with their resolved speed-ups over ``peer``.

    Empty without phases, or if too few comparisons of any phase are resolved.
    """
    pair = [Series.of(implementation=one) for one in (name, peer)]
    found = [compared(evidence, stem, *pair, phase=phase) for phase in phases]
    return pd.concat(found) if found and all(map(len, found)) else pd.DataFrame()


def _answer(values: dict) -> str:
    if not values["any"]:
        return "withheld"
    if not values["peer"]:
        return "open" if values["beside"] else "alone"
    if values["without"].k:
        return "in_part"
    return "par" if values["par"] else "compared"
