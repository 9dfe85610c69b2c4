"""E2: what the first steps of a process cost, and what warm-up does to mean and spread."""

from __future__ import annotations

from itertools import pairwise

import pandas as pd

from lmperf.reporting import gates
from lmperf.reporting.claims import Claim, NotMeasured, rows_of
from lmperf.reporting.evidence import MachineEvidence, in_order, in_reading_order
from lmperf.reporting.numbers import dtype_words, phase_words, significant, spread
from lmperf.reporting.tables import markdown, shared_axes

STEM = "warmup"
CELL = ["size", "context_length", "batch", "dtype"]
WARM_UPS = (0, 1, 2, 5)
TIMED = 10
PARTS = ("forward", "backward", "optimizer")
HEADERS = {"context_length": "context", "dtype": "numerics"}


def tables(evidence: MachineEvidence) -> dict[str, str]:
    """``e2``: mean, spread and their ratio by warm-up steps; ``steps``; ``first`` by part."""
    frame = evidence.frame(STEM)
    if frame is None:
        return {"e2": "", "steps": "", "first": ""}
    if not gates.shown(frame).any():
        return {"e2": "", "steps": "", "first": ""}
    rows = in_reading_order(rows_of(evidence, STEM), first=CELL)
    series = _series(evidence)
    return {"e2": _warm_ups(series), "steps": _steps(series), "first": _first(rows)}


def _series(evidence: MachineEvidence) -> list[tuple[dict, pd.Series]]:
    """Each cell with its step times in ms, by number of the step."""

    def make() -> list[tuple[dict, pd.Series]]:
        frame = in_reading_order(rows_of(evidence, STEM), first=CELL)
        wide = frame.pivot_table(index=CELL, columns="step", values="step_ms", sort=False)
        wide = wide[sorted(wide.columns)]
        return [
            (_cell(key), pd.Series(times, wide.columns).dropna())
            for key, times in zip(wide.index, wide.to_numpy(), strict=True)
        ]

    return evidence.once((STEM, "series"), make)


def _cell(key: tuple) -> dict:
    cell = dict(zip(CELL, key, strict=True))
    return {**cell, "dtype": dtype_words(cell["dtype"])}


def after(times: pd.Series, warm_up: int) -> tuple[float, float]:
    """Mean and standard deviation, in ms, of the TIMED steps after so many steps of warm-up."""
    timed = times.to_numpy()[warm_up : warm_up + TIMED]
    mean = float(timed.mean()) if len(timed) else float("nan")
    return mean, float(timed.std(ddof=1)) if len(timed) > 1 else float("nan")


def _warm_ups(series: list[tuple[dict, pd.Series]]) -> str:
    lines = []
    for cell, times in series:
        for warm_up in WARM_UPS:
            mean, std = after(times, warm_up)
            line = {"warm-up steps": str(warm_up), "step (ms, mean ± std)": spread(mean, std)}
            lines.append({**cell, **line, "std / mean": significant(std / mean)})
    return _table(lines, f"Table E2: the {TIMED} train steps after so many warm-up steps")


def _steps(series: list[tuple[dict, pd.Series]]) -> str:
    lines = [
        {**cell, **{f"step {int(n)}": significant(ms) for n, ms in times.items()}}
        for cell, times in series
    ]
    return _table(lines, "Table E2, second part: every step of a new process (ms)")


def _first(frame: pd.DataFrame) -> str:
    """The first step beside the median of the others, by part, and the memory it reserved."""
    first = frame[frame["step"] == 1].set_index(CELL)
    later = frame[frame["step"] > 1].groupby(CELL, sort=False)[[f"{p}_ms" for p in PARTS]].median()
    lines = []
    for key, row in zip(first.index, first.to_dict("records"), strict=True):
        cell, rest = _cell(key), later.loc[key]
        for part in PARTS:
            words = f"{significant(row[f'{part}_ms'])} / {significant(rest[f'{part}_ms'])}"
            cell[f"{_part_words(part)}, first / later (ms)"] = words
        cell["reserved in the first step (MiB)"] = significant(row["reserved_mib"])
        lines.append(cell)
    return _table(
        lines, "Table E2, third part: the first step by part, beside the median later one"
    )


def _part_words(part: str) -> str:
    return part if part == "optimizer" else phase_words(part)


def _table(lines: list[dict], caption: str) -> str:
    table = pd.DataFrame(lines)
    constant, _ = shared_axes(table, ["context_length", "batch"])
    kept = [c for c in table.columns if c not in ("context_length", "batch") or _varies(table, c)]
    return markdown(table[kept].rename(columns=HEADERS), f"{caption}{constant}", left=["numerics"])


