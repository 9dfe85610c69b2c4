"""Table Y6 and its finding: train steps with activation checkpoints, by the size of these.

The predicted peaks are computed here from the cells, so that steps that run out of memory, whose
rows hold nothing but the failed request, have one as well.
"""

from __future__ import annotations

import pandas as pd

from lmperf.benchmarks import load
from lmperf.names import implementation_words, in_order, size_in_full
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.findings import SECTION, Finding, measured, rows_of
from lmperf.reporting.machine import newest
from lmperf.reporting.numbers import MIB, Spread, signed_percent
from lmperf.reporting.sections.memory.peaks import MIB_IN_GIB, peaks
from lmperf.reporting.side_by_side import Beside, each, memory, side_by_side, speedup, step_time
from lmperf.reporting.speedup import Series, compared, speedup_cells
from lmperf.reporting.tables import (
    Owed,
    TableGroup,
    burst_note,
    number_cells,
    step_times,
    value_cells,
)
from lmperf.results import LOWER, Table
from lmperf.transformer.memory import FLOAT32, Footprint, memory_moments
from lmperf.transformer.sizes import SIZES, ModelSize, canonical

STEM = "checkpointing"
CELL = ["size", "context_length", "batch", "dtype"]
NONE = "eager"
LINES = [*CELL, "implementation"]


