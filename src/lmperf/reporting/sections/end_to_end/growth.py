"""What the evidence says of spread, of growth with context and size, and of what fits."""

from __future__ import annotations

import pandas as pd

from lmperf.reporting import gates
from lmperf.reporting.claims import Claim, NotMeasured, frame_of, rows_of
from lmperf.reporting.evidence import MachineEvidence, in_order
from lmperf.reporting.numbers import dtype_words, gib, implementation_words
from lmperf.reporting.scaling import POINTS, exponents
from lmperf.reporting.sections.end_to_end.variants import BASE, STEM

SPREAD = 0.01
MIB = 2**20


def _steps(evidence: MachineEvidence) -> pd.DataFrame:
    return rows_of(
        evidence, STEM, implementation=BASE.implementation, dtype=BASE.dtype, phase="train_step"
    )


def _variability(evidence: MachineEvidence) -> dict:
    rows = rows_of(evidence, STEM, implementation=BASE.implementation, dtype=BASE.dtype)
    spread = (rows["std_ms"] / rows["mean_ms"]).dropna()
    if spread.empty:
        raise NotMeasured("no row has a standard deviation")
    worst = rows.loc[spread.idxmax()]
    return {
        "allowed": SPREAD,
        "within": int((spread <= SPREAD).sum()),
        "rows": len(spread),
        "middle": spread.median(),
        "worst": spread.max(),
        "size": worst["size"],
        "context": worst["context_length"],
        "phase": worst["phase"],
    }


def _context_exponent(evidence: MachineEvidence) -> dict:
    rows = _steps(evidence)
    contexts = sorted(rows["context_length"].unique())[-POINTS:]
    found = exponents(rows, "context_length", "median_ms", ["size", "batch"])
    if found.empty:
        raise NotMeasured(f"no size has {POINTS} contexts")
    by_size = found.groupby("size").last()
    return {
        "sizes": [(size, by_size[size]) for size in in_order("size", list(by_size.index))],
        "lowest": found.min(),
        "highest": found.max(),
        "from_context": contexts[0],
        "to_context": contexts[-1],
    }


def _size_exponent(evidence: MachineEvidence) -> dict:
    rows = _steps(evidence).dropna(subset=["parameters"])
    found = exponents(rows, "parameters", "median_ms", ["context_length", "batch"])
    if found.empty:
        raise NotMeasured(f"no context has {POINTS} sizes")
    return {
        "lowest": found.min(),
        "highest": found.max(),
        "middle": found.median(),
        "fits": len(found),
        "points": POINTS,
    }


def _doublings(evidence: MachineEvidence) -> dict:
    rows = _steps(evidence)
    wide = rows.pivot_table(index=["size", "batch"], columns="context_length", values="median_ms")
    contexts = sorted(wide.columns)
    doubled = [(n, 2 * n) for n in contexts if 2 * n in contexts]
    factors = pd.DataFrame({long: wide[long] / wide[short] for short, long in doubled})
    factors = factors.dropna()
    rises = factors.diff(axis=1).stack().dropna()
    if rises.empty:
        raise NotMeasured("no size has three contexts, each twice the one before")
    middle = factors.median()
    return {
        "factors": [(short, long, middle[long]) for short, long in doubled],
        "rises": int((rises > 0).sum()),
        "steps": len(rises),
        "sizes": in_order("size", list(factors.index.get_level_values("size"))),
    }


def _memory_suffices(evidence: MachineEvidence) -> dict:
    frame = frame_of(evidence, STEM)
    # What was withheld for another reason than memory says nothing of what fits.
    tried = frame["status"].isin(["oom", "failed_check"]) | gates.shown(frame)
    frame = frame[(frame["phase"] == "train_step") & tried]
    full = frame[frame["status"] == "oom"]
    peaks = frame[frame["peak_mib"].notna() & gates.shown(frame)]
    if peaks.empty:
        raise NotMeasured("no train step has its peak")
    worst = peaks.loc[peaks["peak_mib"].idxmax()]
    first = full.sort_values(["context_length", "batch"], kind="stable").head(1)
    return {
        "peak": gib(worst["peak_mib"] * MIB),
        "size": worst["size"],
        "context": worst["context_length"],
        "words": f"{implementation_words(worst['implementation'])}, {dtype_words(worst['dtype'])}",
        "cells": len(frame),
        "full": len(full),
        "first": [f"{r['size']}, context {r['context_length']:g}" for _, r in first.iterrows()],
    }


CLAIMS = (
    Claim(
        name="variability",
        text="Repetitions of one call hardly vary: the standard deviation is at most"
        " {{ allowed | percent }} of the mean in {{ within }} of {{ rows }} rows (eager, float32"
        " IEEE), {{ middle | percent }} in the middle; the most is {{ worst | percent }} (size"
        " {{ size }}, context {{ context }}, {{ phase | phase }}).",
        values=_variability,
        holds=lambda v: 2 * v["within"] > v["rows"],
        about="the spread of repetitions",
        instead="That is not even half of them.",
    ),
    Claim(
        name="context_exponent",
        text="A train step (eager, float32 IEEE) grows faster than in proportion to the context:"
        " exponent {% for size, exponent in sizes %}{{ exponent | sig }} at {{ size }}"
        "{{ ', ' if not loop.last }}{% endfor %} (contexts {{ from_context }} to"
        " {{ to_context }}).",
        values=_context_exponent,
        holds=lambda v: v["lowest"] > 1,
        about="how the train step grows with the context",
        instead="At {{ lowest | sig }} to {{ highest | sig }} it does not for every size: where a"
        " step is short, what does not depend on the context still weighs.",
    ),
    Claim(
        name="context_doublings",
        text="Each doubling of the context costs a train step (eager, float32 IEEE) more than the"
        " one before it, at {{ sizes | listed }}: in the middle"
        " {% for short, long, factor in factors %}{{ factor | ratio }} from {{ short }} to"
        " {{ long }}{{ ', ' if not loop.last }}{% endfor %}.",
        values=_doublings,
        holds=lambda v: v["rises"] == v["steps"],
        about="what doubling the context costs a train step",
        instead="It costs more in {{ rises }} of {{ steps }} comparisons.",
    ),
    Claim(
        name="size_exponent",
        text="With the number of parameters a train step (eager, float32 IEEE) grows about in"
        " proportion: exponent {{ middle | sig }} ({{ lowest | sig }} to {{ highest | sig }} over"
        " {{ fits }} contexts, the largest {{ points }} sizes of each).",
        values=_size_exponent,
        holds=lambda v: 0.8 <= v["middle"] <= 1.2,
        about="how the train step grows with the parameters",
        instead="That is not near one.",
    ),
    Claim(
        name="memory_suffices",
        text="All {{ cells }} train steps tried fit the memory of this machine; the largest, size"
        " {{ size }}, context {{ context }} ({{ words }}), peaks at {{ peak }}.",
        values=_memory_suffices,
        holds=lambda v: v["full"] == 0,
        about="which train steps fit",
        instead="{{ full }} of {{ cells }} ran out of memory, first of all {{ first | listed }}.",
    ),
)
