"""P1: kernels of a phase; P2: their classes; P3: inside attention; P4: the traces."""

from __future__ import annotations

import re

import pandas as pd

from lmperf.reporting import gates
from lmperf.reporting.claims import Claim, NotMeasured, rows_of
from lmperf.reporting.evidence import MachineEvidence, in_reading_order
from lmperf.reporting.numbers import (
    EMPTY,
    dtype_words,
    implementation_words,
    percent,
    phase_words,
    significant,
)
from lmperf.reporting.sections import kernel_shares
from lmperf.reporting.tables import markdown

STEM = "profiles"
CELL = ["size", "context_length", "batch", "dtype", "implementation"]
CLASSES = ("matmul", "attention", "elementwise", "reduction", "optimizer", "copy", "other")
PARTS = ("scores", "softmax", "values")
# The one trace that is published with the report; the others stay where they were measured.
SAMPLE = "small-512-4-autocast_bfloat16-eager-forward.json.gz"
NAME_LENGTH = 70
PURPOSE = re.compile(r"\b(cutlass_\w+|\w*Functor\w*|\w+_kernel(?:_cuda|_impl)?)(?=[<(,>: ])")
WRAPPER = re.compile(r"[AB]?(Binary|Unary)Functor|gpu_kernel_impl(_nocast)?|elementwise_kernel")


def tables(evidence: MachineEvidence) -> dict[str, str]:
    """``p1`` per cell and phase, ``p2``, ``p3``, and ``p4`` with ``sample``: the traces."""
    frame = evidence.frame(STEM)
    if frame is None:
        return dict.fromkeys(("p1", "p2", "p3", "p4", "sample"), "")
    frame = in_reading_order(frame.sort_values(["table", "name"]), first=[*CELL, "phase"])
    return {
        "p1": _kernels(frame[frame["table"] == "kernel"]),
        "p2": _classes(frame[frame["table"] == "class"]),
        "p3": _inside(frame[frame["table"] == "attention"]),
        "p4": _traces(frame),
        "sample": SAMPLE if (frame["trace"] == SAMPLE).any() else "",
    }


def _cell_words(row: pd.Series) -> dict[str, str]:
    return {
        "size": row["size"],
        "context": str(int(row["context_length"])),
        "numerics": dtype_words(row["dtype"]),
        "implementation": implementation_words(row["implementation"]),
    }


def short(name: str) -> str:
    """A kernel's name without namespaces, return type and arguments, and what its template is for.

    CUTLASS's ``Kernel2`` and PyTorch's ``elementwise_kernel`` say nothing by themselves: the tile
    or the functor among the template's arguments follows in brackets.
    """
    name = name.replace("(anonymous namespace)", "anonymous")
    base = re.sub(r"[<(].*", "", name).split("::")[-1].removeprefix("void ").strip()
    inside = PURPOSE.findall(name.partition("<")[2])
    purpose = next((word for word in inside if not WRAPPER.fullmatch(word)), None)
    words = f"{base} [{purpose}]" if purpose else base
    return words if len(words) <= NAME_LENGTH else words[: NAME_LENGTH - 3] + "..."


def _kernels(frame: pd.DataFrame) -> str:
    order = frame.groupby([*CELL, "phase"], sort=False).ngroup()
    frame = frame.assign(order=order, rest=frame["name"] == "rest").sort_values(
        ["order", "rest", "total_ms"], ascending=[True, True, False], kind="stable"
    )
    times = {
        f"{name} (µs)": [significant(v) for v in frame[f"{name}_us"]]
        for name in ("mean", "median", "min", "max", "std")
    }
    lines = pd.DataFrame(
        {
            "kernel": frame["name"].map(short),
            "class": frame["kernel_class"].fillna(EMPTY),
            "time": frame["time_share"].map(percent),
            "total (ms)": frame["total_ms"].map(significant),
            "instances": frame["instances"].map("{:.0f}".format),
            **times,
        },
        index=frame.index,
    )
    texts = []
    for key, rows in lines.groupby([frame[name] for name in (*CELL, "phase")], sort=False):
        size, context, _, dtype, implementation, phase = key
        caption = (
            f"Table P1: {phase_words(phase)}, {size}, context {context:g}, {dtype_words(dtype)}, "
            f"{implementation_words(implementation)}"
        )
        texts.append(markdown(rows, caption, left=["kernel", "class"]))
    return "\n\n".join(texts)


