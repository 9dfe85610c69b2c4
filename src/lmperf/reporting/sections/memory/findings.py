"""Findings on memory: what the peak consists of, the effect of autocast, prediction errors."""

from __future__ import annotations

import math

from lmperf.names import in_order
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.findings import SHORT, Finding, NotMeasured, measured, rows_of
from lmperf.reporting.numbers import MIB, Count, Spread, percent, ranged
from lmperf.reporting.sections.memory.peaks import (
    CONTEXT,
    HALF,
    MODEL,
    SINGLE,
    STEM,
    at_usual_context,
    component_shares,
    over_float32,
)

STATE = ["parameters", "gradients", "optimizer"]
TOLERANCE = 0.05
ALIKE = 0.01
ALIKE_WORDS = percent(ALIKE, 0)


def _made_of(evidence: MachineEvidence) -> dict:
    """Whether activations or model and optimizer are the larger part of float32 train-step peaks.

    Uses the context of the head table. ``change``: how bf16 autocast changes the peaks.
    """
    steps = at_usual_context(rows_of(evidence, STEM, implementation=MODEL, phase="train_step"))
    nearest = (steps["context_length"] - CONTEXT).abs().idxmin()
    steps = having(steps, context_length=steps.loc[nearest, "context_length"])
    single = measured(having(steps, dtype=SINGLE))
    shares = component_shares(single)
    parts = {"Activations": shares["activations"], "Model and optimizer": shares[STATE].sum(axis=1)}
    most = max(parts, key=lambda name: parts[name].median())
    change = over_float32(steps).dropna()
    return {
        "what": most,
        "share": ranged(Spread.of(parts[most]), lambda share: percent(share, 0)),
        "size": single["size"].iloc[0] if single["size"].nunique() == 1 else None,
        "context": f"{single['context_length'].iloc[0]:g}",
        "change": None if change.empty else Spread.of(change),
    }


def _by_context(evidence: MachineEvidence) -> dict:
    """Share of parameters, gradients and optimizer state at the shortest and longest context."""
    rows = rows_of(evidence, STEM, implementation=MODEL, phase="train_step", dtype=SINGLE)
    share = component_shares(rows)[STATE].sum(axis=1)
    wide = rows.assign(share=share).pivot_table(
        index=["size", "batch"], columns="context_length", values="share"
    )
    short, long = wide.columns.min(), wide.columns.max()
    wide = measured(wide.dropna(subset=[short, long]))
    if short == long:
        raise NotMeasured
    sizes = in_order("size", wide.index.get_level_values("size"))
    return {
        "sizes": sizes if len(sizes) < rows["size"].nunique() else [],
        "short": f"{short:g}",
        "long": f"{long:g}",
        "at_short": Spread.of(wide[short]),
        "at_long": Spread.of(wide[long]),
    }


def _autocast(evidence: MachineEvidence) -> dict:
    """How bf16 autocast changes the peaks of train steps and of forwards without gradients."""
    rows = rows_of(evidence, STEM, implementation=MODEL)
    change = over_float32(rows).dropna()
    phases = rows.loc[change.index, "phase"]
    steps = measured(change[phases == "train_step"])
    lower, higher = int((steps < -ALIKE).sum()), int((steps > ALIKE).sum())
    others = {f"within {ALIKE_WORDS}": len(steps) - lower - higher, "higher": higher}
    return {
        "steps": Spread.of(steps),
        "lower": Count(lower, len(steps)),
        "others": [f"{what} in {number}" for what, number in others.items() if number],
        "forward": Spread.of(measured(change[phases == "forward"])),
        "copies": having(rows, dtype=HALF)["weight_copies_mib"].max() * MIB,
    }


