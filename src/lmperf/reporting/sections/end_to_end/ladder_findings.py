"""Findings of the ladder: what all rungs, the best of them and bf16 weights gain and cost."""

from __future__ import annotations

import pandas as pd

from lmperf.benchmarks import load
from lmperf.names import implementation_words, in_order
from lmperf.reporting import gates
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.findings import PAGE, SHORT, Finding, all_rows, measured, verdicts
from lmperf.reporting.numbers import (
    Spread,
    listed,
    percent,
    ratio,
    signed_percent,
)
from lmperf.reporting.sections.end_to_end.ladder import (
    BASE,
    adjacent,
    compared_rungs,
    pairs_of,
    rungs,
    series_of,
    with_rates,
)
from lmperf.reporting.sections.end_to_end.losses import (
    LOSS,
    NEAR,
    TOO_FEW,
    exact_rungs,
    growth,
    losses,
    raises,
    scattered,
    without_reference,
)
from lmperf.reporting.sections.end_to_end.ways import CELL, STEM
from lmperf.reporting.speedup import every, resolved, speedups
from lmperf.statistics import FASTER
from lmperf.transformer.rungs import RUNGS


def _shown(evidence: MachineEvidence) -> pd.DataFrame:
    """The valid rows of the ladder; raises NotMeasured if there are none."""
    rows = rungs(all_rows(evidence, STEM))
    return measured(rows[gates.shown(rows)])


def _top(evidence: MachineEvidence) -> pd.DataFrame:
    """Rows of the highest rung that has a speed-up over the lowest rung, with that speed-up."""
    rows = _shown(evidence)
    higher, base = reversed(RUNGS[1:]), series_of(BASE)
    found = (compared_rungs(evidence, rows, series_of(rung), base) for rung in higher)
    return measured(next((some for some in found if len(some)), pd.DataFrame()))


def _context(rows: pd.DataFrame) -> str:
    return f"context {rows['context_length'].iloc[0]:g}"


def _where(rows: pd.DataFrame) -> str:
    batches = rows["batch"].nunique() > 1
    return _context(rows) if batches else f"{_context(rows)}, batch {rows['batch'].iloc[0]:g}"


def _whole(evidence: MachineEvidence) -> dict:
    """Speed-ups of the highest rung over the lowest, its MFU, and by how much its loss grows."""
    rows = with_rates(evidence, _top(evidence))
    pairs = [*zip(rows["size"], rows["implementation"], strict=True)]
    raised = [pair for pair in pairs if raises(evidence, *pair)]
    known = raised or pairs
    growths = {g: pair[0] for pair in known if (g := growth(evidence, *pair)) is not None}
    return {
        "base": implementation_words(BASE.name),
        "top": implementation_words(rows["implementation"].iloc[0]),
        "sizes": _sizes(rows),
        "mfu": Spread.of(rows["mfu"].dropna()) if rows["mfu"].notna().any() else None,
        "burst": bool(rows["burst"].any()),
        "growth": max(growths, default=None),
        "grows_at": growths[max(growths)] if growths else "",
        "grows": bool(raised),
        "in_range": bool(growths) and max(growths) > NEAR and not raised,
        "falls": bool(growths) and min(growths) < -NEAR,
        "fall": -min(growths, default=0.0),
        "falls_at": growths[min(growths)] if growths else "",
        "steps": load(LOSS).stated["steps"],
        "near": NEAR,
        "lone": listed(lone) if (lone := without_reference(evidence, rows["size"])) else "",
        **_scatter(evidence),
        **verdicts(rows),
    }


def _sizes(rows: pd.DataFrame) -> str:
    return listed(in_order("size", rows["size"]))


def _most(evidence: MachineEvidence) -> dict:
    """The rung with the largest resolved speed-up over the previous rung, for each size.

    Left out are sizes at which another speed-up may be the largest: two adjacent rungs could not be
    compared, as if two GPUs timed them, or a larger speed-up is not resolved.
    """
    cells, rows = _top(evidence), _shown(evidence)
    cells = measured(cells[~cells["size"].isin(_not_compared(evidence, rows))])[CELL]
    found, of_all = (
        measured(pd.concat(steps).merge(cells, on=CELL))
        for steps in (
            [compared_rungs(evidence, rows, *pair, of=of) for pair in pairs_of(evidence, rows)]
            for of in (resolved, every)
        )
    )
    top, known = (some.groupby("size")["ratio"].max() for some in (of_all, found))
    open_ = top.index[top > known.reindex(top.index).fillna(0)]
    cells, found = (measured(some[~some["size"].isin(open_)]) for some in (cells, found))
    found = found[found["verdict"] == FASTER]
    if found.empty:
        return {"which": [], "by_size": [], "where": _where(cells), "sizes": _sizes(cells)}
    best = found.loc[found.groupby("size", sort=False)["ratio"].idxmax()]
    words = [implementation_words(name) for name in best["implementation"]]
    return {
        "where": _where(cells),
        "sizes": _sizes(cells),
        "which": list(dict.fromkeys(words)),
        "by_size": [
            f"{name} at {size} ({ratio(gain)})"
            for name, size, gain in zip(words, best["size"], best["ratio"], strict=True)
        ],
        "gain": Spread.of(best["ratio"]),
    }


def _not_compared(evidence: MachineEvidence, rows: pd.DataFrame) -> set[str]:
    """Sizes at which a rung and the rung before it were both timed, but have no speed-up.

    rows: the valid rows of the ladder.
    """
    found = set()
    for rung, base in adjacent(evidence, rows):
        ours, theirs = (having(rows, implementation=one.name) for one in (rung, base))
        cells = pd.MultiIndex.from_frame(theirs[CELL])
        both = ours[pd.MultiIndex.from_frame(ours[CELL]).isin(cells)]
        known = speedups(evidence, STEM, series_of(rung), series_of(base)).index
        found |= set(both.loc[~both.index.isin(known), "size"])
    return found


