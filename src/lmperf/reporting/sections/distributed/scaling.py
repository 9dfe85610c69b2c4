"""Findings on scaling: what several ranks gain over one, what limits it, and a larger batch.

Communication and the update depend on the weights, other computation on the tokens of a rank: a
larger batch has more computation to hide the same communication under.
"""

from __future__ import annotations

import pandas as pd

from lmperf.names import implementation_words
from lmperf.reporting.comparable import devices
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.findings import SHORT, Finding, NotMeasured, measured, sound
from lmperf.reporting.sections.distributed import overlap, rows
from lmperf.reporting.sections.distributed.rows import COMPILED, ONE, STEM
from lmperf.reporting.sections.distributed.steps import cell_words, head_cell
from lmperf.reporting.speedup import every, resolved
from lmperf.statistics import FASTER, UNRESOLVED

TABLES = ()


def _best_over_one(evidence: MachineEvidence, cell: pd.DataFrame) -> pd.Series:
    """The row of a cell with the largest resolved speed-up over one rank, with that speed-up."""
    parts = [resolved(evidence, STEM, *pair) for pair in rows.pairs(measured(cell), ONE)]
    found = pd.concat([cell.iloc[:0], *parts])
    found = measured(found[found.index.isin(cell.index)])
    return found.loc[found["ratio"].idxmax()]


def _scaling(evidence: MachineEvidence) -> dict:
    """The strategy of the head cell with the largest speed-up over one rank.

    Without a speed-up of any strategy, every one must be resolved: the others might be faster.
    """
    best = _best_over_one(evidence, head_cell(sound(evidence, STEM)))
    if best["verdict"] != FASTER and _has_unresolved(evidence):
        raise NotMeasured
    faster = _faster_elsewhere(evidence, best)
    if best["verdict"] != FASTER and faster:
        raise NotMeasured
    return {
        **cell_words(best.to_frame().T),
        "best": implementation_words(best["implementation"]),
        "ratio": best["ratio"],
        "share": best["ratio"] / best["ranks"],
        "verdict": best["verdict"],
        "elsewhere": [implementation_words(name) for name in faster],
        **_limit(evidence, best),
    }


def _faster_elsewhere(evidence: MachineEvidence, best: pd.Series) -> list[str]:
    """Strategies with a shorter step than ``best`` that other GPUs timed than those of one rank.

    best: a row with a speed-up over one rank; the others have none.
    """
    cell = {name: best[name] for name in rows.CELL}
    frame = having(sound(evidence, STEM), **cell)
    frame = frame[frame["sustained_ms"] < best["sustained_ms"]]
    compared = [every(evidence, STEM, *pair).index for pair in rows.pairs(frame, ONE)]
    for labels in compared:
        frame = frame.drop(labels, errors="ignore")
    device = devices(evidence, STEM)
    return [*frame.loc[device[frame.index] != device[best.name], "implementation"]]


def _has_unresolved(evidence: MachineEvidence) -> bool:
    """Whether a speed-up in the head cell over one rank is not resolved."""
    cell = head_cell(evidence.frame(STEM))
    found = pd.concat([every(evidence, STEM, *pair) for pair in rows.pairs(cell, ONE)])
    return bool((found[found.index.isin(cell.index)]["verdict"] == UNRESOLVED).any())


def _limit(evidence: MachineEvidence, best: pd.Series) -> dict:
    """The speed-up of data parallel training if all its communication were hidden; None: unknown.

    A rank then takes as long as it computes or communicates (D5), whichever is longer. It computes
    its part of the batch, and the update of all weights, which does not become shorter.
    Communication beside it makes the computation slower, so the speed-up is no bound. Like
    ``best``, it is that of compiled steps over a compiled one. It is unknown if other GPUs profiled
    the step than timed that of one rank, or if the profiler changed the step (`rows.decided`).
    """
    if not best["implementation"].endswith(COMPILED):
        return {"all_hidden": None}
    cell = {name: best[name] for name in rows.CELL}
    strategy = overlap.OVERLAPPED + COMPILED
    ledger = having(sound(evidence, rows.LEDGER), table="ledger", implementation=strategy, **cell)
    ledger = rows.decided(rows.with_timed(evidence, ledger))
    one = having(sound(evidence, STEM), implementation=ONE + COMPILED, **{**cell, "ranks": 1})
    if ledger.empty or one["sustained_ms"].isna().all():
        return {"all_hidden": None}
    timed, profiled = (
        devices(evidence, stem)[part.index[0]]
        for stem, part in ((STEM, one), (rows.LEDGER, ledger))
    )
    if profiled != timed:
        return {"all_hidden": None}
    computing, sending = (
        float(ledger[name].iloc[0]) for name in ("compute_ms", "communication_ms")
    )
    return {
        "computing": computing,
        "sending": sending,
        "all_hidden": float(one["sustained_ms"].iloc[0]) / max(computing, sending),
    }


