"""What the profiles say: of softmax and matmuls, of compiling, of the optimizer, of the host."""

from __future__ import annotations

import pandas as pd

from lmperf.names import in_order
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.findings import PAGE, SHORT, Finding, NotMeasured, frame_of, measured
from lmperf.reporting.kernel_classes import COPY, ELEMENTWISE, MATMUL, OPTIMIZER, REDUCTION
from lmperf.reporting.numbers import Spread, percent
from lmperf.reporting.sections.profiles.shares import (
    CELL,
    KERNELS,
    STEM,
    by_class,
    kind_of,
    usual_size,
    where_words,
)
from lmperf.reporting.sections.profiles.tables import attention_parts

FULL = "float32"
# Less than this share of the wall time: the device waits for the host.
BUSY = 0.9
# What write-up 003 passes on of matmuls: of inference, and of a step of training.
RULE = {"forward": (0.8, 0.9), "train_step": (0.5, 0.7)}


def _cases(evidence: MachineEvidence, **where) -> pd.DataFrame:
    """The rows of ``by_class`` with these values; raises NotMeasured where there is none."""
    frame_of(evidence, STEM)
    return measured(having(measured(by_class(evidence)), **where))


def _softmax(evidence: MachineEvidence) -> dict:
    size = usual_size(_cases(evidence))
    steps = _cases(evidence, size=size, implementation="eager", phase="train_step")
    matmuls = (steps[MATMUL] / steps["total_ms"]).set_axis(steps["dtype"])
    parts = having(attention_parts(evidence), size=size, name="softmax")
    low = in_order("dtype", set(matmuls.index) & set(parts["dtype"]))
    if not low:
        raise NotMeasured
    part = having(parts, dtype=low[-1]).iloc[0]
    return {
        "size": size,
        "time": part["share"],
        "flops": part["flops_share"],
        "low": low[-1],
        "matmul": matmuls[low[-1]],
        "full": FULL,
        "matmul_full": matmuls.get(FULL) if low[-1] != FULL else None,
    }


def _compiling(evidence: MachineEvidence) -> dict:
    """Time of the kernels of a train step, eager and compiled, in the lowest numerics of both."""
    size = usual_size(_cases(evidence))
    steps = _cases(evidence, size=size, phase="train_step")
    compiled = measured(steps[steps["implementation"].str.contains("compiled")]).iloc[-1]
    cell = {name: compiled[name] for name in CELL[:-1]}
    base = _cases(evidence, **cell, implementation="eager", phase="train_step").iloc[0]
    values = {"size": size, "dtype": compiled["dtype"], "name": compiled["implementation"]}
    values["what"] = kind_of(evidence)
    for name, row in (("before", base), ("after", compiled)):
        around = row[[ELEMENTWISE, REDUCTION, COPY]].sum()
        values |= {name: row["total_ms"], f"around_{name}": around, f"matmul_{name}": row[MATMUL]}
    return values


def _optimizer(evidence: MachineEvidence) -> dict:
    steps = _cases(evidence, phase="train_step")
    share = steps[OPTIMIZER] / steps["total_ms"]
    most = share.idxmax()
    return {
        "share": Spread.of(share),
        "where": where_words(steps.loc[most]),
        "what": kind_of(evidence),
    }


def _busy(evidence: MachineEvidence) -> dict:
    if kind_of(evidence) != KERNELS:
        raise NotMeasured
    steps = _cases(evidence, phase="train_step")
    busy = steps["total_ms"] / steps["wall_ms"]
    return {"busy": Spread.of(busy), "where": where_words(steps.loc[busy.idxmin()])}


def _rule(evidence: MachineEvidence) -> dict:
    rows = _cases(evidence, implementation="eager", dtype=FULL)
    values = {}
    for phase, (low, high) in RULE.items():
        own = measured(having(rows, phase=phase))
        values[phase] = Spread.of(own[MATMUL] / own["total_ms"])
        values[f"{phase}_rule"] = f"{percent(low, 0)} to {percent(high, 0)}"
    return values


def _rule_answer(values: dict) -> str:
    if all(low <= values[p].low and values[p].high <= high for p, (low, high) in RULE.items()):
        return "within"
    step, (low, high) = values["train_step"], RULE["train_step"]
    if step.low > high:
        return "above"
    return "below" if step.high < low else "partly"


SOFTMAX = (
    "Softmax takes {{ time | percent }} of plain attention's forward ({{ size }},"
    " {{ low | numerics }}) with {{ flops | percent }} of its FLOPs; matmuls {{ matmul | percent }}"
    " of a train step"
)
COMPILING = (
    "{{ name | implementation | capitalize }} ({{ size }}, {{ dtype | numerics }}), the"
    " {{ what }} of a train step take {{ after | sig }} ms, not compiled {{ before | sig }} ms:"
)
PARTS = (
    " elementwise, reductions and copies {{ around_after | sig }} against"
    " {{ around_before | sig }} ms, matmuls {{ matmul_after | sig }} against"
    " {{ matmul_before | sig }} ms."
)
OPTIMIZER_SHARE = (
    "The optimizer takes {{ share | range('percent') }} of the time of {{ what }} in a train step"
)
PUBLISHED_RULE = (
    "A published write-up (003) quotes a rule of thumb: matmuls take {{ forward_rule }} of"
    " inference and {{ train_step_rule }} of a train step. Here (float32, not compiled) they take"
    " {{ forward | range('percent') }} of a forward and {{ train_step | range('percent') }} of a"
    " train step"
)

FINDINGS = (
    Finding(
        name="softmax_and_matmuls",
        question="What do softmax and matmuls take of the time?",
        values=_softmax,
        answer=lambda v: "one" if v["matmul_full"] is None else "two",
        answers={
            "two": SOFTMAX + ", {{ matmul_full | percent }} in {{ full | numerics }}.",
            "one": SOFTMAX + ".",
        },
        place=SHORT,
    ),
    Finding(
        name="compiled_kernels",
        question="Which kernels does compiling shorten?",
        values=_compiling,
        answer=lambda v: "around" if v["around_after"] < v["around_before"] else "none",
        answers={
            "around": COMPILING + PARTS,
            "none": COMPILING + " what surrounds the matmuls gets no shorter," + PARTS,
        },
    ),
    Finding(
        name="optimizer_share",
        question="What does the optimizer take of a train step?",
        values=_optimizer,
        answer=lambda v: "several" if v["share"].low < v["share"].high else "one",
        answers={
            "several": OPTIMIZER_SHARE + ", the most at {{ where }}.",
            "one": OPTIMIZER_SHARE + ".",
        },
    ),
    Finding(
        name="device_busy",
        question="Does the device wait for the host?",
        values=_busy,
        answer=lambda v: "waits" if v["busy"].low < BUSY else "works",
        answers={
            "waits": "In a train step the device is busy {{ busy | range('percent') }} of the wall"
            " time; it waits for the host the most at {{ where }}.",
            "works": "In a train step the device is busy {{ busy | range('percent') }} of the wall"
            " time: the host keeps up.",
        },
    ),
    Finding(
        name="matmul_rule",
        question="Does a published rule of thumb on matmuls hold?",
        values=_rule,
        answer=_rule_answer,
        answers={
            "within": PUBLISHED_RULE + ", as it says.",
            "above": PUBLISHED_RULE + ": more of the step than it says.",
            "below": PUBLISHED_RULE + ": less of the step than it says.",
            "partly": PUBLISHED_RULE + ", not everywhere what it says.",
        },
        place=PAGE,
    ),
)
