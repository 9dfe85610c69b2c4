"""What the evidence on memory says."""

from __future__ import annotations

import pandas as pd

from lmperf.names import in_order
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.findings import PAGE, SHORT, Finding, NotMeasured, measured, rows_of
from lmperf.reporting.numbers import Count, Spread
from lmperf.reporting.sections.memory import timeline
from lmperf.reporting.sections.memory.peaks import (
    CELL,
    HALF,
    SINGLE,
    STEM,
    at_usual_context,
    component_shares,
)

STATE = ["parameters", "gradients", "optimizer"]
TOLERANCE = 0.05
# How far into the backward, of its events, the end of the forward still counts as near.
EARLY = 0.05
FLOAT32_BYTES = 4


def _made_of(evidence: MachineEvidence) -> dict:
    """What leads at the peak of a train step, at the rows of the table beside it."""
    steps = at_usual_context(rows_of(evidence, STEM, phase="train_step"))
    single = measured(having(steps, dtype=SINGLE))
    shares = component_shares(single)
    parts = {
        "activations": shares["activations"],
        "model and optimizer state": shares[STATE].sum(axis=1),
    }
    most = max(parts, key=lambda name: parts[name].median())
    change = (_over_float32(steps) - 1).dropna()
    return {
        "what": most[0].upper() + most[1:],
        "share": Spread.of(parts[most]),
        "contexts": [f"{c:g}" for c in sorted(single["context_length"].unique())],
        "change": None if change.empty else Spread.of(change),
    }


def _over_float32(rows: pd.DataFrame) -> pd.Series:
    """Peak under bf16 autocast over that in float32, by cell; empty where no cell has both."""
    wide = rows.pivot_table(index=CELL, columns="dtype", values="peak_mib", aggfunc="last")
    wide = wide.reindex(columns=[SINGLE, HALF])
    return (wide[HALF] / wide[SINGLE]).dropna()


def _prediction(evidence: MachineEvidence) -> dict:
    """How far measured peaks lie from predicted ones, and what those outside have in common."""
    rows = rows_of(evidence, STEM).dropna(subset=["peak_mib", "predicted_mib"])
    if len(rows) < 2:
        raise NotMeasured
    excess = rows["peak_mib"] - rows["predicted_mib"]
    off = excess / rows["predicted_mib"]
    outside = off.abs() > TOLERANCE
    spaces = rows["workspace_mib"][rows["workspace_mib"] > 0]
    workspace = spaces.min() if len(spaces) else None
    left = (off - (workspace or 0) / rows["predicted_mib"])[outside].abs()
    explained = workspace is not None and (excess[outside] >= workspace).all()
    return {
        "tolerance": TOLERANCE,
        "within": Count(int((~outside).sum()), len(rows)),
        "off": Spread.of(off),
        "sizes": in_order("size", rows["size"][outside]),
        "excess": Spread.of(excess[outside]),
        "workspace": workspace,
        "left": left.max(),
        "explained": bool(explained and left.max() <= TOLERANCE),
    }


def _prediction_answer(values: dict) -> str:
    if values["within"].all:
        return "within"
    return "workspace" if values["explained"] else "outside"


def _autocast(evidence: MachineEvidence) -> dict:
    """The peak under autocast over that in float32, with gradients and without."""
    step = measured(_over_float32(rows_of(evidence, STEM, phase="train_step")))
    forward = measured(_over_float32(rows_of(evidence, STEM, phase="forward")))
    copies = rows_of(evidence, STEM, dtype=HALF)["weight_copies_mib"].max()
    return {
        "step": Spread.of(step),
        "forward": Spread.of(forward),
        "step_lower": Count(int((step < 1).sum()), len(step)),
        "forward_lower": Count(int((forward < 1).sum()), len(forward)),
        "copies": copies * 2**20,
    }


def _autocast_answer(values: dict) -> str:
    counts = (values["step_lower"], values["forward_lower"])
    if all(count.all for count in counts):
        return "saves"
    return "never" if all(count.none for count in counts) else "not_everywhere"


def _by_context(evidence: MachineEvidence) -> dict:
    """Share of the model's state at the peak, at the ends of the contexts that all sizes have."""
    rows = rows_of(evidence, STEM, phase="train_step", dtype=SINGLE)
    share = component_shares(rows)[STATE].sum(axis=1)
    wide = rows.assign(share=share).pivot_table(
        index=["size", "batch"], columns="context_length", values="share"
    )
    ends = [wide.columns.min(), wide.columns.max()]
    wide = measured(wide[ends].dropna())
    if ends[0] == ends[1]:
        raise NotMeasured
    return {
        "short": f"{ends[0]:g}",
        "long": f"{ends[1]:g}",
        "at_short": Spread.of(wide[ends[0]]),
        "at_long": Spread.of(wide[ends[1]]),
    }


