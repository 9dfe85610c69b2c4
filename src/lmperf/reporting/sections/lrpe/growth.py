"""How md_lrpe_cosine depends on positions, axes and extra tokens, and what PyTorch takes."""

from __future__ import annotations

import pandas as pd

from lmperf.reporting.claims import Claim, NotMeasured, rows_of
from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.numbers import implementation_words, phase_words
from lmperf.reporting.scaling import POINTS, exponents
from lmperf.reporting.sections.lrpe.claims import LARGE_BYTES
from lmperf.reporting.sections.lrpe.shapes import COPY, KERNELS, STEM, shaped
from lmperf.reporting.speedup import speedups

KERNEL, CACHED = KERNELS
LINEAR = (0.9, 1.1)
SAME_COST = 0.05
ROUNDING = 0.01
CELL = ["phase", "extra_tokens", "shape"]


def _shaped(evidence: MachineEvidence) -> pd.DataFrame:
    return evidence.once((STEM, "shaped"), lambda: shaped(rows_of(evidence, STEM)))


def _ours(evidence: MachineEvidence, name: str = KERNEL) -> pd.DataFrame:
    rows = _shaped(evidence)
    rows = rows[rows["implementation"] == name]
    if rows.empty:
        raise NotMeasured(f"no row of {implementation_words(name)}")
    return rows


def _linear(evidence: MachineEvidence) -> dict:
    rows = _ours(evidence)
    rows = rows[rows["axes"] == 1]
    groups = ["phase", "extra_tokens"]
    time = exponents(rows, "positions", "median_ms", groups)
    memory = exponents(rows.dropna(subset=["peak_mib"]), "positions", "peak_mib", groups)
    if time.empty or memory.empty:
        raise NotMeasured(f"no time and peak at {POINTS} numbers of positions")
    positions = sorted(rows["positions"].unique())[-POINTS:]
    return {
        "kernel": implementation_words(KERNEL),
        "time": time.median(),
        "time_low": time.min(),
        "time_high": time.max(),
        "memory": memory.median(),
        "memory_low": memory.min(),
        "memory_high": memory.max(),
        "fits": len(time),
        "least": positions[0],
        "most": positions[-1],
        "all": [*time, *memory],
    }


def _over_axes(rows: pd.DataFrame) -> pd.DataFrame:
    """``more``: longest over shortest time of shapes with as many positions, less one."""
    rows = rows[rows["bytes"] >= LARGE_BYTES]
    grouped = rows.groupby(["phase", "extra_tokens", "positions"])
    found = grouped.agg(
        low=("median_ms", "min"),
        high=("median_ms", "max"),
        axes=("axes", "nunique"),
        bytes=("bytes", "min"),
    )
    found = found[found["axes"] > 1]
    return found.assign(more=found["high"] / found["low"] - 1)


def _axes(evidence: MachineEvidence) -> dict:
    ours = _over_axes(_ours(evidence))
    if ours.empty:
        raise NotMeasured("no two shapes with as many positions along different axes")
    rows = _shaped(evidence)
    theirs = _over_axes(rows[rows["implementation"] == "compiled"])
    return {
        "kernel": implementation_words(KERNEL),
        "most": ours["more"].max(),
        "cells": len(ours),
        "bytes_mb": ours["bytes"].min() / 1e6,
        "theirs": None if theirs.empty else theirs["more"].max(),
        "allowed": SAME_COST,
    }


def _extra(evidence: MachineEvidence) -> dict:
    rows = _ours(evidence)
    rows = rows[rows["bytes"] >= LARGE_BYTES]
    wide = rows.pivot_table(index=["phase", "shape"], columns="extra_tokens", values="median_ms")
    if 0 not in wide or len(wide.columns) < 2:
        raise NotMeasured("no shape with and without extra tokens")
    extra = max(wide.columns)
    more = (wide[extra] / wide[0] - 1).dropna()
    if not {"forward", "backward"} <= set(more.index.get_level_values("phase")):
        raise NotMeasured("not both directions with and without extra tokens")
    return {
        "kernel": implementation_words(KERNEL),
        "extra": extra,
        **{f"{phase}_low": more[phase].min() for phase in ("forward", "backward")},
        **{f"{phase}_high": more[phase].max() for phase in ("forward", "backward")},
        "shapes": more["forward"].size,
        "most": more.abs().max(),
        "allowed": SAME_COST,
    }


