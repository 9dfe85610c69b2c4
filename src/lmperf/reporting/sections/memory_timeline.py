"""Y2: memory over time as a picture; Y3: largest tensors; Y4: residual stream; Y5: categories."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from lmperf.reporting.claims import Claim, NotMeasured, rows_of
from lmperf.reporting.evidence import MachineEvidence, in_reading_order
from lmperf.reporting.figures import BLUE, GREEN, GREY, MUSTARD, ORANGE, VIOLET, panels
from lmperf.reporting.numbers import dtype_words, phase_words, significant
from lmperf.reporting.tables import markdown

STEM = "memory_timeline"
CELL = ["size", "context_length", "batch", "dtype", "phase"]
COLOURS = {
    "parameters": BLUE,
    "optimizer": MUSTARD,
    "inputs": GREY,
    "gradients": ORANGE,
    "activations": GREEN,
    "temporary": VIOLET,
}
TOLERANCE = 0.05
EARLY = 0.05
MIB_IN_GIB = 1024


def tables(evidence: MachineEvidence) -> dict[str, str]:
    """``y2``: peaks, ``y3``: largest tensors, ``y4``: residual stream, ``y5``: by category."""
    frame = evidence.frame(STEM)
    if frame is None:
        return dict.fromkeys(("y2", "y3", "y4", "y5"), "")
    frame = in_reading_order(frame.sort_values("position"), first=CELL)
    return {
        "y2": _peaks(frame[frame["table"] == "curve"]),
        "y3": _largest(frame[frame["table"] == "block"]),
        "y4": _stream(frame[frame["table"] == "stream"]),
        "y5": _categories(_settled(frame[frame["table"] == "category"])),
    }


def _cell_words(row: pd.Series) -> dict[str, str]:
    return {
        "size": row["size"],
        "context": str(int(row["context_length"])),
        "numerics": dtype_words(row["dtype"]),
        "phase": _phase_words(row["phase"]),
    }


def _phase_words(phase: str) -> str:
    return "inference" if phase == "forward" else phase_words(phase)


def _peaks(frame: pd.DataFrame) -> str:
    """The highest point of each curve, what was alive there, and the allocator's own peak."""
    lines = []
    for _, rows in frame.groupby(CELL, sort=False):
        levels = rows[[f"{name}_mib" for name in COLOURS]]
        at = levels.sum(axis=1).idxmax()
        row = rows.loc[at]
        named = {f"{name} (MiB)": significant(levels.loc[at, f"{name}_mib"]) for name in COLOURS}
        beside = {
            "tensors at the peak (MiB)": significant(row["recorded_mib"], 4),
            "peak of the allocator (MiB)": significant(row["peak_mib"], 4),
        }
        lines.append({**_cell_words(row), **named, **beside})
    caption = "Table Y2: what is alive at the peak of the picture"
    return markdown(pd.DataFrame(lines), caption, left=["numerics", "phase"])


def _largest(frame: pd.DataFrame) -> str:
    lines = pd.DataFrame(
        {
            "size (MiB)": frame["size_mib"].map(significant),
            "tensor": frame["tensor"],
            "category": frame["name"],
            "made in": frame["made_in"].fillna("before"),
            "by": frame["frame"].fillna(""),
        }
    )
    texts = []
    for key, rows in lines.groupby([frame[name] for name in CELL], sort=False):
        words = _cell_words(pd.Series(dict(zip(CELL, key, strict=True))))
        caption = f"Table Y3: largest tensors at the peak, {', '.join(words.values())}"
        texts.append(markdown(rows, caption, ["tensor", "category", "made in", "by"]))
    return "\n\n".join(texts)


def _stream(frame: pd.DataFrame) -> str:
    lines = [
        {
            "size": row["size"],
            "tensor": row["tensor"],
            "closed form (MiB)": significant(row["predicted_mib"], 4),
            "measured (MiB)": significant(row["size_mib"], 4),
        }
        for row in frame.drop_duplicates("tensor").to_dict("records")
    ]
    return markdown(pd.DataFrame(lines), "Table Y4: one tensor of the residual stream")


def _settled(frame: pd.DataFrame) -> pd.DataFrame:
    """Inference has no activations: what autocast keeps of the weights is temporary there."""
    frame = frame.copy()
    inference = frame["phase"] == "forward"
    kept = inference & (frame["name"] == "activations")
    for column in ("size_mib", "predicted_mib"):
        moved = frame[kept].set_index(CELL)[column]
        target = inference & (frame["name"] == "temporary")
        added = frame.loc[target, CELL].apply(lambda r, moved=moved: moved[tuple(r)], axis=1)
        frame.loc[target, column] += added.astype(float) if len(added) else 0.0
        frame.loc[kept, column] = 0.0
    return frame


