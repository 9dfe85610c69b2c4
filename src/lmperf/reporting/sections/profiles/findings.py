"""Findings on profiles: softmax, matmuls, what compiling saves, where the device is idle."""

from __future__ import annotations

import pandas as pd

from lmperf.names import implementation_words
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.findings import PAGE, SHORT, Finding, NotMeasured, always, measured
from lmperf.reporting.sections.profiles.kernel_classes import (
    CLASSES,
    COPY,
    ELEMENTWISE,
    MATMUL,
    OTHER,
    REDUCTION,
)
from lmperf.reporting.sections.profiles.rows import (
    CELL,
    KERNEL,
    by_class,
    cell_words,
    kind_of,
    matmul_shares,
    usual,
    usual_size,
)
from lmperf.reporting.sections.profiles.tables import attention_parts

STEP = {"phase": "train_step"}
# Compiled implementations that are profiled, the one with more techniques last.
COMPILED = ("compiled_blocks", "sdpa_compiled_blocks")
# The share of matmuls in a train step that write-up 003 quotes.
RULE = "50 % to 70 %"
# Matmul times this near to each other are alike; a share of time this many times that of FLOPs
# is due to memory; a device idle for more than this fraction waits for the host.
ALIKE, MUCH_MORE, HOST_DECIDES = 0.1, 5, 0.1


def _softmax(evidence: MachineEvidence) -> dict:
    parts = having(attention_parts(evidence), name="softmax")
    part = measured(having(parts, size=usual_size(parts))).iloc[-1]
    cell = cell_words(part) + (", stale" if part.get("stale", False) else "")
    return {"time": part["share"], "flops": part["flops_share"], "cell": cell}


def _matmuls(evidence: MachineEvidence) -> dict:
    """Shares of matmuls in the kernel time of eager train steps, and the published share."""
    steps = measured(having(by_class(evidence), implementation="eager", **STEP))
    return {"shares": matmul_shares(steps), "rule": RULE, "stale": bool(steps["stale"].any())}


def _compiled(evidence: MachineEvidence) -> dict:
    """A train step compiled by block (``now``) and eager: launches, matmuls, all other kernels."""
    steps = having(usual(evidence), **STEP)
    row = measured(having(steps, implementation="compiled_blocks")).iloc[-1]
    same = {name: row[name] for name in CELL[:-1]}
    base = measured(having(steps, implementation="eager", **same)).iloc[0]
    values = {"cell": cell_words(row), "kind": kind_of(evidence)}
    values["stale"] = bool(row["stale"] or base["stale"])
    return {**values, "now": _times(row), "eager": _times(base)}


def _times(row: pd.Series) -> dict[str, float]:
    around = row[[ELEMENTWISE, REDUCTION, COPY]].sum()
    return {**row[["launches", "idle"]], "matmuls": row[MATMUL], "around": around}


def _compiled_answer(values: dict) -> str:
    now, eager = values["now"], values["eager"]
    stays = abs(now["matmuls"] / eager["matmuls"] - 1) <= ALIKE
    return "around" if stays and now["around"] < eager["around"] else "is"


def _left(evidence: MachineEvidence) -> dict:
    """Shares of the kernel time of the most compiled train step: matmuls, and the next class."""
    steps = having(usual(evidence), **STEP)
    steps = measured(having(steps, implementation=COMPILED))
    step = steps.loc[steps["implementation"].map(COMPILED.index).idxmax()]
    others = step[[name for name in CLASSES if name not in (MATMUL, OTHER)]].astype(float)
    way = implementation_words(step["implementation"], CELL)
    return {
        "way": way.capitalize() if step["implementation"] == COMPILED[0] else f"With {way}",
        "cell": cell_words(step),
        "stale": bool(step["stale"]),
        "matmuls": step[MATMUL] / step["total_ms"],
        "next": CLASSES[others.idxmax()].words,
        "share": others.max() / step["total_ms"],
    }


