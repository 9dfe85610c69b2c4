"""Y2: the peak of the picture; Y3: largest tensors; Y4: residual stream; Y5: categories."""

from __future__ import annotations

import pandas as pd

from lmperf.reporting.evidence import MachineEvidence, in_reading_order
from lmperf.reporting.numbers import dtype_words, phase_words, significant
from lmperf.reporting.sections.memory_timeline.figure import CELL, COLOURS, STEM
from lmperf.reporting.tables import markdown


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
        "y5": _categories(settled(frame[frame["table"] == "category"])),
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


def settled(frame: pd.DataFrame) -> pd.DataFrame:
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