def _over_eager(evidence: MachineEvidence) -> dict:
    rows = rows_of(evidence, STEM)
    rows = rows[rows["implementation"].isin([KERNEL, "eager"]) & (rows["bytes"] >= LARGE_BYTES)]
    ratio = speedups(rows, "implementation", "eager")["ratio"]
    by_phase = ratio.groupby(rows["phase"])
    low, high = by_phase.min(), by_phase.max()
    if not {"forward", "backward"} <= set(low.index):
        raise NotMeasured("not both directions of both that were timed in turn")
    return {
        "kernel": implementation_words(KERNEL),
        "eager": implementation_words("eager"),
        **{f"{phase}_low": low[phase] for phase in ("forward", "backward")},
        **{f"{phase}_high": high[phase] for phase in ("forward", "backward")},
    }


def _least_memory(evidence: MachineEvidence) -> dict:
    rows = _shaped(evidence)
    rows = rows[(rows["implementation"] != COPY) & rows["peak_mib"].notna()]
    wide = rows.pivot_table("peak_mib", CELL, "implementation", aggfunc="last")
    if not {KERNEL, CACHED} < set(wide.columns):
        raise NotMeasured("no peaks of both kernels and another implementation")
    wide = wide.dropna()
    if wide.empty:
        raise NotMeasured("no cell has the peaks of all")
    over = wide[KERNEL] / wide.drop(columns=KERNEL).min(axis=1) - 1
    cached = wide[CACHED] / wide[KERNEL] - 1
    phase, extra, shape = over.idxmax()
    return {
        "kernel": implementation_words(KERNEL),
        "cached": implementation_words(CACHED),
        "cells": len(over),
        "least": int((over <= ROUNDING).sum()),
        "low": cached.min(),
        "high": cached.max(),
        "most": over.max(),
        "where": f"{phase_words(phase)}, shape {shape}, {extra:g} extra tokens",
    }


CLAIMS = (
    Claim(
        name="linear",
        text="Time and peak memory of {{ kernel }} grow in proportion to the number of positions:"
        " exponents {{ time | sig }} ({{ time_low | sig }} to {{ time_high | sig }}) and"
        " {{ memory | sig }} ({{ memory_low | sig }} to {{ memory_high | sig }}) over {{ fits }}"
        " fits each, along one axis with {{ least }} to {{ most }} positions.",
        values=_linear,
        holds=lambda v: LINEAR[0] <= min(v["all"]) and max(v["all"]) <= LINEAR[1],
        about="how md_lrpe_cosine grows with the number of positions",
        instead="Not all of them are near one.",
    ),
    Claim(
        name="axes",
        text="Where {{ bytes_mb | sig }} MB and more have to move, the number of axes costs"
        " nothing: with as many positions, {{ kernel }} takes at most {{ most | percent }} longer"
        " over one shape than over another ({{ cells }} comparisons){% if theirs %}; the compiled"
        " version takes up to {{ theirs | percent }} longer{% endif %}.",
        values=_axes,
        holds=lambda v: v["most"] <= v["allowed"],
        about="the cost of further axes",
        instead="This report expects at most {{ allowed | percent }}.",
        summary=True,
    ),
    Claim(
        name="extra_tokens",
        text="Extra tokens cost next to nothing at large sizes: {{ extra }} of them change the time"
        " of {{ kernel }} by {{ forward_low | signed_percent }} to"
        " {{ forward_high | signed_percent }} in the forward and by"
        " {{ backward_low | signed_percent }} to {{ backward_high | signed_percent }} in the"
        " backward ({{ shapes }} shapes).",
        values=_extra,
        holds=lambda v: v["most"] <= v["allowed"],
        about="the cost of extra tokens",
        instead="This report expects a change of at most {{ allowed | percent }}.",
    ),
    Claim(
        name="over_eager",
        text="Against {{ eager }} {{ kernel }} has a speed-up of {{ forward_low | ratio }} to"
        " {{ forward_high | ratio }} in the forward and {{ backward_low | ratio }} to"
        " {{ backward_high | ratio }} in the backward at large sizes.",
        values=_over_eager,
        holds=lambda v: min(v["forward_low"], v["backward_low"]) > 1,
        about="md_lrpe_cosine against PyTorch as it is written",
        instead="It is not faster everywhere.",
    ),
    Claim(
        name="least_memory",
        text="{{ kernel }} peaks no higher than any other implementation in all {{ cells }} cells"
        " of either direction; {{ cached }} takes {{ low | percent }} to"
        " {{ high | percent }} more.",
        values=_least_memory,
        holds=lambda v: v["least"] == v["cells"],
        about="which implementation takes the least memory",
        instead="That is so in {{ least }}; furthest from it, {{ most | signed_percent }}, is"
        " {{ where }}.",
    ),
)
