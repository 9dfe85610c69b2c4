"""Findings on profiles: shares of softmax and matmuls, and kernel times saved by compiling."""

from __future__ import annotations

import pandas as pd

from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.findings import PAGE, SHORT, Finding, always, measured
from lmperf.reporting.sections.profiles.kernel_classes import COPY, ELEMENTWISE, MATMUL, REDUCTION
from lmperf.reporting.sections.profiles.rows import (
    CELL,
    by_class,
    cell_words,
    kind_of,
    matmul_shares,
    usual,
    usual_size,
)
from lmperf.reporting.sections.profiles.tables import attention_parts

STEP = {"phase": "train_step"}
# The share of matmuls in a train step that write-up 003 quotes.
RULE = "50 % to 70 %"


def _softmax(evidence: MachineEvidence) -> dict:
    parts = having(attention_parts(evidence), name="softmax")
    part = measured(having(parts, size=usual_size(parts))).iloc[-1]
    return {"time": part["share"], "flops": part["flops_share"], "cell": cell_words(part)}


def _matmuls(evidence: MachineEvidence) -> dict:
    """Shares of matmuls in the kernel time of eager train steps, and the published share."""
    steps = measured(having(by_class(evidence), implementation="eager", **STEP))
    return {"shares": matmul_shares(steps), "rule": RULE}


def _beside_eager(evidence: MachineEvidence, implementation: str) -> dict:
    """Kernel times of one train step: ``now`` for an implementation, ``eager`` for eager."""
    steps = having(usual(evidence), **STEP)
    row = measured(having(steps, implementation=implementation)).iloc[-1]
    same = {name: row[name] for name in CELL[:-1]}
    base = measured(having(steps, implementation="eager", **same)).iloc[0]
    values = {"cell": cell_words(row), "kind": kind_of(evidence)}
    return {**values, "now": _times(row), "eager": _times(base)}


def _times(row: pd.Series) -> dict[str, float]:
    around = row[[ELEMENTWISE, REDUCTION, COPY]].sum()
    return {"kernels": row["total_ms"], "matmuls": row[MATMUL], "around": around}


FINDINGS = (
    Finding(
        name="softmax_share",
        question="Which share of attention's time and FLOPs does softmax take?",
        values=_softmax,
        answer=always,
        answers={
            "is": "Softmax, mask and casts take {{ time | percent }} of plain"
            " attention's forward time, {{ flops | percent }} of its FLOPs ({{ cell }})."
        },
        place=SHORT,
    ),
    Finding(
        name="compiled_kernels",
        question="Which kernels does compiling shorten?",
        values=lambda evidence: _beside_eager(evidence, "compiled_blocks"),
        answer=always,
        answers={
            "is": "Compiled by block, a train step's {{ kind }}s take {{ now.kernels | sig }} ms,"
            " eager {{ eager.kernels | sig }} ms ({{ cell }}): matmuls {{ now.matmuls | sig }}"
            " against {{ eager.matmuls | sig }} ms; elementwise, reductions and copies"
            " {{ now.around | sig }} against {{ eager.around | sig }} ms."
        },
    ),
    Finding(
        name="matmul_rule",
        question="Does a published rule of thumb on the share of matmuls hold?",
        values=_matmuls,
        answer=always,
        answers={
            "is": "A published write-up (003) quotes {{ rule }} for matmuls in a train step; here"
            " (eager) {{ shares | listed }}."
        },
        place=PAGE,
    ),
)
