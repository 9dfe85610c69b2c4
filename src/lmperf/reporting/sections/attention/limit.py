"""A3: the smallest attention that runs out of memory; A4: memory of attention, step by step."""

from __future__ import annotations

import pandas as pd

from lmperf.reporting import gates
from lmperf.reporting.claims import Claim, NotMeasured, rows_of
from lmperf.reporting.evidence import MachineEvidence, in_reading_order
from lmperf.reporting.numbers import dtype_words, significant
from lmperf.reporting.tables import markdown

STEM = "attention_limit"
CELL = ["dtype", "d_head", "seq_len", "batch", "causal"]
TENSORS = ("inputs", "scores", "scaled", "softmax", "output")
TOLERANCE = 0.05


def limit_table(evidence: MachineEvidence) -> str:
    """The closed form, tensor by tensor, beside what the allocator said; empty without evidence."""
    frame = evidence.frame(STEM)
    if frame is None:
        return ""
    lines = []
    for _, row in in_reading_order(frame).iterrows():
        sizes = {f"{name} (MiB)": significant(row[f"{name}_mib"], 4) for name in TENSORS}
        asked, left = row.get("requested_mib"), row.get("free_mib")
        lines.append(
            {
                "numerics": dtype_words(row["dtype"]),
                "first length that cannot fit": f"{row['seq_len']:.0f}",
                "free before (MiB)": significant(row["free_before_mib"], 4),
                **sizes,
                "outcome": row["outcome"],
                "asked for (MiB)": "" if pd.isna(asked) else significant(asked, 4),
                "free then (MiB)": "" if pd.isna(left) else significant(left, 4),
            }
        )
    caption = f"Table A3: the smallest plain attention that runs out of memory{_words(frame)}"
    return markdown(pd.DataFrame(lines), caption, left=["numerics", "outcome"])


def _words(frame: pd.DataFrame) -> str:
    row = frame.iloc[0]
    return f", batch {row['batch']:.0f}, d_head {row['d_head']:.0f}, forward"


def steps_table(evidence: MachineEvidence) -> str:
    """MiB of the inputs, after the forward and at the peak of each phase, and the differences."""
    frame = in_reading_order(evidence.frame("attention"), first=["dtype", "d_head", "seq_len"])
    frame = frame[(frame["implementation"] == "eager") & gates.shown(frame)]
    frame = frame[frame["saved_mib"].notna()]
    lines = []
    for _, rows in frame.groupby(CELL, sort=False):
        by_phase = rows.drop_duplicates("phase", keep="last").set_index("phase")
        if not {"forward", "backward"} <= set(by_phase.index):
            continue
        inputs = by_phase.loc["backward", "resident_mib"]
        held = by_phase.loc["backward", "saved_mib"]
        lines.append(
            {
                "numerics": dtype_words(rows["dtype"].iloc[0]),
                "d_head": f"{rows['d_head'].iloc[0]:.0f}",
                "sequence length": f"{rows['seq_len'].iloc[0]:.0f}",
                "inputs (MiB)": significant(inputs),
                "peak of the forward (MiB)": significant(by_phase.loc["forward", "peak_mib"]),
                "after the forward (MiB)": significant(held),
                "difference (MiB)": significant(held - inputs),
                "peak of the backward (MiB)": significant(by_phase.loc["backward", "peak_mib"]),
                "released by the backward (MiB)": significant(held - inputs),
            }
        )
    if not lines:
        return ""
    return markdown(pd.DataFrame(lines), "Table A4: memory of plain attention", left=["numerics"])


def _limit_values(evidence: MachineEvidence) -> dict:
    rows = rows_of(evidence, STEM)
    if "requested_mib" not in rows or rows["requested_mib"].isna().all():
        raise NotMeasured("the predicted cell was not run on this machine")
    rows = rows[rows["requested_mib"].notna()]
    off = (rows["predicted_requested_mib"] / rows["requested_mib"] - 1).abs()
    first = rows.loc[rows["seq_len"].idxmin()]
    return {
        "cells": len(rows),
        "off": off.max(),
        "allowed": TOLERANCE,
        "length": first["seq_len"],
        "numerics": dtype_words(first["dtype"]),
        "asked": first["requested_mib"] / 1024,
        "out": int((rows["outcome"] == "out of memory").sum()),
    }


CLAIMS = (
    Claim(
        name="limit",
        text="Plain attention runs out of memory where the closed form says so, at length"
        " {{ length }} in {{ numerics }}: what it asks the allocator for there, {{ asked | sig }}"
        " GiB, is predicted to within {{ off | percent }} ({{ cells }} cells).",
        values=_limit_values,
        holds=lambda v: v["out"] == v["cells"] and v["off"] <= v["allowed"],
        about="where attention runs out of memory",
        instead="It ran out in {{ out }} of {{ cells }} cells.",
        summary=True,
    ),
)
