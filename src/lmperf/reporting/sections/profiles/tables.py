"""P1: kernels of a phase; P2: their classes; P3: inside attention; P4: the traces."""

from __future__ import annotations

import re

import pandas as pd

from lmperf.reporting.evidence import MachineEvidence, in_reading_order
from lmperf.reporting.numbers import (
    EMPTY,
    dtype_words,
    implementation_words,
    percent,
    phase_words,
    significant,
)
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
    busy = grouped["total_ms"].sum() / grouped["wall_ms"].first()
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
