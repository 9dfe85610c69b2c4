"""Findings on md_lrpe_cosine: its speed relative to a copy, and the cost of caching angles."""

from __future__ import annotations

import pandas as pd

from lmperf.names import dtype_words, implementation_words
from lmperf.reporting import gates, marks
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.findings import SHORT, Finding, NotMeasured, measured, verdicts
from lmperf.reporting.numbers import Spread
from lmperf.reporting.sections.lrpe import shapes

# A share of copy speed this near to 1 counts as 1: the copies of two runs differ by as much.
NEAR_COPY = 0.02


def _rows(evidence: MachineEvidence) -> pd.DataFrame:
    """The rows that findings may rest on, in one dtype; raises NotMeasured without any."""
    frame = shapes.rows_of(evidence)
    if frame is None:
        raise NotMeasured
    rows = measured(frame[gates.shown(frame) & ~marks.doubtful(frame, shapes.STEM)])
    return having(rows, dtype=shapes.numerics(rows))


def _compared(evidence: MachineEvidence, name: str, base: str) -> pd.DataFrame:
    """The rows of large shapes of ``name``, with their resolved speed-up over ``base``."""
    rows = _rows(evidence)
    return measured(rows[rows["large"]].join(shapes.over(evidence, name, base), how="inner"))


def _by_phase(rows: pd.DataFrame) -> dict[str, Spread]:
    """The spread of the speed-ups of each phase; raises NotMeasured if a phase has no row."""
    parts = {phase: having(rows, phase=phase) for phase in ("forward", "backward")}
    return {phase: Spread.of(measured(part)["ratio"]) for phase, part in parts.items()}


def _copy(evidence: MachineEvidence) -> dict:
    rows = _rows(evidence)
    leads = shapes.leads(rows)
    if len(leads) < 2:
        raise NotMeasured
    lead, peer = leads[:2]
    shares = _compared(evidence, lead, "copy")
    numerics = f"{dtype_words(shapes.numerics(rows))}, {shapes.large_words(rows)}"
    return {
        **_by_phase(shares),
        "both": Spread.of(shares["ratio"]),
        "over": Spread.of(_compared(evidence, lead, peer)["ratio"]),
        "what": f"md_lrpe_cosine, {implementation_words(lead)} ({numerics})",
        "peer": implementation_words(peer),
    }


def _copy_answer(values: dict) -> str:
    def near(share: Spread) -> bool:
        return max(1 - share.low, share.high - 1) <= NEAR_COPY

    if not near(values["backward"]):
        return "shares"
    return "both" if near(values["forward"]) else "backward"


def _cached(evidence: MachineEvidence) -> dict:
    """Caching angles against recomputing them: speed-up and extra memory for large shapes."""
    rows = _rows(evidence)
    peaks = rows[rows["large"]].pivot_table("peak_mib", [*shapes.CELL, "phase"], "implementation")
    peaks = measured(peaks.reindex(columns=["triton_cached", "triton"]).dropna())
    return {
        **verdicts(_compared(evidence, "triton_cached", "triton")),
        "memory": Spread.of(peaks["triton_cached"] / peaks["triton"] - 1),
        "large": shapes.large_words(rows),
    }


def _cached_answer(values: dict) -> str:
    if values["slower"].all:
        return "costs"
    return "pays" if values["faster"].all else "either"


_OVER = "; {{ over | range('ratio') }} over {{ peer }}."
_TAKES = (
    " ({{ large }}): {{ gain | range('ratio') }} the speed, {{ memory | range('percent') }} more"
    " memory."
)

FINDINGS = (
    Finding(
        name="lrpe_copy",
        question="Which share of a copy's speed does it reach where it is memory-bound?",
        values=_copy,
        answer=_copy_answer,
        answers={
            "both": "{{ what }}: as fast as a copy, forward and backward" + _OVER,
            "backward": "{{ what }}: forward {{ forward | range('percent') }} of copy speed,"
            " backward equal" + _OVER,
            "shares": "{{ what }}: {{ both | range('percent') }} of copy speed" + _OVER,
        },
        place=SHORT,
    ),
    Finding(
        name="lrpe_cached",
        question="Does caching the angles for the backward pay?",
        values=_cached,
        answer=_cached_answer,
        answers={
            "costs": "Caching the angles does not pay" + _TAKES,
            "pays": "Caching the angles is faster" + _TAKES,
            "either": "Caching the angles is faster in {{ faster }} resolved comparisons" + _TAKES,
        },
    ),
)
