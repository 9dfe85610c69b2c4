"""How the kernel stands against each peer: geometric means over the cells of one kind of work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lmperf.reporting import gates
from lmperf.reporting.claims import Claim, NotMeasured, frame_of
from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.numbers import implementation_words
from lmperf.reporting.sections.flash_attention.kinds import TRITON, filled, graphed, numerics_words
from lmperf.reporting.tables import markdown

STEM = "flash_attention"
KERNEL = "triton"
CELL = ["batch", "heads", "seq_len", "d_head", "dtype", "causal", "cuda_graph"]
BEST = "the best SDPA backend"

Where = Callable[[pd.DataFrame], pd.Series]


@dataclass(frozen=True)
class Goal:
    """A kind of work, the peer, and the least ratio peer time / our time that is expected."""

    name: str
    work: str
    where: Where
    phase: str
    peer: str
    least: float


def _one_head(frame: pd.DataFrame) -> pd.Series:
    return (frame["batch"] == 1) & (frame["heads"] == 1) & frame["causal"]


def _filled_half(d_head: int | None = None) -> Where:
    def where(frame: pd.DataFrame) -> pd.Series:
        chosen = filled(frame) & (frame["dtype"] == "bfloat16")
        return chosen if d_head is None else chosen & (frame["d_head"] == d_head)

    return where


def _long(frame: pd.DataFrame) -> pd.Series:
    chosen = _one_head(frame) & (frame["dtype"] == "bfloat16") & ~graphed(frame)
    return chosen & (frame["seq_len"] >= 2048)


def _graphed(frame: pd.DataFrame) -> pd.Series:
    chosen = _one_head(frame) & (frame["dtype"] == "bfloat16") & graphed(frame)
    return chosen & (frame["seq_len"] <= 1024)


def _filled_float32(frame: pd.DataFrame) -> pd.Series:
    return filled(frame) & (frame["dtype"] == "float32")


_FILLED, _HEAD = "filled grid, bf16", "one head, causal, bf16"
_FLOAT32 = f"filled grid, {numerics_words('float32', TRITON)}"

GOALS = tuple(
    Goal(f"{name}_{phase}", work, where, phase, peer, least)
    for name, work, where, peer, bounds in (
        ("d64_cudnn", f"{_FILLED}, d 64", _filled_half(64), "sdpa_cudnn", (0.90, 0.80)),
        ("d128_cudnn", f"{_FILLED}, d 128", _filled_half(128), "sdpa_cudnn", (0.75, 0.80)),
        ("flex", _FILLED, _filled_half(), "flex", (1.10, 1.10)),
        ("flash", _FILLED, _filled_half(), "sdpa_flash", (1.25, 1.25)),
        ("one_head", f"{_HEAD}, n ≥ 2048", _long, BEST, (1.30, 1.00)),
        ("graphed", f"{_HEAD}, n ≤ 1024, as a CUDA graph", _graphed, BEST, (1.00, 1.00)),
        ("float32", _FLOAT32, _filled_float32, "sdpa_efficient", (2.0, 2.0)),
    )
    for phase, least in zip(("forward", "backward"), bounds, strict=True)
)


def ratios(evidence: MachineEvidence, goal: Goal) -> pd.Series:
    """Peer time / our time of each cell, from medians of rows that were timed in turn.

    Raises NotMeasured when no cell has both.
    """
    frame = frame_of(evidence, STEM)
    chosen = goal.where(frame) & (frame["phase"] == goal.phase) & gates.shown(frame)
    rows = frame[chosen]
    cells = [*(name for name in CELL if name in rows.columns), "together"]
    ours = rows[rows["implementation"] == KERNEL].groupby(cells)["median_ms"].first()
    backend = rows["implementation"].str.startswith("sdpa_")
    peers = rows[backend if goal.peer == BEST else rows["implementation"] == goal.peer]
    found = (peers.groupby(cells)["median_ms"].min() / ours).dropna()
    if found.empty:
        raise NotMeasured(f"no {goal.phase} of both on the {goal.work}")
    return found


def _values(evidence: MachineEvidence, goal: Goal) -> dict:
    found = ratios(evidence, goal)
    return {
        "mean": float(np.exp(np.log(found).mean())),
        "lowest": found.min(),
        "highest": found.max(),
        "cells": len(found),
        "least": goal.least,
    }


def _peer_words(goal: Goal) -> str:
    return goal.peer if goal.peer == BEST else implementation_words(goal.peer)


def _claim(goal: Goal) -> Claim:
    return Claim(
        name=f"goal_{goal.name}",
        text=f"{goal.work}, {goal.phase}: {implementation_words(KERNEL)} runs at"
        " {{ mean | ratio }} the speed of " + _peer_words(goal) + " in the geometric mean over"
        " {{ cells }} cells ({{ lowest | ratio }} to {{ highest | ratio }}; the goal is"
        " {{ least | ratio }}).",
        values=lambda evidence: _values(evidence, goal),
        holds=lambda v: v["mean"] >= v["least"],
        about=f"{goal.work}, {goal.phase}, against {_peer_words(goal)}",
        instead="It misses its goal.",
    )


CLAIMS = tuple(_claim(goal) for goal in GOALS)


def peers_table(evidence: MachineEvidence) -> str:
    """A row for each goal that has cells: geometric mean, range and the least expected."""
    rows = []
    for goal in GOALS:
        try:
            v = _values(evidence, goal)
        except NotMeasured:
            continue
        rows.append(
            {
                "work": goal.work,
                "phase": goal.phase,
                "against": _peer_words(goal),
                "cells": str(v["cells"]),
                "peer time / our time": f"{v['mean']:.2f}",
                "range": f"{v['lowest']:.2f} to {v['highest']:.2f}",
                "goal": f"{v['least']:.2f}",
            }
        )
    caption = "Table F2, in short: geometric means over cells; above one, Triton is faster"
    return markdown(pd.DataFrame(rows), caption, left=["work", "phase", "against"]) if rows else ""