def _classes(frame: pd.DataFrame) -> str:
    cells = [*CELL, "phase"]
    shares = frame.pivot_table(index=cells, columns="name", values="time_share", sort=False)
    grouped = frame.groupby(cells, sort=False)
    busy = (grouped["total_ms"].sum() / grouped["wall_ms"].first()).clip(upper=1.0)
    named = {name: shares[name].map(percent) for name in CLASSES if name in shares}
    lines = shares.index.to_frame(index=False)
    table = pd.DataFrame(
        {
            "size": lines["size"],
            "context": lines["context_length"].map("{:.0f}".format),
            "numerics": lines["dtype"].map(dtype_words),
            "implementation": lines["implementation"].map(implementation_words),
            "phase": lines["phase"].map(phase_words),
            **{name: column.to_numpy() for name, column in named.items()},
            "device busy": busy.loc[shares.index].map(percent).to_numpy(),
        }
    )
    caption = "Table P2: share of the time of kernels, by class; time of kernels by wall time"
    return markdown(table, caption, left=["numerics", "phase"])


def _inside(frame: pd.DataFrame) -> str:
    lines = []
    for _, rows in frame.groupby(CELL, sort=False):
        line = _cell_words(rows.iloc[0])
        for part in PARTS:
            row = rows[rows["name"] == part].iloc[0]
            words = f"{percent(row['time_share'])} / {percent(row['flops_share'])}"
            line[f"{part}, time / FLOPs"] = words
        lines.append(line)
    if not lines:
        return ""
    return markdown(pd.DataFrame(lines), "Table P3: inside plain attention, forward", ["numerics"])


def _traces(frame: pd.DataFrame) -> str:
    kept = frame[frame["trace"].notna()].drop_duplicates("trace")
    lines = [
        {**_cell_words(row), "phase": phase_words(row["phase"]), "trace": row["trace"]}
        for row in kept.to_dict("records")
    ]
    if not lines:
        return ""
    return markdown(pd.DataFrame(lines), "Table P4: traces", ["numerics", "phase", "trace"])


def _rows(evidence: MachineEvidence, table: str) -> pd.DataFrame:
    rows = rows_of(evidence, STEM)
    rows = rows[(rows["table"] == table) & gates.shown(rows)]
    if rows.empty:
        raise NotMeasured(f"no rows of {table}")
    return rows


def _where(row: pd.Series) -> str:
    return f"{row['size']}, {dtype_words(row['dtype'])}"


def _softmax_values(evidence: MachineEvidence) -> dict:
    rows = _rows(evidence, "attention")
    rows = rows[rows["name"] == "softmax"]
    most = rows.loc[rows["time_share"].idxmax()]
    return {
        "time": most["time_share"],
        "flops": most["flops_share"],
        "where": _where(most),
        "least": rows["time_share"].min(),
        "gap": (rows["time_share"] / rows["flops_share"]).min(),
    }


def _matmul_values(evidence: MachineEvidence) -> dict:
    rows = _rows(evidence, "class")
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
    rows = _rows(evidence, "class")
    chosen = (rows["name"] == "matmul") & (rows["implementation"] == "eager")
    rows = rows[chosen & (rows["phase"] == "forward")]
    share = rows.groupby("dtype")["time_share"].median()
    if not {"float32", "autocast_bfloat16"} <= set(share.index):
        raise NotMeasured("not both numerics")
    return {"full": share["float32"], "low": share["autocast_bfloat16"]}


def _optimizer_values(evidence: MachineEvidence) -> dict:
    rows = _rows(evidence, "class")
    rows = rows[(rows["name"] == "optimizer") & (rows["phase"] == "train_step")]
    most = rows.loc[rows["time_share"].idxmax()]
    return {
        "least": rows["time_share"].min(),
        "most": most["time_share"],
        "where": f"{_where(most)}, {implementation_words(most['implementation'])}",
    }


def _busy_values(evidence: MachineEvidence) -> dict:
    rows = _rows(evidence, "class")
    rows = rows[rows["phase"] == "train_step"]
    cells = rows.groupby(["size", "dtype", "implementation"], sort=False)
    busy = cells["total_ms"].sum() / cells["wall_ms"].first()
    size, dtype, implementation = busy.idxmin()
    where = f"{size}, {dtype_words(dtype)}, {implementation_words(implementation)}"
    return {"least": min(busy.min(), 1.0), "most": min(busy.max(), 1.0), "where": where}


def _leader_values(evidence: MachineEvidence) -> dict:
    rows = _rows(evidence, "kernel")
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
    frame = evidence.frame(STEM)
    if frame is None:
        raise NotMeasured(f"no evidence of `{STEM}`")
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
        text="Matmuls are {{ low | percent }} to {{ high | percent }} of the time of kernels in a"
        " forward and {{ step_low | percent }} to {{ step_high | percent }} in a train step; their"
        " share falls in all {{ cells }} cells.",
        values=_matmul_values,
        holds=lambda v: v["falls"] == v["cells"],
        about="the share of matmuls",
        instead="It falls in {{ falls }} of {{ cells }}.",
    ),
    Claim(
        name="numerics_share",
        text="In bf16 autocast matmuls are so much faster that what surrounds them leads: in the"
        " median {{ low | percent }} of a forward is matmul, {{ full | percent }} in float32.",
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
    *kernel_shares.CLAIMS,
)
