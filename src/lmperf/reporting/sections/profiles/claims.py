"""What the profiles say of classes of kernels and of the inside of attention."""

from __future__ import annotations

import pandas as pd

from lmperf.reporting.claims import Claim, NotMeasured, frame_of, rows_of
from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.numbers import dtype_words, implementation_words
from lmperf.reporting.sections.profiles.tables import CELL, STEM


def _where(row: pd.Series) -> str:
    return f"{row['size']}, {dtype_words(row['dtype'])}"


def _softmax_values(evidence: MachineEvidence) -> dict:
    rows = rows_of(evidence, STEM, table="attention", name="softmax")
    most = rows.loc[rows["time_share"].idxmax()]
    return {
        "time": most["time_share"],
        "flops": most["flops_share"],
        "where": _where(most),
        "least": rows["time_share"].min(),
        "gap": (rows["time_share"] / rows["flops_share"]).min(),
    }


def _matmul_values(evidence: MachineEvidence) -> dict:
    rows = rows_of(evidence, STEM, table="class")
    rows = rows[(rows["name"] == "matmul") & (rows["implementation"] == "eager")]
    wide = rows.pivot_table(index=["size", "dtype"], columns="phase", values="time_share")
    if not {"forward", "train_step"} <= set(wide.columns):
        raise NotMeasured("not both of forward and train step")
    drop = wide["forward"] - wide["train_step"]
    return {
        "low": wide["forward"].min(),
        "high": wide["forward"].max(),
        "step_low": wide["train_step"].min(),
        "step_high": wide["train_step"].max(),
        "falls": int((drop > 0).sum()),
        "cells": len(drop),
    }


def _dtype_values(evidence: MachineEvidence) -> dict:
    rows = rows_of(evidence, STEM, table="class")
    chosen = (rows["name"] == "matmul") & (rows["implementation"] == "eager")
    rows = rows[chosen & (rows["phase"] == "forward")]
    share = rows.groupby("dtype")["time_share"].median()
    if not {"float32", "autocast_bfloat16"} <= set(share.index):
        raise NotMeasured("not both numerics")
    return {"full": share["float32"], "low": share["autocast_bfloat16"]}


def _optimizer_values(evidence: MachineEvidence) -> dict:
    rows = rows_of(evidence, STEM, table="class", name="optimizer", phase="train_step")
    most = rows.loc[rows["time_share"].idxmax()]
    return {
        "least": rows["time_share"].min(),
        "most": most["time_share"],
        "where": f"{_where(most)}, {implementation_words(most['implementation'])}",
    }


def _busy_values(evidence: MachineEvidence) -> dict:
    rows = rows_of(evidence, STEM, table="class", phase="train_step")
    cells = rows.groupby(["size", "dtype", "implementation"], sort=False)
    busy = cells["total_ms"].sum() / cells["wall_ms"].first()
    size, dtype, implementation = busy.idxmin()
    where = f"{size}, {dtype_words(dtype)}, {implementation_words(implementation)}"
    return {"least": busy.min(), "most": busy.max(), "where": where}


def _leader_values(evidence: MachineEvidence) -> dict:
    rows = rows_of(evidence, STEM, table="kernel")
    rows = rows[(rows["implementation"] == "eager") & (rows["name"] != "rest")]
    leaders = rows.loc[rows.groupby([*CELL, "phase"])["total_ms"].idxmax()]
    wide = leaders.pivot_table(
        index=["size", "dtype"], columns="phase", values="name", aggfunc="first"
    )
    if not {"forward", "backward"} <= set(wide.columns):
        raise NotMeasured("not both directions")
    same = wide["forward"] == wide["backward"]
    return {"same": int(same.sum()), "cells": len(same)}


def _other_values(evidence: MachineEvidence) -> dict:
    frame = frame_of(evidence, STEM)
    rows = frame[(frame["table"] == "class") & (frame["name"] == "other")]
    return {"most": rows["time_share"].max(), "bound": rows["error_bound"].max()}


CLAIMS = (
    Claim(
        name="softmax_share",
        text="Softmax, with its mask, is {{ flops | percent }} of the FLOPs of plain attention and"
        " {{ time | percent }} of its time ({{ where }}); everywhere its share of the time is at"
        " least {{ gap | ratio }} its share of the FLOPs.",
        values=_softmax_values,
        holds=lambda v: v["gap"] > 1,
        about="softmax inside attention",
        instead="Its share of the time is not above that of the FLOPs everywhere.",
        summary=True,
    ),
    Claim(
        name="matmul_share",
        text="Matmuls take a smaller share of a train step than of a forward (eager), in all"
        " {{ cells }} cells: {{ low | percent }} to {{ high | percent }} of the time of kernels in"
        " the forward, {{ step_low | percent }} to {{ step_high | percent }} in the step.",
        values=_matmul_values,
        holds=lambda v: v["falls"] == v["cells"],
        about="the share of matmuls",
        instead="They do in {{ falls }} of {{ cells }}.",
    ),
    Claim(
        name="numerics_share",
        text="Under bf16 autocast (eager) matmuls are so much faster that what surrounds them"
        " leads: in the median {{ low | percent }} of a forward is matmul, {{ full | percent }} in"
        " float32.",
        values=_dtype_values,
        holds=lambda v: v["low"] < 0.5 < v["full"],
        about="the share of matmuls by numerics",
        instead="Matmuls stay on one side of one half.",
        summary=True,
    ),
    Claim(
        name="optimizer_share",
        text="The optimizer is {{ least | percent }} to {{ most | percent }} of the time of kernels"
        " in a train step (the most: {{ where }}).",
        values=_optimizer_values,
        holds=lambda v: v["most"] < 0.5,
        about="the share of the optimizer",
        instead="It is more than half.",
    ),
    Claim(
        name="busy",
        text="In a train step the device computes for {{ least | percent }} to"
        " {{ most | percent }} of the wall time; it waits for the host the most at {{ where }}.",
        values=_busy_values,
        holds=lambda v: v["least"] < 1,
        about="how busy the device is",
        instead="It never waits.",
    ),
    Claim(
        name="leading_kernel",
        text="The kernel that takes longest in the forward is not the one in the backward: they"
        " agree in {{ same }} of {{ cells }} cells.",
        values=_leader_values,
        holds=lambda v: 2 * v["same"] < v["cells"],
        about="the kernel that leads",
        instead="In most cells they are the same.",
    ),
    Claim(
        name="other_share",
        text="Every kernel has its class: at most {{ most | percent }} of the time is in none.",
        values=_other_values,
        holds=lambda v: v["most"] <= v["bound"],
        about="kernels without a class",
        instead="More than {{ bound | percent }} is allowed nowhere.",
    ),
)
