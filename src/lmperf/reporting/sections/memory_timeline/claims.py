"""What memory over time says: who holds it, when it peaks, and what is not seen."""

from __future__ import annotations

import pandas as pd

from lmperf.reporting.claims import Claim, NotMeasured, rows_of
from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.numbers import dtype_words
from lmperf.reporting.sections.memory_timeline.figure import CELL, COLOURS, STEM
from lmperf.reporting.sections.memory_timeline.tables import settled

TOLERANCE = 0.05
EARLY = 0.05


def _rows(evidence: MachineEvidence, table: str, phase: str) -> pd.DataFrame:
    rows = rows_of(evidence, STEM, table=table, phase=phase)
    return settled(rows) if table == "category" else rows


def _dominant_values(evidence: MachineEvidence) -> dict:
    rows = _rows(evidence, "category", "train_step")
    wide = rows.pivot_table(index=CELL, columns="name", values="size_mib")
    if "activations" not in wide:
        raise NotMeasured("no activations")
    share = wide.div(wide.sum(axis=1), axis=0)
    leaders = share.idxmax(axis=1)
    return {
        "cells": len(share),
        "contexts": sorted(rows["context_length"].unique()),
        "leading": int((leaders == "activations").sum()),
        "least": share["activations"].min(),
        "most": share["activations"].max(),
    }


def _prediction_values(evidence: MachineEvidence) -> dict:
    found = []
    for phase in ("forward", "train_step"):
        try:
            rows = _rows(evidence, "category", phase)
        except NotMeasured:
            continue
        found.append(rows[rows["size_mib"] > 1])
    if not found:
        raise NotMeasured("no category of any phase")
    rows = pd.concat(found)
    off = (rows["predicted_mib"] / rows["size_mib"] - 1).abs().dropna()
    if off.empty:
        raise NotMeasured("no category has a prediction beside it")
    worst = rows.loc[off.idxmax()]
    where = f"{worst['name']}, {worst['size']}, {dtype_words(worst['dtype'])}"
    return {"rows": len(rows), "off": off.max(), "allowed": TOLERANCE, "where": where}


def _unseen_values(evidence: MachineEvidence) -> dict:
    rows = rows_of(evidence, STEM, table="stream")
    unseen = 1 - rows["recorded_mib"] / rows["peak_mib"]
    return {"least": unseen.min(), "most": unseen.max(), "allowed": 2 * TOLERANCE}


def _stream_values(evidence: MachineEvidence) -> dict:
    rows = rows_of(evidence, STEM, table="stream")
    row = rows.loc[rows["size_mib"].idxmax()]
    return {
        "size": row["size"],
        "context": row["context_length"],
        "closed": row["predicted_mib"],
        "measured": row["size_mib"],
    }


def _peak_values(evidence: MachineEvidence) -> dict:
    curve = rows_of(evidence, STEM, table="curve", phase="train_step")
    starts = rows_of(evidence, STEM, table="phase", phase="train_step")
    cell = ["size", "context_length", "batch", "dtype"]
    starts = starts.pivot_table(index=cell, columns="name", values="position")
    if not {"backward", "optimizer"} <= set(starts.columns):
        raise NotMeasured("where the backward begins and ends")
    level = curve[[f"{name}_mib" for name in COLOURS]].sum(axis=1)
    curve = curve.assign(level=level).sort_values("position", kind="stable")
    at = curve.loc[curve.groupby(cell)["level"].idxmax()].set_index(cell)["position"]
    begin, end = starts["backward"], starts["optimizer"]
    passed = ((at - begin) / (end - begin)).dropna()
    if passed.empty:
        raise NotMeasured("no train step with its curve and its phases")
    early = passed.between(0, EARLY)
    return {
        "cells": len(passed),
        "early": int(early.sum()),
        "latest": passed.max(),
        "first": passed.min(),
        "allowed": EARLY,
    }


def _largest_values(evidence: MachineEvidence) -> dict:
    rows = rows_of(evidence, STEM, table="block")
    top = rows[rows["size_mib"] == rows.groupby(CELL)["size_mib"].transform("max")]
    made = top["frame"].fillna("").str.split().str[-1].fillna("elsewhere")
    attention = made.str.contains("attention").groupby([top[name] for name in CELL]).any()
    elsewhere = ~pd.MultiIndex.from_frame(top[CELL]).isin(attention.index[attention])
    largest = top.sort_values(["size_mib", "tensor", "size"]).iloc[-1]
    return {
        "cells": len(attention),
        "inside": int(attention.sum()),
        "others": sorted({f"`{name}`" for name in made[elsewhere]}),
        "tensor": largest["tensor"],
        "mib": largest["size_mib"],
        "size": largest["size"],
    }


CLAIMS = (
    Claim(
        name="activations_lead",
        text="At the peak of a train step (eager, context {{ contexts | listed }}) activations hold"
        " more than any other category, in all {{ cells }} cells: {{ least | percent }} to"
        " {{ most | percent }} of what is alive.",
        values=_dominant_values,
        holds=lambda v: v["leading"] == v["cells"],
        about="what is alive at the peak of a train step",
        instead="They lead in {{ leading }} of {{ cells }}.",
        summary=True,
    ),
    Claim(
        name="categories_predicted",
        text="The closed form gives each category of more than a MiB at the peak, {{ rows }} in"
        " all, to within {{ off | percent }} (the worst: {{ where }}).",
        values=_prediction_values,
        holds=lambda v: v["off"] <= v["allowed"],
        about="the prediction by category",
        instead="This report expects {{ allowed | percent }}.",
    ),
    Claim(
        name="unseen",
        text="Tensors are nearly all of it: what the allocator counts beyond them, workspaces of"
        " the libraries and rounding, is {{ least | percent }} to {{ most | percent }} of its"
        " peak.",
        values=_unseen_values,
        holds=lambda v: v["most"] <= v["allowed"],
        about="memory that belongs to no tensor",
        instead="This report expects at most {{ allowed | percent }}.",
    ),
    Claim(
        name="residual_stream",
        text="One tensor of the residual stream of size {{ size }} at context {{ context }} takes"
        " {{ measured | sig }} MiB, as four bytes an element give.",
        values=_stream_values,
        holds=lambda v: v["measured"] == v["closed"],
        about="the size of the residual stream",
        instead="The closed form says {{ closed | sig }} MiB.",
    ),
    Claim(
        name="peak_early_in_backward",
        text="The memory of a train step peaks where the forward ends: in all {{ cells }} cells"
        " the backward is through no more than {{ latest | percent }} of its allocations and"
        " releases by then.",
        values=_peak_values,
        holds=lambda v: v["early"] == v["cells"],
        about="when the memory of a train step peaks",
        instead="This report expects the peak within the first {{ allowed | percent }} of the"
        " backward; it lies there in {{ early }} of {{ cells }}.",
    ),
    Claim(
        name="largest_tensor",
        text="The largest tensor at the peak is made in attention in all {{ cells }} cells; the"
        " largest of all is `{{ tensor }}`, {{ mib | sig }} MiB at size {{ size }}.",
        values=_largest_values,
        holds=lambda v: v["inside"] == v["cells"],
        about="the largest tensor at the peak",
        instead="It is in {{ inside }} of {{ cells }}; elsewhere it comes from"
        " {{ others | listed }}.",
    ),
)
