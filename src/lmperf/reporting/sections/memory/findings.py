"""Findings on memory: what the peak consists of, the effect of autocast, prediction errors."""

from __future__ import annotations

import math

from lmperf.names import in_order
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.findings import SHORT, Finding, NotMeasured, measured, rows_of
from lmperf.reporting.numbers import MIB, Count, Spread, percent
from lmperf.reporting.sections.memory.peaks import (
    CONTEXT,
    HALF,
    MODEL,
    SINGLE,
    STATE,
    STEM,
    at_usual_context,
    component_shares,
    over_float32,
)

TOLERANCE = 0.05
# A change of the peak within this fraction is little.
LITTLE = 0.1
ALIKE = 0.01
ALIKE_WORDS = percent(ALIKE, 0)


def _autocast_adds(evidence: MachineEvidence) -> dict:
    """What bf16 autocast changes at the peak of a train step, at the context of the head table.

    ``copies`` (of weights, added) and ``saved`` (of activations), predicted in bytes, are those of
    the size with the largest copies.
    """
    steps = at_usual_context(rows_of(evidence, STEM, implementation=MODEL, phase="train_step"))
    nearest = (steps["context_length"] - CONTEXT).abs().idxmin()
    steps = having(steps, context_length=steps.loc[nearest, "context_length"])
    change = measured(over_float32(steps).dropna())
    wide = steps.pivot_table(["activations_mib", "weight_copies_mib"], "size", "dtype").dropna()
    if not {SINGLE, HALF} <= set(wide.columns.get_level_values("dtype")):
        raise NotMeasured
    size = wide["weight_copies_mib"][HALF].idxmax()
    activations = wide["activations_mib"].loc[size]
    return {
        "change": Spread.of(change),
        "context": f"{steps['context_length'].iloc[0]:g}",
        "size": size,
        "copies": wide["weight_copies_mib"][HALF].loc[size] * MIB,
        "saved": (activations[SINGLE] - activations[HALF]) * MIB,
    }


def _autocast_answer(values: dict) -> str:
    if values["copies"] <= 0 or values["saved"] <= 0:
        return "other"
    change = values["change"]
    return "little" if max(-change.low, change.high) <= LITTLE else "saves"


def _by_context(evidence: MachineEvidence) -> dict:
    """Share of parameters, gradients and optimizer state at the shortest and longest context."""
    rows = rows_of(evidence, STEM, implementation=MODEL, phase="train_step", dtype=SINGLE)
    shares = component_shares(rows)
    share = shares[list(STATE)].sum(axis=1)
    both = rows.assign(share=share, activations=shares["activations"]).pivot_table(
        index=["size", "batch"], columns="context_length", values=["share", "activations"]
    )
    wide = both["share"]
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
        "activations": Spread.of(both["activations"].loc[wide.index, long]),
    }


def _autocast(evidence: MachineEvidence) -> dict:
    """How bf16 autocast changes the peaks of train steps and of forwards without gradients."""
    rows = rows_of(evidence, STEM, implementation=MODEL)
    change = over_float32(rows).dropna()
    phases = rows.loc[change.index, "phase"]
    steps = measured(change[phases == "train_step"])
    lower, higher = int((steps < -ALIKE).sum()), int((steps > ALIKE).sum())
    return {
        "steps": Spread.of(steps),
        "lower": Count(lower, len(steps)),
        "higher": higher,
        "forward": Spread.of(measured(change[phases == "forward"])),
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


ADDS = (
    "ctivations shrink by {{ saved | gib }}, bf16 copies of the weights add {{ copies | gib }}"
    " ({{ size }})."
)
CHANGES = " peaks of train steps by {{ change | range('signed_percent') }} (context {{ context }})"
WHERE = "a float32 train step's peak (predicted{{ '; size ' ~ sizes | listed if sizes }})."
BY_CONTEXT = (
    "At context {{ short }} model and optimizer are {{ at_short | range('percent') }} of " + WHERE
)
AT_LONG = " At {{ long }} activations are {{ activations | range('percent') }} of it."
RULE = "Contrary to the rule of thumb, bf16 autocast"
FORWARD = (
    " In forwards without gradients the peak changes by {{ forward | range('signed_percent') }}."
)
PREDICTED = (
    f"{{{{ within }}}} peaks are within {percent(TOLERANCE, 0)} of the prediction. The others (size"
    " {{ sizes | listed }}) are"
)

FINDINGS = (
    Finding(
        name="memory_autocast_adds",
        question="What does bf16 autocast change at the peak, and why?",
        values=_autocast_adds,
        answer=_autocast_answer,
        answers={
            "little": "bf16 autocast hardly saves memory: peaks of train steps change by"
            " {{ change | range('signed_percent') }} (context {{ context }}). A" + ADDS,
            "saves": "bf16 autocast changes" + CHANGES + ". A" + ADDS,
            "other": "bf16 autocast changes" + CHANGES + ".",
        },
        place=SHORT,
    ),
    Finding(
        name="memory_by_context",
        question="What is the peak made of, by context?",
        values=_by_context,
        answer=lambda v: "turns" if v["at_short"].low > 0.5 > v["at_long"].high else "stays",
        answers={
            "turns": BY_CONTEXT + AT_LONG + " They grow with the context, the model does not.",
            "stays": BY_CONTEXT + AT_LONG,
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
            "not_everywhere": f"{RULE} does not always save memory: peaks are lower in"
            " {{ lower }} train steps{{ ', higher in %d' % higher if higher }}. A change within"
            f" {ALIKE_WORDS} counts as neither." + FORWARD,
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