def _idle(evidence: MachineEvidence) -> dict:
    """The train step of the head table that leaves the device idle for the largest share."""
    if kind_of(evidence) != KERNEL:
        raise NotMeasured
    steps = having(usual(evidence), **STEP)
    most = measured(steps.dropna(subset=["idle"])).sort_values("idle", kind="stable").iloc[-1]
    if steps["withheld"].any() and most["idle"] <= HOST_DECIDES:
        raise NotMeasured  # a step whose idle time is withheld may be the one that waits
    return {
        "idle": most["idle"],
        "way": implementation_words(most["implementation"], CELL),
        "size": most["size"],
        "context": most["context_length"],
        "stale": bool(most["stale"]),
        "interval": 1e3 * most["wall_ms"] / most["launches"],
    }


_COMPILED = "{{ way }}, a train step spends"
CELL_WORDS = " ({{ cell }}{{ ', stale' if stale }})."
FINDINGS = (
    Finding(
        name="compiled_kernels",
        question="Which kernels does compiling shorten?",
        values=_compiled,
        answer=_compiled_answer,
        answers={
            "around": "Compiling by block leaves matmuls at {{ now.matmuls | sig }} ms a train step"
            + CELL_WORDS
            + " Elementwise, reductions and copies fall from {{ eager.around | sig }} to"
            " {{ now.around | sig }} ms.",
            "is": "Compiling by block changes matmuls from {{ eager.matmuls | sig }} to"
            " {{ now.matmuls | sig }} ms a train step"
            + CELL_WORDS
            + " Elementwise, reductions and copies change from {{ eager.around | sig }} to"
            " {{ now.around | sig }} ms.",
        },
        place=SHORT,
    ),
    Finding(
        name="compiled_left",
        question="What takes the time of a compiled step?",
        values=_left,
        answer=lambda v: "matmuls" if v["matmuls"] >= v["share"] else "other",
        answers={
            "matmuls": _COMPILED
            + " {{ matmuls | percent }} of its kernel time in matmuls"
            + CELL_WORDS
            + " Next: {{ next }}, {{ share | percent }}.",
            "other": _COMPILED + " {{ share | percent }} of its kernel time in one class:"
            " {{ next }}" + CELL_WORDS + " Matmuls take"
            " {{ matmuls | percent }}.",
        },
    ),
    Finding(
        name="compiled_launches",
        question="How many launches does compiling save?",
        values=_compiled,
        answer=lambda v: "fewer" if v["now"]["launches"] < v["eager"]["launches"] else "more",
        answers={
            answer: "{{ '{:,.0f}'.format(eager.launches) }} {{ kind }}s of an eager train step"
            f" become {{{{ '{{:,.0f}}'.format(now.launches) }}}}{words}{CELL_WORDS}"
            for answer, words in (("fewer", ": fused ones keep values in registers"), ("more", ""))
        },
        place=PAGE,  # the section on steps says how many launches compiling saves
    ),
    Finding(
        name="softmax_share",
        question="Which share of attention's time and FLOPs does softmax take?",
        values=_softmax,
        answer=lambda v: "moves" if v["time"] > MUCH_MORE * v["flops"] else "is",
        answers={
            "moves": "Softmax, mask and casts take {{ time | percent }} of plain attention's"
            " forward for {{ flops | percent }} of its FLOPs: they move memory ({{ cell }}).",
            "is": "Softmax, mask and casts take {{ time | percent }} of plain"
            " attention's forward time, {{ flops | percent }} of its FLOPs ({{ cell }}).",
        },
    ),
    Finding(
        name="device_idle",
        question="Which train step leaves the device idle?",
        values=_idle,
        answer=lambda v: "waits" if v["idle"] > HOST_DECIDES else "busy",
        answers={
            "waits": "Train step, {{ way }}: the device is idle for {{ idle | percent(0) }} of"
            " the time; the host launches a kernel every {{ interval | sig }} µs ({{ size }},"
            " context {{ context }}{{ ', stale' if stale }}).",
            "busy": "No train step leaves the device idle for more than {{ idle | percent(0) }} of"
            " its time.",
        },
    ),
    Finding(
        name="matmul_rule",
        question="Does a published rule of thumb on the share of matmuls hold?",
        values=_matmuls,
        answer=always,
        answers={
            "is": "A published write-up (003) quotes {{ rule }} for matmuls in a train step."
            " Here (eager): {{ shares | join(', ') }}."
            "{{ ' These shares are stale.' if stale }}"
        },
        place=PAGE,
    ),
)
