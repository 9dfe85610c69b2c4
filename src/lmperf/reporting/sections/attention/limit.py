"""A3: the smallest attention that runs out of memory; A4: memory of attention, step by step."""

from __future__ import annotations

import pandas as pd

from lmperf.reporting import gates
from lmperf.reporting.claims import Claim, NotMeasured, rows_of
from lmperf.reporting.evidence import MachineEvidence, in_reading_order
from lmperf.reporting.numbers import dtype_words, listed, significant
from lmperf.reporting.tables import markdown

STEM = "attention_limit"
CELL = ["dtype", "d_head", "seq_len", "batch", "causal"]
TENSORS = ("inputs", "scores", "scaled", "softmax", "output")
TOLERANCE = 0.05
# A gradient for each of the four inputs but that of the output, which is one itself.
GRADIENTS_PER_INPUT = 3 / 4


def limit_table(evidence: MachineEvidence) -> str:
    """The closed form, tensor by tensor, beside what the allocator said; empty without evidence."""
    frame = evidence.frame(STEM)
    if frame is None:
        return ""
    frame = in_reading_order(frame)
    sizes = {f"{name} (MiB)": _mebibytes(frame, f"{name}_mib") for name in TENSORS}
    table = pd.DataFrame(
        {
            "numerics": frame["dtype"].map(dtype_words),
            "first length that cannot fit": frame["seq_len"].map("{:.0f}".format),
            "free before (MiB)": _mebibytes(frame, "free_before_mib"),
            **sizes,
            "outcome": frame["outcome"],
            "asked for, closed form (MiB)": _mebibytes(frame, "predicted_requested_mib"),
            "asked for (MiB)": _mebibytes(frame, "requested_mib"),
            "free then (MiB)": _mebibytes(frame, "free_mib"),
        }
    )
    caption = f"Table A3: the first power of two that runs out of memory{_words(frame)}"
    return markdown(table, caption, left=["numerics", "outcome"])


def _mebibytes(frame: pd.DataFrame, column: str) -> list[str]:
    return [significant(v, 4) for v in frame.get(column, [float("nan")] * len(frame))]


def _words(frame: pd.DataFrame) -> str:
    row = frame.iloc[0]
    return f", batch {row['batch']:.0f}, d_head {row['d_head']:.0f}, no mask, forward"


def steps_table(evidence: MachineEvidence) -> str:
    """MiB of the inputs, after either direction and at the peak of each, and the differences."""
    frame = in_reading_order(evidence.frame("attention"), first=["dtype", "d_head", "seq_len"])
    frame = frame[(frame["implementation"] == "eager") & gates.shown(frame)]
    frame = frame[frame["saved_mib"].notna()].drop_duplicates([*CELL, "phase"], keep="last")
    forward, backward = (
        frame[frame["phase"] == phase].set_index(CELL) for phase in ("forward", "backward")
    )
    backward = backward.loc[backward.index.isin(forward.index)]
    if backward.empty:
        return ""
    forward = forward.loc[backward.index]
    inputs, held = backward["resident_mib"], backward["saved_mib"]
    left = inputs * (1 + GRADIENTS_PER_INPUT)
    cells = backward.index.to_frame(index=False)
    sizes = {
        "inputs (MiB)": inputs,
        "peak of the forward (MiB)": forward["peak_mib"],
        "after the forward (MiB)": held,
        "difference (MiB)": held - inputs,
        "peak of the backward (MiB)": backward["peak_mib"],
        "after the backward, closed form (MiB)": left,
        "difference to after the forward (MiB)": left - held,
    }
    table = pd.DataFrame(
        {
            "numerics": cells["dtype"].map(dtype_words),
            "d_head": cells["d_head"].map("{:.0f}".format),
            "sequence length": cells["seq_len"].map("{:.0f}".format),
            **{name: [significant(v) for v in column] for name, column in sizes.items()},
        }
    )
    batch = listed(f"{n:g}" for n in sorted(cells["batch"].unique()))
    mask = listed("causal" if causal else "no mask" for causal in sorted(cells["causal"].unique()))
    caption = f"Table A4: memory of plain attention, batch {batch}, {mask}"
    return markdown(table, caption, left=["numerics"])


def _limit_values(evidence: MachineEvidence) -> dict:
    rows = rows_of(evidence, STEM)
    rows = rows[~rows["outcome"].fillna("").str.startswith("not run")]
    if rows.empty:
        raise NotMeasured("the predicted cell was not run on this machine")
    asked = rows.get("requested_mib", pd.Series(float("nan"), rows.index))
    off = (rows["predicted_requested_mib"] / asked - 1).abs()
    if off.isna().all():
        raise NotMeasured("the allocator did not say what was asked of it")
    first = rows.loc[rows["seq_len"].idxmin()]
    return {
        "cells": len(rows),
        "off": off.max(),
        "allowed": TOLERANCE,
        "length": first["seq_len"],
        "numerics": dtype_words(first["dtype"]),
        "asked": asked.loc[first.name] / 1024,
        "out": int(((rows["outcome"] == "out of memory") & asked.notna()).sum()),
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
