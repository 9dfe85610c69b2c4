"""F3: rates on a grid that fills the device, as TFLOP/s and as shares of the matmul ceiling."""

from __future__ import annotations

import pandas as pd

from lmperf.reporting import gates
from lmperf.reporting.ceilings import achieved_tflops, matmul_ceiling, matmul_share
from lmperf.reporting.claims import Claim, NotMeasured, frame_of
from lmperf.reporting.evidence import MachineEvidence, in_order, in_reading_order
from lmperf.reporting.numbers import (
    EMPTY,
    absent,
    dtype_words,
    implementation_words,
    percent,
    phase_words,
    significant,
)
from lmperf.reporting.sections.flash_attention.kinds import filled, numerics_words
from lmperf.reporting.tables import joined, markdown, shared_axes, status_words

STEM = "flash_attention"
KERNEL = "triton"
CELL = ["seq_len", "d_head", "causal", "batch", "heads"]
HALF = ("bfloat16", "float16")
HALF_PRODUCTS = 3


def filled_tables(evidence: MachineEvidence, frame: pd.DataFrame) -> str:
    """One table per dtype and phase, one column an implementation; empty without such cells."""
    frame = in_reading_order(frame[filled(frame)], first=["d_head", "causal", "seq_len"])
    made = [
        _table(evidence, frame[(frame["dtype"] == dtype) & (frame["phase"] == phase)])
        for dtype in in_order("dtype", frame["dtype"])
        for phase in in_order("phase", frame["phase"])
    ]
    return "\n\n".join(made)


def _table(evidence: MachineEvidence, frame: pd.DataFrame) -> str:
    constant, rows = shared_axes(frame, CELL)
    dtype, phase = frame["dtype"].iloc[0], frame["phase"].iloc[0]
    cells = _rates(evidence, frame)
    table = frame[rows].drop_duplicates()
    for name in in_order("implementation", frame["implementation"]):
        own = frame[frame["implementation"] == name]
        column = own[rows].assign(**{implementation_words(name): cells.loc[own.index]})
        table = joined(table, column.drop_duplicates(rows, keep="last"), rows)
    ceiling = matmul_ceiling(evidence, dtype)
    words = dtype_words(dtype)
    share = f" (and % of the matmul ceiling in {words}, {significant(ceiling)})" if ceiling else ""
    both = numerics_words(dtype, KERNEL if KERNEL in set(frame["implementation"]) else "")
    caption = f"Table F3: {phase_words(phase)}, {both}, TFLOP/s{share}{constant}"
    return markdown(table.rename(columns={"seq_len": "sequence length"}), caption, left=["causal"])


def _rates(evidence: MachineEvidence, frame: pd.DataFrame) -> pd.Series:
    cells = status_words(frame).astype(object)
    rates, shares = achieved_tflops(frame), matmul_share(evidence, frame)
    for row in frame.index[gates.shown(frame)]:
        share = "" if absent(shares[row]) else f" ({percent(shares[row])})"
        cells[row] = EMPTY if absent(rates[row]) else significant(rates[row]) + share
    return cells


def _best(evidence: MachineEvidence, phase: str) -> dict:
    frame = frame_of(evidence, STEM)
    frame = frame[filled(frame) & gates.shown(frame) & (frame["implementation"] == KERNEL)]
    frame = frame[(frame["phase"] == phase) & frame["dtype"].isin(HALF)]
    share = matmul_share(evidence, frame).dropna()
    if share.empty:
        raise NotMeasured(f"no {phase} in half precision on a filled grid")
    best = frame.loc[share.idxmax()]
    return {
        "kernel": implementation_words(KERNEL),
        "rate": achieved_tflops(frame)[share.idxmax()],
        "share": share.max(),
        "least": share.min(),
        "cells": len(share),
        "length": best["seq_len"],
        "d_head": best["d_head"],
        "mask": "causal" if best["causal"] else "full",
        "numerics": dtype_words(best["dtype"]),
    }


def _float32(evidence: MachineEvidence) -> dict:
    frame = frame_of(evidence, STEM)
    frame = frame[gates.shown(frame) & (frame["implementation"] == KERNEL)]
    frame = frame[(frame["phase"] == "forward") & (frame["dtype"] == "float32")]
    share = matmul_share(evidence, frame).dropna()
    fast = matmul_ceiling(evidence, "float16")
    if share.empty or fast is None:
        raise NotMeasured(
            "not each of a forward in float32 and the ceilings of float32 and float16"
        )
    best = frame.loc[share.idxmax()]
    rate = achieved_tflops(frame)[share.idxmax()]
    return {
        "kernel": implementation_words(KERNEL),
        "rate": rate,
        "share": share.max(),
        "part": rate / fast,
        "length": best["seq_len"],
        "d_head": best["d_head"],
        "allowed": 1 / HALF_PRODUCTS,
    }


def _rate_claim(phase: str) -> Claim:
    return Claim(
        name=f"filled_{phase}",
        text=f"On a grid that fills the device the {phase} of {{{{ kernel }}}} reaches"
        " {{ share | percent }} of the matmul ceiling in the same numerics, {{ rate | sig }}"
        " TFLOP/s (length {{ length }}, d_head {{ d_head }}, {{ mask }}, {{ numerics }});"
        " {{ least | percent }} at the least of {{ cells }} cells.",
        values=lambda evidence: _best(evidence, phase),
        holds=lambda v: v["share"] <= 1,
        about=f"the rate of the {phase} on a grid that fills the device",
        instead="Nothing can be above a ceiling: the ceiling or the count of FLOPs is wrong.",
        summary=True,
    )


CLAIMS = (
    _rate_claim("forward"),
    _rate_claim("backward"),
    Claim(
        name="float32_in_parts",
        text="In float32 {{ kernel }} reaches {{ rate | sig }} TFLOP/s in the forward (length"
        " {{ length }}, d_head {{ d_head }}), {{ share | percent }} of the IEEE matmul ceiling: it"
        " multiplies three products of float16 halves instead of one. That is"
        " {{ part | percent }} of the float16 ceiling, of which the halves leave"
        " {{ allowed | percent }} at most.",
        values=_float32,
        holds=lambda v: v["part"] <= v["allowed"],
        about="the rate of the kernel in float32",
        instead="No product in parts can be so fast: the count of FLOPs is wrong.",
    ),
)
