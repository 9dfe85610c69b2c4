"""What the evidence says of compiling: where it pays, what it costs, and when it is paid back."""

from __future__ import annotations

import itertools

import pandas as pd

from lmperf.reporting.claims import Claim, NotMeasured, frame_of, rows_of
from lmperf.reporting.evidence import MachineEvidence, in_order
from lmperf.reporting.numbers import dtype_words, ratio
from lmperf.reporting.scaling import start
from lmperf.reporting.sections.end_to_end.variants import CELL, STEM, Variant, timed
from lmperf.reporting.speedup import NO_DIFFERENCE

BLOCKS, WHOLE = Variant("compiled_blocks", "float32"), Variant("compiled", "float32")
TF32 = (Variant("compiled", "tf32"), Variant("compiled_blocks", "tf32"))
STEPS = 1000
LAST = "{% if last %}, of which the last where it is not faster is {{ last }}{% endif %}"


def started(rows: pd.DataFrame) -> dict:
    """Where something starts to pay, in words for a claim; raises NotMeasured without rows."""
    rows = rows.dropna(subset=["flops"])
    if rows.empty:
        raise NotMeasured("no two train steps that were timed in turn")
    found = start(rows)
    first = found.first if found.first is not None else rows.loc[rows["flops"].idxmax()]
    beyond = rows[rows["flops"] >= first["flops"]]
    return {
        "pays": found.first is not None,
        "size": first["size"],
        "context": first["context_length"],
        "work": first["flops"] / 1e12,
        "lowest": beyond["ratio"].min(),
        "highest": beyond["ratio"].max(),
        "ratio": first["ratio"],
        "last": None if found.last is None else _last(found.last),
        "after": found.after,
        "before": found.before,
        "faster_before": found.faster_before,
        "cells": len(rows),
    }


def _last(row: pd.Series) -> str:
    verdict = row["verdict"] if row["verdict"] == NO_DIFFERENCE else ratio(row["ratio"])
    return f"size {row['size']}, context {row['context_length']:g} ({verdict})"


def _float32(evidence: MachineEvidence, variant: Variant, phase: str = "train_step"):
    frame_of(evidence, STEM)
    rows = timed(evidence, variant, phase=phase)
    if rows.empty:
        raise NotMeasured(f"no {phase.replace('_', ' ')} of {variant.words} timed with eager")
    return rows


def _starts(evidence: MachineEvidence) -> dict:
    return started(_float32(evidence, BLOCKS))


def _by_size(evidence: MachineEvidence) -> dict:
    rows = _float32(evidence, BLOCKS)
    middle = rows.groupby("size")["ratio"].median()
    sizes = in_order("size", rows["size"])
    if len(sizes) < 2:
        raise NotMeasured("a single size was compiled by block")
    return {"sizes": [(size, middle[size]) for size in sizes], "words": BLOCKS.words}


def _tf32(evidence: MachineEvidence) -> dict:
    frame_of(evidence, STEM)
    rows = pd.concat([timed(evidence, variant) for variant in TF32])
    if rows.empty:
        raise NotMeasured("no compiled train step in TF32 that was timed with eager float32")
    own = rows.sort_values("flops", kind="stable")
    if own["flops"].nunique() < 2:
        raise NotMeasured("a single cell of the two")
    return {
        "lowest": rows["ratio"].min(),
        "highest": rows["ratio"].max(),
        "cells": len(rows),
        "small": own.iloc[0]["size"],
        "large": own.iloc[-1]["size"],
        "small_ratio": own.iloc[0]["ratio"],
        "large_ratio": own.iloc[-1]["ratio"],
        "candidate": dtype_words("tf32"),
        "base": dtype_words("float32"),
    }