def _varies(table: pd.DataFrame, column: str) -> bool:
    return table[column].nunique() > 1


def _first_values(evidence: MachineEvidence) -> dict:
    ratios = {}
    for cell, times in _series(evidence):
        if {1, 2} <= set(times.index):
            words = f"{cell['size']}, context {cell['context_length']:g}, {cell['dtype']}"
            ratios[words] = times[1] / times[2]
    if not ratios:
        raise NotMeasured("no cell has a second step")
    found = pd.Series(ratios)
    return {"lowest": found.min(), "highest": found.max(), "most": found.idxmax()}


def _part_values(evidence: MachineEvidence) -> dict:
    rows = rows_of(evidence, STEM)
    first = rows[rows["step"] == 1][[f"{part}_ms" for part in PARTS]]
    later = rows[rows["step"] > 1].groupby(CELL)[[f"{part}_ms" for part in PARTS]].median()
    if first.empty or len(first) != len(later):
        raise NotMeasured("not every cell has its first step and later ones")
    excess = first.sum() - later.sum()
    share = excess / excess.sum()
    leader = share.idxmax().removesuffix("_ms")
    return {"part": _part_words(leader), "share": share.max(), "cells": len(first)}


def _spread_values(evidence: MachineEvidence) -> dict:
    series = [times for _, times in _series(evidence)]

    def median_ratio(warm_up: int) -> float:
        timed = [after(times, warm_up) for times in series]
        return float(pd.Series([std / mean for mean, std in timed]).median())

    medians = (median_ratio(warm_up) for warm_up in WARM_UPS)
    return dict(zip(("zero", "one", "two", "five"), medians, strict=True))


def _spreads(evidence: MachineEvidence) -> dict:
    return evidence.once((STEM, "spreads"), lambda: _spread_values(evidence))


def _size_values(evidence: MachineEvidence) -> dict:
    spreads = {}
    for cell, times in _series(evidence):
        mean, std = after(times, 0)
        spreads.setdefault(cell["size"], []).append(std / mean)
    if len(spreads) < 2:
        raise NotMeasured("a single size was started cold")
    medians = {size: float(pd.Series(each).median()) for size, each in spreads.items()}
    sizes = [(size, medians[size]) for size in in_order("size", list(medians))]
    return {
        "sizes": sizes,
        "falls": all(a > b for (_, a), (_, b) in pairwise(sizes)),
        "timed": TIMED,
    }


CLAIMS = (
    Claim(
        name="first_step",
        text="The first step of a process takes {{ lowest | ratio }} to {{ highest | ratio }} as"
        " long as the second (the most: {{ most }}).",
        values=_first_values,
        holds=lambda v: v["lowest"] > 1,
        about="what the first step costs",
        instead="Not everywhere: the least is {{ lowest | ratio }}.",
        summary=True,
    ),
    Claim(
        name="first_part",
        text="Most of what the first step costs beyond the later ones falls into its {{ part }}:"
        " {{ share | percent }} over {{ cells }} cells.",
        values=_part_values,
        holds=lambda v: 0.5 < v["share"] <= 1,
        about="where the first step's cost falls",
        instead="No part has more than half; the largest is the {{ part }}.",
    ),
    Claim(
        name="spread",
        text="Warm-up steadies the measurement: in the median over cells std / mean is"
        " {{ zero | sig }} without it, {{ one | sig }} after one step, {{ two | sig }} after two"
        " and {{ five | sig }} after five.",
        values=_spreads,
        holds=lambda v: v["zero"] > v["one"] >= v["five"],
        about="what warm-up does to the spread",
        instead="It does not fall with every value.",
    ),
    Claim(
        name="one_is_enough",
        text="One step of warm-up is not enough where the second still differs: after five steps"
        " std / mean is {{ v_ratio | ratio }} that after one.",
        values=lambda e: {"v_ratio": (v := _spreads(e))["five"] / v["one"]},
        holds=lambda v: v["v_ratio"] < 1,
        about="whether one step of warm-up is enough",
        instead="One step is enough here.",
    ),
    Claim(
        name="small_models_suffer_most",
        text="The smaller the model, the more a cold start distorts: without warm-up std / mean of"
        " the first {{ timed }} steps is {% for size, spread in sizes %}{{ spread | sig }} at"
        " {{ size }}{{ ', ' if not loop.last }}{% endfor %} (middle of the numerics).",
        values=_size_values,
        holds=lambda v: v["falls"],
        about="what a cold start does to the spread, by size",
        instead="It does not fall with every size.",
    ),
)
