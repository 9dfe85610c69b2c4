"""The finding on what a larger batch gains: more computation to hide the same communication under.

Communication depends on the weights, computation on the tokens of a rank.
"""

from __future__ import annotations

import pandas as pd

from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.findings import SECTION, Finding, NotMeasured, measured, sound
from lmperf.reporting.sections.distributed import overlap, rows
from lmperf.reporting.sections.distributed.steps import best_over_one, head_cell

TABLES = ()


def _batches(evidence: MachineEvidence) -> dict:
    """Scaling and hidden share at the batch of the head table and at the largest one."""
    frame = sound(evidence, rows.STEM)
    few = best_over_one(evidence, head_cell(frame))
    same = {name: few[name] for name in ("size", "context_length", "dtype")}
    frame = having(frame, **same)
    frame = measured(frame[frame["ranks"].isin((1, few["ranks"]))])
    several = frame[(frame["ranks"] > 1) & (frame["batch"] > few["batch"])]
    batch = measured(several)["batch"].max()
    many = best_over_one(evidence, having(frame, batch=batch))
    hidden = [_hidden(evidence, few, one) for one in (few["batch"], batch)]
    return {
        "size": few["size"],
        "ranks": f"{few['ranks']:g}",
        "few": f"{few['batch']:g}",
        "many": f"{batch:g}",
        "share_of_few": few["ratio"] / few["ranks"],
        "share_of_many": many["ratio"] / many["ranks"],
        "higher": many["low"] > few["high"],
        "hidden_of_few": hidden[0],
        "hidden_of_many": hidden[1],
    }


def _hidden(evidence: MachineEvidence, like: pd.Series, batch: float) -> float | None:
    """The share of overlapped communication that is hidden at a batch; None if not decided.

    like: a row of the size and number of ranks.
    """
    try:
        ledger = overlap.largest(evidence, overlap.OVERLAPPED, batch)
    except NotMeasured:
        return None
    same = all(ledger[name] == like[name] for name in ("size", "ranks"))
    known = rows.decided(ledger.to_frame().T)
    share = float(ledger["hidden_share"])
    return None if known.empty or not same or pd.isna(share) else share


_WITH = (
    "At batch {{ many }}, a {{ size }} step on {{ ranks }} ranks reaches a scaling efficiency of"
    " {{ share_of_many | percent(0) }}. At batch {{ few }} it is {{ share_of_few | percent(0) }}."
)
_HIDES = (
    "{% if hidden_of_few is not none and hidden_of_many is not none %} Overlapped by hooks,"
    " {{ hidden_of_many | percent(0) }} of the communication is hidden then, at batch {{ few }}"
    " {{ hidden_of_few | percent(0) }}.{% endif %}"
)
FINDINGS = (
    Finding(
        name="distributed_batch",
        question="What does a larger batch gain?",
        values=_batches,
        answer=lambda v: "higher" if v["higher"] else "alike",
        answers={
            "higher": _WITH + _HIDES + " So give each rank as many sequences as fit.",
            "alike": _WITH + _HIDES + " A larger batch does not help here.",
        },
        place=SECTION,
    ),
)