def _regional(evidence: MachineEvidence) -> dict:
    frame = rows_of(evidence, STEM, phase="train_step").dropna(subset=["compile_s"])
    keys = [*CELL, "dtype"]
    table = frame.pivot_table(["compile_s", "median_ms"], keys, "implementation", aggfunc="last")
    if not {"compiled", "compiled_blocks"} <= set(frame["implementation"]):
        raise NotMeasured("no cell was compiled both whole and by block")
    seconds, ms = table["compile_s"], table["median_ms"]
    both = ms[["compiled", "compiled_blocks"]].dropna().index
    if both.empty:
        raise NotMeasured("no cell was compiled both whole and by block")
    cost = (seconds["compiled"] / seconds["compiled_blocks"])[both]
    speed = (ms["compiled_blocks"] / ms["compiled"])[both]
    return {
        "cells": len(both),
        "whole": seconds.loc[both, "compiled"].max(),
        "blocks": seconds.loc[both, "compiled_blocks"].max(),
        "least": cost.min(),
        "most": cost.max(),
        "slowest": speed.max(),
        "fastest": speed.min(),
    }


def _paid_back(evidence: MachineEvidence) -> dict:
    rows = _float32(evidence, BLOCKS).dropna(subset=["compile_s"])
    saved = rows["base_ms"] - rows["median_ms"]
    steps = (1e3 * rows["compile_s"] / saved)[saved > 0]
    if steps.empty:
        raise NotMeasured("no train step that compiling makes shorter")
    latest = rows.loc[steps.idxmax()]
    return {
        "soonest": steps.min(),
        "latest": steps.max(),
        "size": latest["size"],
        "context": latest["context_length"],
        "cells": len(steps),
        "all": len(rows),
        "allowed": STEPS,
        "within": int((steps <= STEPS).sum()),
    }


CLAIMS = (
    Claim(
        name="compiling_starts",
        text="In order of work, compiling by block (train step, float32 IEEE) pays from size"
        " {{ size }}, context {{ context }} on ({{ work | sig }} TFLOP a step): it is faster in all"
        " {{ after }} cells from there, {{ lowest | ratio }} to {{ highest | ratio }}, and in"
        " {{ faster_before }} of the {{ before }} smaller ones" + LAST + ".",
        values=_starts,
        holds=lambda v: v["pays"],
        about="where compiling by block starts to pay",
        instead="It is not faster even in the cell with the most work.",
    ),
    Claim(
        name="compiling_by_size",
        text="Compiling helps a small model more than a large one: the middle speed-up of a train"
        " step ({{ words }}) is {% for size, ratio in sizes %}{{ ratio | ratio }} at {{ size }}"
        "{{ ', ' if not loop.last }}{% endfor %}.",
        values=_by_size,
        holds=lambda v: all(a[1] > b[1] for a, b in itertools.pairwise(v["sizes"])),
        about="the speed-up of compiling by size",
        instead="It does not fall from each size to the next.",
        summary=True,
    ),
    Claim(
        name="compiled_tf32",
        text="Compiled and in {{ candidate }} vs eager in {{ base }}, a train step has"
        " {{ lowest | ratio }} to {{ highest | ratio }} of the speed ({{ cells }} cells), and the"
        " gain grows from {{ small_ratio | ratio }} at {{ small }} to {{ large_ratio | ratio }} at"
        " {{ large }}.",
        values=_tf32,
        holds=lambda v: v["lowest"] > 1 and v["large_ratio"] > v["small_ratio"],
        about="compiled in TF32 vs eager in float32 IEEE",
        instead="It does not gain in every cell, or not more where there is more work.",
    ),
    Claim(
        name="regional",
        text="Compiling the whole model takes {{ least | sig }} to {{ most | sig }} times as long"
        " as compiling one block that all layers reuse (at most {{ whole | sig }} s and"
        " {{ blocks | sig }} s of first calls), and the step by block then takes"
        " {{ fastest | ratio }} to {{ slowest | ratio }} of the time ({{ cells }} cells).",
        values=_regional,
        holds=lambda v: v["least"] > 1,
        about="compiling a whole model beside compiling by block",
        instead="In at least one cell compiling by block takes longer.",
        summary=True,
    ),
    Claim(
        name="paid_back",
        text="The first calls of a model compiled by block (float32 IEEE) are paid back within"
        " {{ allowed }} train steps in every cell: {{ soonest | rounded }} to"
        " {{ latest | rounded }} steps in {{ cells }} of {{ all }} cells, the latest at size"
        " {{ size }}, context {{ context }}.",
        values=_paid_back,
        holds=lambda v: v["cells"] == v["all"] and v["latest"] <= v["allowed"],
        about="when compiling is paid back",
        instead="Within so many steps it is in {{ within }}.",
    ),
)
