"""What the memory evidence says."""

from __future__ import annotations

import pandas as pd

from lmperf.reporting.claims import Claim, NotMeasured, frame_of, rows_of
from lmperf.reporting.evidence import MachineEvidence, in_order
from lmperf.reporting.numbers import dtype_words, phase_words

CELL = ["size", "context_length", "batch"]
PREDICTION_TOLERANCE = 0.05
# What cuBLAS keeps for a thread on Hopper; the thread of a backward pass has its own.
SPARE_WORKSPACE_MIB = 32


def _prediction(evidence: MachineEvidence) -> dict:
    frame = rows_of(evidence, "memory")
    off = (frame["peak_mib"] / frame["predicted_mib"] - 1).dropna()
    if off.empty:
        raise NotMeasured("no peak has a prediction beside it")
    worst = frame.loc[off.abs().idxmax()]
    return {
        "lowest": off.min(),
        "highest": off.max(),
        "cells": len(off),
        "within": int((off.abs() <= PREDICTION_TOLERANCE).sum()),
        "tolerance": PREDICTION_TOLERANCE,
        "size": worst["size"],
        "context": worst["context_length"],
        "numerics": dtype_words(worst["dtype"]),
        "phase": phase_words(worst["phase"]),
    }


def _spare_workspace(evidence: MachineEvidence) -> dict:
    frame = rows_of(evidence, "memory").dropna(subset=["peak_mib", "predicted_mib"])
    excess = frame["peak_mib"] - frame["predicted_mib"]
    outside = excess[(excess / frame["predicted_mib"]).abs() > PREDICTION_TOLERANCE]
    if excess.empty:
        raise NotMeasured("no peak has a prediction beside it")
    if outside.empty:
        return {"cells": 0}
    explained = (outside - SPARE_WORKSPACE_MIB) / frame["predicted_mib"].loc[outside.index]
    return {
        "cells": len(outside),
        "sizes": in_order("size", frame["size"].loc[outside.index]),
        "low": outside.min(),
        "high": outside.max(),
        "workspace": SPARE_WORKSPACE_MIB,
        "left": explained.abs().max(),
        "tolerance": PREDICTION_TOLERANCE,
    }


def _autocast(evidence: MachineEvidence) -> dict:
    frame = rows_of(evidence, "memory", phase="train_step")
    table = frame.pivot_table(index=CELL, columns="dtype", values="peak_mib", aggfunc="last")
    if not {"float32", "autocast_bfloat16"} <= set(table.columns):
        raise NotMeasured("train steps of both float32 and bf16 autocast")
    ratio = (table["autocast_bfloat16"] / table["float32"]).dropna()
    if ratio.empty:
        raise NotMeasured("no cell has both float32 and bf16 autocast")
    size, context, _ = ratio.idxmax()
    return {
        "lowest": ratio.min(),
        "highest": ratio.max(),
        "size": size,
        "context": context,
        "lower": int((ratio < 1).sum()),
        "cells": len(ratio),
    }


def _largest(evidence: MachineEvidence) -> dict:
    frame = frame_of(evidence, "memory")
    frame = frame[(frame["phase"] == "train_step") & (frame["dtype"] == "float32")]
    frame = frame.dropna(subset=["predicted_mib", "activations_mib"])
    if frame.empty:
        raise NotMeasured("no train step with its predicted components")
    contexts = frame["context_length"]
    longest, shortest = frame[contexts == contexts.max()], frame[contexts == contexts.min()]
    return {
        "short": shortest["context_length"].iloc[0],
        "long": longest["context_length"].iloc[0],
        "short_share": _share(shortest),
        "long_share": _share(longest),
    }


def _share(frame: pd.DataFrame) -> float:
    return float((frame["activations_mib"] / frame["predicted_mib"]).median())


CLAIMS = (
    Claim(
        name="prediction",
        text="The peak that the closed form predicts is within {{ tolerance | percent }} of the"
        " measured one in all {{ cells }} cells (measured against predicted:"
        " {{ lowest | signed_percent }} to {{ highest | signed_percent }}).",
        values=_prediction,
        holds=lambda v: v["within"] == v["cells"],
        about="predicted against measured memory",
        instead="That holds for {{ within }} of the {{ cells }}; the furthest off is {{ size }},"
        " context {{ context }}, {{ numerics }}, {{ phase }}.",
        summary=True,
    ),
    Claim(
        name="spare_workspace",
        text="{% if cells %}Where it is further off ({{ cells }} cells, size"
        " {{ sizes | listed }}), it is by {{ low | sig }} to {{ high | sig }} MiB, which is little"
        " beside a large model: without what one more workspace of cuBLAS takes,"
        " {{ workspace }} MiB, the prediction is within {{ left | percent }}."
        "{% else %}No cell is further off.{% endif %}",
        values=_spare_workspace,
        holds=lambda v: (
            v["cells"] == 0 or (v["low"] >= v["workspace"] and v["left"] <= v["tolerance"])
        ),
        about="why some peaks are higher than predicted",
        instead="A workspace does not explain it.",
    ),
    Claim(
        name="autocast",
        text="bf16 autocast takes {{ lowest | percent }} to {{ highest | percent }} of the peak of"
        " a train step in float32 IEEE, so that it saves memory in all {{ cells }} cells.",
        values=_autocast,
        holds=lambda v: v["lower"] == v["cells"],
        about="the peak of bf16 autocast against float32 IEEE",
        instead="It saves in {{ lower }} of the {{ cells }}; it takes the most, against"
        " float32 IEEE, at size {{ size }}, context {{ context }}.",
        summary=True,
    ),
    Claim(
        name="activations",
        text="The share of activations in the predicted peak of a train step (float32 IEEE, middle"
        " of the sizes) grows from {{ short_share | percent }} at a context of {{ short }} to"
        " {{ long_share | percent }} at {{ long }}.",
        values=_largest,
        holds=lambda v: v["long_share"] > v["short_share"],
        about="the share of activations in the peak",
        instead="It does not grow.",
    ),
)