def _prediction(evidence: MachineEvidence) -> dict:
    """How far measured peaks are off the predicted ones.

    ``explained``: whether one more cuBLAS workspace explains every peak outside the tolerance.
    """
    rows = rows_of(evidence, STEM, implementation=MODEL).dropna(
        subset=["peak_mib", "predicted_mib"]
    )
    if len(rows) < 2:
        raise NotMeasured
    excess = rows["peak_mib"] - rows["predicted_mib"]
    off = (excess / rows["predicted_mib"]).abs()
    outside = rows[off > TOLERANCE]
    workspace = rows["workspace_mib"][rows["workspace_mib"] > 0].min()
    beyond = excess[outside.index] - workspace
    near = (beyond / outside["predicted_mib"]).between(0, TOLERANCE)
    return {
        "within": Count(len(rows) - len(outside), len(rows)),
        "most": off.max(),
        "bound": max(math.ceil(1000 * off.max()), 1) / 1000,
        "sizes": in_order("size", outside["size"]),
        "excess": Spread.of(excess[outside.index]),
        "workspace": workspace,
        "explained": bool(near.all()),
    }


def _prediction_answer(values: dict) -> str:
    if values["within"].all:
        return "within"
    return "workspace" if values["explained"] else "outside"


MADE_OF = (
    "{{ what }} are {{ share }} of float32 train-step peaks (predicted,"
    "{{ ' size ' ~ size ~ ',' if size }} context {{ context }})"
)
BY_CONTEXT = (
    "Parameters, gradients and optimizer state are {{ at_short | range('percent') }} of a float32"
    " train step's peak at context {{ short }} (predicted"
    "{{ '; size ' ~ sizes | listed if sizes }}) and {{ at_long | range('percent') }} at {{ long }}"
)
RULE = "Contrary to the rule of thumb, bf16 autocast"
FORWARD = (
    " In forwards without gradients the peak changes by {{ forward | range('signed_percent') }}; a"
    " bf16 copy of the weights, up to {{ copies | gib }} (predicted), exists beside the originals."
)
PREDICTED = (
    f"{{{{ within }}}} peaks are within {percent(TOLERANCE, 0)} of the prediction; the others (size"
    " {{ sizes | listed }}) are"
)

FINDINGS = (
    Finding(
        name="memory_made_of",
        question="What is memory made of at the peak, and what does autocast change?",
        values=_made_of,
        answer=lambda v: "alone" if v["change"] is None else "both",
        answers={
            "alone": MADE_OF + ".",
            "both": MADE_OF
            + "; bf16 autocast changes peaks by {{ change | range('signed_percent') }}.",
        },
        place=SHORT,
    ),
    Finding(
        name="memory_by_context",
        question="How do the components depend on the context?",
        values=_by_context,
        answer=lambda v: "turns" if v["at_short"].low > 0.5 > v["at_long"].high else "stays",
        answers={
            "turns": BY_CONTEXT + ", where activations have taken over.",
            "stays": BY_CONTEXT + ".",
        },
    ),
    Finding(
        name="memory_autocast",
        question="Does bf16 autocast save memory?",
        values=_autocast,
        answer=lambda v: (
            "never" if v["lower"].none else "saves" if v["lower"].all else "not_everywhere"
        ),
        answers={
            "saves": "bf16 autocast lowers the peak of every train step:"
            " {{ steps | range('signed_percent') }}." + FORWARD,
            "never": f"{RULE} lowers the peak of no train step by more than {ALIKE_WORDS}:"
            " {{ steps | range('signed_percent') }}." + FORWARD,
            "not_everywhere": f"{RULE} does not always save memory: peaks of train steps are"
            " lower in {{ lower }} cells, {{ others | listed }}." + FORWARD,
        },
    ),
    Finding(
        name="memory_predicted",
        question="How close is the closed form to the measured peak?",
        values=_prediction,
        answer=_prediction_answer,
        answers={
            "within": "All {{ within.n }} peaks are within {{ bound | percent }} of the"
            " prediction.",
            "workspace": PREDICTED + " {{ excess | range }} MiB above it; one more cuBLAS workspace"
            " takes {{ workspace | sig }} MiB.",
            "outside": PREDICTED + " off by up to {{ most | percent }}.",
        },
    ),
)