def _categories(frame: pd.DataFrame) -> str:
    lines = []
    for _, rows in frame.groupby(CELL, sort=False):
        line = _cell_words(rows.iloc[0])
        for _, row in rows.iterrows():
            words = f"{significant(row['predicted_mib'], 4)} / {significant(row['size_mib'], 4)}"
            line[row["name"]] = words
        lines.append(line)
    caption = "Table Y5: memory at the peak by category, predicted / measured (MiB)"
    return markdown(pd.DataFrame(lines), caption, left=["numerics", "phase"])


def figure(evidence: MachineEvidence) -> Figure | None:
    """Stacked GiB over the events of a train step, one panel per numerics of the largest size."""
    frame = evidence.frame(STEM)
    if frame is None:
        return None
    frame = in_reading_order(frame[frame["phase"] == "train_step"], first=CELL)
    if frame.empty:
        return None
    frame = frame[frame["size"] == frame["size"].iloc[-1]]
    dtypes = list(dict.fromkeys(frame["dtype"]))
    drawn, axes = panels(len(dtypes), height=3.8, sharey=True)
    for axis, dtype in zip(axes, dtypes, strict=True):
        _panel(axis, frame[frame["dtype"] == dtype])
        axis.set_title(dtype_words(dtype))
    axes[0].set_ylabel("GiB")
    size, context = frame["size"].iloc[0], int(frame["context_length"].iloc[0])
    what = f"allocations and releases of a train step (size {size}, context {context})"
    drawn.supxlabel(what, fontsize=9)
    handles, labels = axes[0].get_legend_handles_labels()
    drawn.legend(handles, labels, loc="upper center", ncols=len(labels), frameon=False, fontsize=8)
    return drawn


def _panel(axis, frame: pd.DataFrame) -> None:
    points = frame[frame["table"] == "curve"].sort_values("position")
    levels = [points[f"{name}_mib"].to_numpy(float) / MIB_IN_GIB for name in COLOURS]
    at = points["position"].to_numpy(float)
    axis.stackplot(at, levels, labels=list(COLOURS), colors=list(COLOURS.values()), linewidth=0)
    total = np.sum(levels, axis=0)
    top = int(total.argmax())
    alive = max(COLOURS, key=lambda name: levels[list(COLOURS).index(name)][top])
    axis.annotate(
        f"peak {significant(total[top])} GiB\nmostly {alive}",
        (at[top], total[top]),
        xytext=(0, 6),
        textcoords="offset points",
        ha="center",
        fontsize=8,
    )
    axis.set_ylim(0, 1.25 * total.max())
    for _, row in frame[frame["table"] == "phase"].iterrows():
        if row["name"] != "end":
            axis.axvline(row["position"], color=GREY, linewidth=0.8, linestyle=":")
            axis.text(row["position"], 1.2 * total.max(), f" {row['name']}", fontsize=7, va="top")


def _rows(evidence: MachineEvidence, table: str, phase: str) -> pd.DataFrame:
    rows = rows_of(evidence, STEM, table=table, phase=phase)
    return _settled(rows) if table == "category" else rows


def _dominant_values(evidence: MachineEvidence) -> dict:
    rows = _rows(evidence, "category", "train_step")
    wide = rows.pivot_table(index=["size", "dtype"], columns="name", values="size_mib")
    share = wide.div(wide.sum(axis=1), axis=0)
    leaders = share.idxmax(axis=1)
    return {
        "cells": len(share),
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
    off = (rows["predicted_mib"] / rows["size_mib"] - 1).abs()
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
        text="At the peak of a train step activations hold more than any other category, in all"
        " {{ cells }} cells: {{ least | percent }} to {{ most | percent }} of what is alive.",
        values=_dominant_values,
        holds=lambda v: v["leading"] == v["cells"],
        about="what is alive at the peak of a train step",
        instead="They lead in {{ leading }} of {{ cells }}.",
        summary=True,
    ),
    Claim(
        name="categories_predicted",
        text="The closed form gives each category at the peak, {{ rows }} in all, to within"
        " {{ off | percent }} (the worst: {{ where }}).",
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
