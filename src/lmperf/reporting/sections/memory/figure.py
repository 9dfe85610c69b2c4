"""The predicted peak of a train step, stacked by component, with the measured peak on it."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from lmperf.reporting import gates
from lmperf.reporting.evidence import MachineEvidence, in_order
from lmperf.reporting.figures import (
    BLUE,
    GREEN,
    GREY,
    MUSTARD,
    ORANGE,
    VIOLET,
    legend_above,
    panels,
)
from lmperf.reporting.numbers import dtype_words

PHASE = "train_step"
COLOURS = {
    "parameters": BLUE,
    "gradients": ORANGE,
    "optimizer": MUSTARD,
    "activations": GREEN,
    "other": VIOLET,
}
MOST_BARS = 24


def figure(evidence: MachineEvidence) -> Figure | None:
    """One panel per dtype, one bar per size and context; linear GiB."""
    frame = evidence.frame("memory")
    frame = frame[(frame["phase"] == PHASE) & frame["predicted_mib"].notna()]
    frame = frame[frame["batch"] == frame["batch"].max()]
    if frame.empty or frame[["size", "context_length"]].drop_duplicates().shape[0] > MOST_BARS:
        return None
    dtypes = in_order("dtype", frame["dtype"])
    drawn, axes = panels(len(dtypes), height=4.0, sharey=True)
    for axis, dtype in zip(axes, dtypes, strict=True):
        _panel(axis, frame[frame["dtype"] == dtype])
        axis.set_title(dtype_words(dtype))
    axes[0].set_ylabel("peak of a train step (GiB)\nbars predicted, diamonds measured")
    drawn.supxlabel("model size and context length (tokens)", fontsize=9)
    legend_above(drawn, axes)
    return drawn


def _panel(axis, frame: pd.DataFrame) -> None:
    positions = np.arange(len(frame))
    bottom = np.zeros(len(frame))
    for name, heights in _components(frame).items():
        axis.bar(
            positions,
            heights,
            bottom=bottom,
            width=0.7,
            color=COLOURS[name],
            label=name,
        )
        bottom = bottom + heights
    ok = gates.shown(frame).to_numpy()
    peaks = frame["peak_mib"].to_numpy(dtype=float) / 1024
    axis.plot(
        positions[ok],
        peaks[ok],
        linestyle="none",
        marker="D",
        color=GREY,
        markeredgecolor="#ffffff",
        markeredgewidth=0.8,
        label="measured",
    )
    for position in positions[(frame["status"] == "oom").to_numpy()]:
        axis.annotate(
            "OOM",
            (position, bottom[position]),
            xytext=(0, 3),
            ha="center",
            textcoords="offset points",
            rotation=90,
            fontsize=7,
        )
    labels = [f"{s} {c:g}" for s, c in zip(frame["size"], frame["context_length"], strict=True)]
    axis.set_xticks(positions, labels, rotation=90, fontsize=7)
    axis.grid(axis="x", visible=False)


def _components(frame: pd.DataFrame) -> dict[str, np.ndarray]:
    """GiB by component; what the prediction holds beyond the named ones is ``other``."""
    named = {
        name: frame[f"{name}_mib"].fillna(0).to_numpy(dtype=float) / 1024
        for name in COLOURS
        if name != "other"
    }
    total = frame["predicted_mib"].to_numpy(dtype=float) / 1024
    rest = total - sum(named.values(), np.zeros(len(frame)))
    if (rest > 0.005 * total).any():
        named["other"] = np.clip(rest, 0, None)
    return named
