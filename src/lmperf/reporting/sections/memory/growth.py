"""How peak memory grows with context and parameters, and what a train step adds to a forward."""

from __future__ import annotations

import pandas as pd

from lmperf.reporting.claims import Claim, NotMeasured, frame_of, rows_of
from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.scaling import POINTS, exponents
from lmperf.reporting.sections.memory.claims import CELL

STEM = "memory"
SINGLE, HALF = "float32", "autocast_bfloat16"
STATE = ["parameters_mib", "gradients_mib", "optimizer_mib"]
PROPORTIONAL = (0.9, 1.1)
MOST = 0.5


def _peaks(evidence: MachineEvidence, by: str, **where) -> pd.DataFrame:
    """Peaks by cell, one column for each value of ``by``, of the cells that have them all."""
    rows = rows_of(evidence, STEM, **where)
    wide = rows.pivot_table(index=CELL, columns=by, values="peak_mib", aggfunc="last")
    wanted = {"phase": ["forward", "train_step"], "dtype": [SINGLE, HALF]}[by]
    wide = wide.reindex(columns=wanted).dropna()
    if wide.empty:
        raise NotMeasured(f"no cell has both of {' and '.join(wanted)}".replace("_", " "))
    return wide


def _step(evidence: MachineEvidence) -> dict:
    peaks = _peaks(evidence, "phase", dtype=SINGLE)
    ratio = peaks["train_step"] / peaks["forward"]
    middle = ratio.groupby("context_length").median()
    if len(middle) < 2:
        raise NotMeasured("a single context")
    return {
        "low": ratio.min(),
        "high": ratio.max(),
        "cells": len(ratio),
        "short": middle.index[0],
        "long": middle.index[-1],
        "short_ratio": middle.iloc[0],
        "long_ratio": middle.iloc[-1],
    }


def _fit(rows: pd.DataFrame, x: str, groups: list[str]) -> pd.Series:
    found = exponents(rows, x, "peak_mib", groups)
    if found.empty:
        raise NotMeasured(f"no peaks at {POINTS} values of one axis")
    return found


def _context(evidence: MachineEvidence) -> dict:
    groups = ["size", "batch"]
    rows = rows_of(evidence, STEM, dtype=SINGLE)
    step = _fit(rows[rows["phase"] == "train_step"], "context_length", groups)
    forward = _fit(rows[rows["phase"] == "forward"], "context_length", groups)
    contexts = sorted(rows["context_length"].unique())[-POINTS:]
    return {
        "step": step.median(),
        "step_low": step.min(),
        "step_high": step.max(),
        "forward": forward.median(),
        "forward_low": forward.min(),
        "forward_high": forward.max(),
        "fits": len(step),
        "from_context": contexts[0],
        "to_context": contexts[-1],
    }


def _parameters(evidence: MachineEvidence) -> dict:
    rows = rows_of(evidence, STEM, dtype=SINGLE, phase="train_step")
    rows = rows.dropna(subset=["parameters_mib"])
    found = _fit(rows, "parameters_mib", ["context_length", "batch"])
    by_context = found.groupby("context_length").median()
    if len(by_context) < 2:
        raise NotMeasured("a single context")
    return {
        "contexts": list(by_context.items()),
        "points": POINTS,
        "short": by_context.iloc[0],
        "long": by_context.iloc[-1],
        "falls": bool(by_context.is_monotonic_decreasing),
    }


def _forward_numerics(evidence: MachineEvidence) -> dict:
    peaks = _peaks(evidence, "dtype", phase="forward")
    ratio = peaks[HALF] / peaks[SINGLE]
    return {
        "low": ratio.min(),
        "high": ratio.max(),
        "more": int((ratio > 1).sum()),
        "cells": len(ratio),
    }


def _state(evidence: MachineEvidence) -> dict:
    frame = frame_of(evidence, STEM)
    frame = frame[(frame["phase"] == "train_step") & (frame["dtype"] == SINGLE)]
    share = (frame[STATE].sum(axis=1) / frame["predicted_mib"]).dropna()
    middle = share.groupby(frame["context_length"]).median()
    if len(middle) < 2:
        raise NotMeasured("no train steps of two contexts with their predicted components")
    return {
        "short": middle.index[0],
        "long": middle.index[-1],
        "short_share": middle.iloc[0],
        "long_share": middle.iloc[-1],
    }


CLAIMS = (
    Claim(
        name="step_over_forward",
        text="A train step (float32 IEEE) peaks at {{ low | sig }} to {{ high | sig }} times the"
        " peak of a forward without gradients ({{ cells }} cells), and the longer the context, the"
        " larger the factor: {{ short_ratio | sig }} at {{ short }} and {{ long_ratio | sig }} at"
        " {{ long }} in the middle of the sizes.",
        values=_step,
        holds=lambda v: v["low"] > 1 and v["long_ratio"] > v["short_ratio"],
        about="the peak of a train step against that of a forward",
        instead="The factor does not grow with the context, or is not above one everywhere.",
    ),
    Claim(
        name="context_growth",
        text="With the context the peak of a train step (float32 IEEE) grows more slowly than in"
        " proportion, exponent {{ step | sig }} ({{ step_low | sig }} to {{ step_high | sig }} over"
        " {{ fits }} sizes, contexts {{ from_context }} to {{ to_context }}), and that of a forward"
        " more slowly still, {{ forward | sig }} ({{ forward_low | sig }} to"
        " {{ forward_high | sig }}).",
        values=_context,
        holds=lambda v: v["forward"] < v["step"] and v["step_high"] < 1,
        about="how the peak grows with the context",
        instead="The step grows in proportion or faster, or the forward as fast as the step.",
    ),
    Claim(
        name="parameter_growth",
        text="With the number of parameters the peak of a train step (float32 IEEE) grows in"
        " proportion at the shortest context, and the longer the context, the less: exponent"
        " {% for context, exponent in contexts %}{{ exponent | sig }} at {{ context }}"
        "{{ ', ' if not loop.last }}{% endfor %} (the largest {{ points }} sizes).",
        values=_parameters,
        holds=lambda v: PROPORTIONAL[0] <= v["short"] <= PROPORTIONAL[1] and v["falls"],
        about="how the peak grows with the parameters",
        instead="The exponents do not fall from about one.",
    ),
    Claim(
        name="state_share",
        text="Parameters, gradients and the state of the optimizer are most of the predicted peak"
        " of a train step (float32 IEEE) at a short context and the smaller part at a long one:"
        " {{ short_share | percent }} at {{ short }}, {{ long_share | percent }} at {{ long }} in"
        " the middle of the sizes.",
        values=_state,
        holds=lambda v: v["short_share"] > MOST > v["long_share"],
        about="the share of parameters, gradients and optimizer state in the peak",
        instead="They stay on one side of one half.",
    ),
    Claim(
        name="autocast_forward",
        text="Autocast costs memory where no activations are kept: under bf16 autocast a forward"
        " without gradients peaks at {{ low | percent }} to {{ high | percent }} of its peak in"
        " float32 IEEE, higher in all {{ cells }} cells, since the weights that were cast are held"
        " beside the originals.",
        values=_forward_numerics,
        holds=lambda v: v["more"] == v["cells"],
        about="the peak of a forward under bf16 autocast against float32 IEEE",
        instead="It is higher in {{ more }} of {{ cells }}.",
    ),
)