def _batches(evidence: MachineEvidence) -> dict:
    """Scaling and hidden share at the batch of the head table and at the largest one.

    Raises NotMeasured if the best strategy is unknown at one of the two: see `_faster_elsewhere`.
    """
    frame = sound(evidence, STEM)
    few = _best_over_one(evidence, head_cell(frame))
    same = {name: few[name] for name in ("size", "context_length", "dtype")}
    frame = having(frame, **same)
    frame = measured(frame[frame["ranks"].isin((1, few["ranks"]))])
    several = frame[(frame["ranks"] > 1) & (frame["batch"] > few["batch"])]
    batch = measured(several)["batch"].max()
    many = _best_over_one(evidence, having(frame, batch=batch))
    if _faster_elsewhere(evidence, few) or _faster_elsewhere(evidence, many):
        raise NotMeasured
    hidden = [_hidden(evidence, few, one) for one in (few["batch"], batch)]
    return {
        "size": few["size"],
        "ranks": f"{few['ranks']:g}",
        "few": f"{few['batch']:g}",
        "many": f"{batch:g}",
        "best_of_few": implementation_words(few["implementation"]),
        "best_of_many": implementation_words(many["implementation"]),
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
    " {{ share_of_many | percent(0) }} ({{ best_of_many }}). At batch {{ few }} it is"
    " {{ share_of_few | percent(0) }}{% if best_of_few != best_of_many %} ({{ best_of_few }})"
    "{% endif %}."
)
_HIDES = (
    "{% if hidden_of_few is not none and hidden_of_many is not none %} Hooks hide"
    " {{ hidden_of_many | percent(0) }} of the communication at batch {{ many }}. At batch"
    " {{ few }} they hide {{ hidden_of_few | percent(0) }}.{% endif %}"
)
_ELSEWHERE = (
    "{% if elsewhere %} Shorter, but timed on other GPUs than one rank and not compared:"
    " {{ elsewhere | join('; ') }}.{% endif %}"
)
_ON = "On {{ ranks }} ranks a {{ size }} step is {{ ratio | ratio }}"
_HIDDEN = (
    "{% if all_hidden %} Data parallel, hiding all communication would give about"
    " {{ all_hidden | ratio }}.{% if sending > computing %} Communication takes"
    " {{ sending | sig }} ms, more than the {{ computing | sig }} ms of computation."
    "{% else %} A rank still computes for {{ computing | sig }} ms: the update of"
    " all weights does not shrink with its part of the batch.{% endif %}{% endif %}"
)
FINDINGS = (
    Finding(
        name="distributed_scaling",
        question="How much faster is a step on all ranks than on one?",
        values=_scaling,
        answer=lambda v: "faster" if v["verdict"] == FASTER else "no_faster",
        answers={
            "faster": _ON + " as fast as on one ({{ best }}): a scaling efficiency of"
            " {{ share | percent(0) }}." + _ELSEWHERE + _HIDDEN,
            "no_faster": _ON + " as fast as on one with the best strategy ({{ best }})." + _HIDDEN,
        },
        place=SHORT,
    ),
    Finding(
        name="distributed_batch",
        question="What does a larger batch gain?",
        values=_batches,
        answer=lambda v: "higher" if v["higher"] else "alike",
        answers={
            "higher": _WITH
            + _HIDES
            + " So give each rank as many sequences as fit, if your training allows a"
            " larger batch.",
            "alike": _WITH + _HIDES + " A larger batch does not help here.",
        },
        place=SHORT,
    ),
)
