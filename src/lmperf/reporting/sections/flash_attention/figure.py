"""Rate against length: one panel per direction, one line per implementation, and the ceiling."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from lmperf.reporting import gates
from lmperf.reporting.ceilings import achieved_tflops, matmul_ceiling
from lmperf.reporting.evidence import MachineEvidence, in_order
from lmperf.reporting.figures import (
    GREY,
    legend_above,
    logarithmic,
    look,
    panels,
    powers_of_two,
    unknown_names,
)
from lmperf.reporting.numbers import dtype_words, implementation_words, phase_words
from lmperf.reporting.sections.flash_attention.kinds import single
from lmperf.reporting.sections.flash_attention.tables import kernel_of

USUAL_D_HEAD = 64
PHASES = ("forward", "backward")


def figure(evidence: MachineEvidence) -> Figure | None:
    """TFLOP/s of forward and backward; bf16 on a GPU, else float32; d_head nearest to the usual."""
    frame = evidence.frame("flash_attention")
    if frame is None:
        return None
    dtypes = set(frame.loc[gates.shown(frame), "dtype"])
    on_gpu = kernel_of(frame) == "triton"
    dtype = "bfloat16" if on_gpu and "bfloat16" in dtypes else "float32"
    frame = frame[gates.shown(frame) & single(frame) & (frame["dtype"] == dtype)]
    frame = frame[frame["phase"].isin(PHASES) & frame["flops"].notna()]
    if frame.empty:
        return None
    d_head = min(frame["d_head"].unique(), key=lambda d: (abs(d - USUAL_D_HEAD), d))
    frame = frame[(frame["d_head"] == d_head) & (frame["causal"] == frame["causal"].max())]
    ceiling = matmul_ceiling(evidence, dtype)
    phases = in_order("phase", frame["phase"])
    drawn, axes = panels(len(phases), height=3.6, sharey=True)
    for axis, phase in zip(axes, phases, strict=True):
        _panel(axis, frame[frame["phase"] == phase], ceiling)
        axis.set_title(phase_words(phase))
    axes[0].set_ylabel("TFLOP/s")
    logarithmic(axes[0])
    mask = "causal" if frame["causal"].iloc[0] else "full"
    what = f"{mask}, d_head {d_head:g}, {dtype_words(dtype)}"
    drawn.supxlabel(f"sequence length ({what})", fontsize=9)
    legend_above(drawn, axes)
    return drawn


def _panel(axis, frame: pd.DataFrame, ceiling: float | None) -> None:
    names = in_order("implementation", frame["implementation"])
    unknown = unknown_names(names)
    for name in names:
        rows = frame[frame["implementation"] == name].drop_duplicates("seq_len", keep="last")
        rows = rows.sort_values("seq_len")
        axis.plot(
            rows["seq_len"],
            achieved_tflops(rows),
            label=implementation_words(name),
            **look(name, unknown),
        )
    if ceiling is not None:
        axis.axhline(ceiling, color=GREY, linestyle="--", linewidth=1, label="matmul ceiling")
    powers_of_two(axis, frame["seq_len"])