def _most_answer(values: dict) -> str:
    if not values["which"]:
        return "none"
    return "one" if len(values["which"]) == 1 else "by_size"


def _cost_in_loss(evidence: MachineEvidence) -> dict:
    """How far losses with bf16 weights lie outside the range of losses with float32 weights.

    Rungs with float32 weights differ in rounding only, so their range is the effect of rounding.
    Sizes at which it is too wide are left out. ``most`` is the largest relative distance from the
    range, ``apart`` the largest relative width.
    """
    known = losses(evidence)
    table = known.set_index("seed", append=True)["loss"].unstack("implementation")
    exact = table.columns.isin(exact_rungs())
    wide, narrow = table.loc[:, exact], table.loc[:, ~exact]
    wide, narrow = (side.dropna(how="all") for side in (wide, narrow))
    several = wide.index[wide.count(axis="columns") > 1]
    narrow = measured(narrow[narrow.index.isin(several)])
    wide = wide.loc[narrow.index]
    low, high = wide.min(axis="columns"), wide.max(axis="columns")
    above, below = narrow.max(axis="columns") / high - 1, narrow.min(axis="columns") / low - 1
    off, apart = above.where(above > 0, below.where(below < 0, 0.0)), high / low - 1
    off, apart = (some.droplevel("seed") for some in (off, apart))
    off, apart = (some[~some.index.isin([*scattered(evidence)])] for some in (off, apart))
    return {
        "steps": evidence.frame(LOSS)["step"].max(),
        "decided": len(off),
        "apart": apart.max(),
        "most": off.abs().max(),
        "by_size": [
            f"{size} {signed_percent(off[size])} ({percent(apart[size], 2)})"
            for size in in_order("size", off.index)
        ],
        **_scatter(evidence),
    }


def _scatter(evidence: MachineEvidence) -> dict:
    """The sizes whose losses decide nothing, and how far rounding alone moves them at most."""
    found = scattered(evidence)
    return {"scattered": listed(found) if found else "", "moved": max(found.values(), default=0.0)}


_SCATTER = (
    "{% if scattered %} At {{ scattered }} rounding alone changes the loss by up to"
    " {{ moved | percent(0) }}: it is no measure there.{% endif %}"
)
_WHOLE = (
    "The whole ladder ({{ base }} to {{ top }}) makes a step {{ gain | range('ratio') }} as fast"
    "{{ ' (burst)' if burst }} at {{ sizes }}"
)
# The loss stands beside every number that rests on it.
_MFU = (
    ".{% if mfu %} MFU is then {{ mfu | range('percent') }}{{ ' (burst)' if burst }}.{% endif %}"
    "{% if growth is none and (scattered or lone) %}"
    "{% elif growth is none %} Its loss was not measured."
    "{% elif grows %} But its bf16 weights raise the loss after {{ steps }} steps by"
    " up to {{ growth | percent }} ({{ grows_at }}).{% elif in_range %} Its loss is up to"
    " {{ growth | percent }} above the mean with float32 weights ({{ grows_at }}), about as far as"
    " rounding alone moves it.{% elif falls %} Its loss exceeds the"
    " mean with float32 weights by at most {{ near | percent(0) }}, and is up to"
    " {{ fall | percent }} lower ({{ falls_at }})."
    "{% else %} Its loss stays within"
    " {{ near | percent(0) }} of the mean with float32 weights.{% endif %}"
    "{% if lone %} At {{ lone }} its loss has no reference: " + TOO_FEW + ".{% endif %}" + _SCATTER
)
_LOSS = (
    "After {{ steps }} steps on the same tokens (one run per rung), losses with bf16 weights lie"
)


def _loss_answer(values: dict) -> str:
    if not values["decided"]:
        return "undecided"
    return "near" if values["most"] <= NEAR else "apart"


FINDINGS = (
    Finding(
        name="ladder",
        question="How much faster is a step with all techniques, and which MFU does it reach?",
        values=_whole,
        answer=lambda v: "all" if v["faster"].all else "none" if v["faster"].none else "some",
        answers={
            "all": _WHOLE + _MFU,
            "some": _WHOLE + ", at some sizes alone" + _MFU,
            "none": _WHOLE + ", faster at no size" + _MFU,
        },
        place=SHORT,
    ),
    Finding(
        name="ladder_most",
        question="Which rung of the ladder has the largest speed-up over the one before it?",
        values=_most,
        answer=_most_answer,
        answers={
            "one": "The largest speed-up of a ladder rung over the rung before it ({{ where }}) is"
            " that of {{ which | join }} at {{ sizes }}: {{ gain | range('ratio') }}.",
            "by_size": "The largest speed-up of a ladder rung over the rung before it"
            " ({{ where }}): {{ by_size | join(', ') }}.",
            "none": "No rung of the ladder ({{ where }}) is faster than the rung before it at"
            " {{ sizes }}.",
        },
        place=PAGE,
    ),
    Finding(
        name="ladder_loss",
        question="How much do bf16 weights change the loss?",
        values=_cost_in_loss,
        answer=_loss_answer,
        answers={
            "near": _LOSS + " within {{ most | percent(2) }} of the range of those with float32"
            " weights, which are up to {{ apart | percent(2) }} apart." + _SCATTER,
            "apart": _LOSS + " outside the range of those with float32 weights; distance from the"
            " range (and its width): {{ by_size | join(', ') }}." + _SCATTER,
            "undecided": "What bf16 weights cost in loss is not decided." + _SCATTER,
        },
        place=PAGE,
    ),
)