def with_predictions(evidence: MachineEvidence, frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of the project's implementations, with ``predicted_mib``."""
    known = {one.name: one.options for one in load(STEM).implementations}
    frame = having(frame, implementation=set(known))
    predicted = [
        _predicted(row, known[row["implementation"]], _device(evidence)) / MIB
        for _, row in frame.iterrows()
    ]
    return frame.assign(predicted_mib=pd.Series(predicted, frame.index, dtype=float))


def _device(evidence: MachineEvidence) -> str:
    return newest(evidence).get("kind") or "cpu"


def _size(row: pd.Series) -> ModelSize:
    known = {size.short: size for size in SIZES.values()}
    return known.get(row["size"]) or SIZES[canonical(row["size"])]


def _predicted(row: pd.Series, options: dict, device: str) -> int:
    cell = _size(row), int(row["context_length"]), int(row["batch"]), row["dtype"]
    checkpoints = {"segment": options["layers"], "nested": options.get("nested", False)}
    moments = memory_moments(*cell, "train_step", device, **checkpoints)
    return max(moment["peak"] for moment in moments.values())


def tables(evidence: MachineEvidence) -> list[Table]:
    """Tables Y6, one for each size: peaks, and the time of a step, by the size of checkpoints."""
    frame = evidence.frame(STEM)
    if frame is None:
        return []
    frame = with_predictions(evidence, frame)
    sizes = in_order("size", frame["size"])
    return each(*(_of_size(evidence, having(frame, size=size)) for size in sizes))


def _of_size(evidence: MachineEvidence, frame: pd.DataFrame) -> Table | None:
    change = frame["peak_mib"] / frame["predicted_mib"] - 1
    cells = [
        speedup_cells(
            evidence, STEM, Series.of(implementation=name), Series.of(implementation=NONE)
        )
        for name in in_order("implementation", frame["implementation"])
        if name != NONE
    ]
    over = pd.concat([pd.Series(dtype=object), *cells])
    columns = [
        memory("predicted", number_cells(frame["predicted_mib"] / MIB_IN_GIB), "predicted", "GiB"),
        memory("measured", peaks(frame, MIB_IN_GIB), "peak", "GiB"),
        Beside(
            "difference",
            value_cells(frame, change, signed_percent),
            *("difference", "", "signed_percent", LOWER),
        ),
        step_time("step", step_times(frame), "train_step"),
        speedup("over no checkpoints", over[over.index.isin(frame.index)], "over.none"),
    ]
    return side_by_side("Peak memory and train step", frame, LINES, columns, burst_note(frame))


def _best(evidence: MachineEvidence) -> dict:
    """The checkpoints with the least peak at the largest size, beside no and nested checkpoints."""
    known = with_predictions(evidence, rows_of(evidence, STEM))
    known = measured(known[known["peak_mib"].notna()])
    size = in_order("size", known["size"])[-1]
    every, known = (having(rows, size=size) for rows in (evidence.frame(STEM), known))
    nested = known["implementation"].str.startswith("nested")
    plain = measured(known[~nested & (known["implementation"] != NONE)])
    best = plain.loc[plain["peak_mib"].idxmin()]
    none = with_predictions(evidence, measured(having(every, implementation=NONE))).iloc[0]
    layers = _layers(best)
    footprint = _footprint(evidence, best)
    return {
        "size": size_in_full(size),
        "best": implementation_words(best["implementation"]),
        "layers": layers,
        "of": len(plain),
        "peak": best["peak_mib"] * MIB,
        "fits": pd.notna(none["peak_mib"]),
        "without": none[["peak_mib", "predicted_mib"]].bfill().iloc[0] * MIB,
        "layer": (footprint.attention_saved() + footprint.feed_forward_saved()) / MIB,
        "input": FLOAT32 * footprint.stream / MIB,
        **_nested(evidence, known[nested], best["implementation"]),
        **_cost(evidence, best["implementation"]),
    }


def _nested(evidence: MachineEvidence, nested: pd.DataFrame, best: str) -> dict:
    """The least peak of nested checkpoints, and `times`: their step's time over the best's."""
    if nested.empty:
        return {"nested": None, "times": None}
    least = nested.loc[nested["peak_mib"].idxmin()]
    pair = (Series.of(implementation=one) for one in (least["implementation"], best))
    ratios = compared(evidence, STEM, *pair)["ratio"]
    ratios = ratios[ratios.index.isin([least.name])]
    times = 1 / ratios.iloc[0] if len(ratios) else None
    return {"nested": least["peak_mib"] * MIB, "times": times}


def _layers(row: pd.Series) -> int:
    return load(STEM).implementation(row["implementation"]).options["layers"]


def _footprint(evidence: MachineEvidence, row: pd.Series) -> Footprint:
    cell = _size(row), int(row["context_length"]), int(row["batch"])
    operand = 2 if row["dtype"].startswith("autocast") else FLOAT32
    return Footprint(*cell, operand, _device(evidence), 0)


def _cost(evidence: MachineEvidence, name: str) -> dict:
    """By how much a step is longer than without checkpoints, at the sizes at which both fit."""
    pair = (Series.of(implementation=one) for one in (name, NONE))
    found = compared(evidence, STEM, *pair)
    longer = 1 / found["ratio"] - 1
    sizes = in_order("size", found["size"])
    return {"longer": Spread.of(longer) if len(longer) else None, "at": sizes}


_TAKE = (
    "Activation {{ best }} take a {{ size }} train step (Y6) from {{ without | gib }}"
    "{{ '' if fits else ' (predicted)' }} to {{ peak | gib }}. Of {{ of }} sizes they need least: "
)
_REST = (
    "{% if longer %} A step then takes {{ longer | range('signed_percent') }} time"
    " ({{ at | listed }}).{% endif %}"
    "{% if nested %} Nested ones need {{ 'as much' if nested > 0.99 * peak else nested | gib }}"
    "{% if times is not none %}, and their step takes {{ times | sig }} times as long"
    "{% endif %}.{% endif %}"
)
FINDING = Finding(
    name="memory_checkpoints",
    question="Which size of activation checkpoints needs least memory, and why?",
    values=_best,
    answer=lambda v: "smallest" if v["layers"] == 1 else "larger",
    answers={
        "smallest": _TAKE
        + "a layer would keep {{ layer | sig }} MiB for its backward, its input takes"
        " {{ input | sig }} MiB." + _REST,
        "larger": _TAKE + "larger ones save more layers at once ({{ layer | sig }} MiB each),"
        " smaller ones more inputs ({{ input | sig }} MiB)." + _REST,
    },
    place=SECTION,
)
TABLE = TableGroup("Y6", "Activation checkpointing", tables, Owed(stem=STEM, cell=LINES))