def _moment(evidence: MachineEvidence) -> dict:
    """How much of the backward has passed when the memory of a train step peaks."""
    tops = timeline.highest(having(timeline.observed(evidence, "curve"), phase="train_step"))
    phases = having(timeline.observed(evidence, "phase"), phase="train_step")
    starts = measured(phases).pivot_table(
        index=timeline.CELL, columns="name", values="position", aggfunc="last"
    )
    starts = starts.reindex(columns=["backward", "optimizer"])
    at = measured(tops).set_index(timeline.CELL)["position"]
    length = starts["optimizer"] - starts["backward"]
    passed = measured(((at - starts["backward"]) / length).dropna())
    near = passed.abs() <= EARLY
    return {
        "near": Count(int(near.sum()), len(near)),
        "passed": Spread.of(passed.clip(lower=0)),
        "sizes": in_order("size", passed.index.get_level_values("size")),
        "contexts": sorted(set(passed.index.get_level_values("context_length").map("{:g}".format))),
    }


def _stream(evidence: MachineEvidence) -> dict:
    """Bytes that an element of the residual stream takes, which is float32."""
    rows = measured(timeline.observed(evidence, "stream"))
    each = FLOAT32_BYTES * rows["size_mib"] / rows["predicted_mib"]
    largest = rows.loc[rows["size_mib"].idxmax()]
    return {
        "bytes": Spread.of(each),
        "size": largest["size"],
        "context": f"{largest['context_length']:g}",
        "mib": largest["size_mib"],
    }


def _stream_answer(values: dict) -> str:
    names = {4: "four", 8: "eight"}
    found = values["bytes"]
    return names.get(found.low, "other") if found.low == found.high else "other"


MADE_OF = (
    "{{ what }} are {{ share | range('percent') }} of float32 train steps"
    " (context {{ contexts | listed }})"
)
PREDICTED = "{{ within }} peaks are within {{ tolerance | percent(0) }} of the closed form"
BY_CONTEXT = (
    "Parameters, gradients and optimizer state are {{ at_short | range('percent') }} of the peak of"
    " a float32 train step at context {{ short }} and {{ at_long | range('percent') }} at"
    " {{ long }}"
)
RATIOS = (
    "its peak is {{ step | range('percent') }} of float32 in train steps (lower in"
    " {{ step_lower }}) and {{ forward | range('percent') }} in forwards without gradients"
    " (lower in {{ forward_lower }})"
)
COPIES = "it holds a bf16 copy of the weights ({{ copies | gib }} at most) beside the originals"
WHERE = "At context {{ contexts | listed }} (size {{ sizes | listed }})"
PASSED = (
    "{{ passed | range('percent') }} of the allocations and releases of the backward are through"
    " by then"
)
STREAM = (
    "A float32 tensor of the residual stream is {{ mib | sig }} MiB (size {{ size }}, context"
    " {{ context }}): {{ bytes.low | sig(1) }}{% if bytes.high > bytes.low %} to"
    " {{ bytes.high | sig(1) }}{% endif %} bytes an element"
)

FINDINGS = (
    Finding(
        name="memory_made_of",
        question="What is memory made of at the peak, and what does autocast change?",
        values=_made_of,
        answer=lambda v: "alone" if v["change"] is None else "both",
        answers={
            "alone": MADE_OF + ".",
            "both": MADE_OF + "; bf16 autocast changes their peak by"
            " {{ change | range('signed_percent') }}.",
        },
        place=SHORT,
    ),
    Finding(
        name="memory_by_context",
        question="What does the context change?",
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
        answer=_autocast_answer,
        answers={
            "saves": f"bf16 autocast saves memory in every cell: {RATIOS}.",
            "never": f"bf16 autocast saves memory in no cell: {RATIOS}, since {COPIES}.",
            "not_everywhere": "Against the rule of thumb, bf16 autocast does not save memory"
            f" everywhere: {RATIOS}, since {COPIES}.",
        },
    ),
    Finding(
        name="memory_predicted",
        question="How near is the closed form to the measured peak?",
        values=_prediction,
        answer=_prediction_answer,
        answers={
            "within": PREDICTED + " (measured against predicted:"
            " {{ off | range('signed_percent') }}).",
            "workspace": PREDICTED + "; the others (size {{ sizes | listed }}) are"
            " {{ excess | range }} MiB above it, about one more workspace of cuBLAS"
            " ({{ workspace | sig }} MiB), without which they are within {{ left | percent }}.",
            "outside": PREDICTED + "; the others (size {{ sizes | listed }}) are off by up to"
            " {{ [off.high, -off.low] | max | percent }}.",
        },
    ),
    Finding(
        name="memory_moment",
        question="When does the memory of a train step peak?",
        values=_moment,
        answer=lambda v: "turn" if v["near"].all else "not_everywhere",
        answers={
            "turn": f"{WHERE} the memory of a train step peaks where the forward ends: {PASSED}.",
            "not_everywhere": f"{WHERE} the memory of a train step peaks where the forward ends in"
            f" {{{{ near }}}} cells: {PASSED}.",
        },
        place=PAGE,
    ),
    Finding(
        name="memory_residual_stream",
        question="How many bytes does an element of the residual stream take?",
        values=_stream,
        answer=_stream_answer,
        answers={
            "four": STREAM + ", as the closed form says; a published write-up (003) counts 8.",
            "eight": STREAM + ", as a published write-up (003) counts; the closed form says 4.",
            "other": STREAM + "; the closed form says 4.",
        },
        place=PAGE,
    ),
)
