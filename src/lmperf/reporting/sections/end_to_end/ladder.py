"""Table E6 and findings of the ladder, whose rungs are train steps that each add a technique.

The rungs of a size, context and batch are rows of `end_to_end`. They are compared by their
sustained times; without these, by single calls that were timed in turn.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

import pandas as pd

from lmperf.benchmarks import load
from lmperf.dtypes import dtype_of
from lmperf.names import implementation_words, in_order
from lmperf.reporting import gates
from lmperf.reporting.ceilings import SUSTAINED, matmul_ceiling, sheet_ceiling
from lmperf.reporting.evidence import MachineEvidence, groups, having
from lmperf.reporting.findings import PAGE, SHORT, Finding, all_rows, measured, verdicts
from lmperf.reporting.numbers import (
    Spread,
    listed,
    percent,
    precise,
    ratio,
    signed_percent,
)
from lmperf.reporting.sections.end_to_end import ways
from lmperf.reporting.sections.end_to_end.ways import CELL, STEM, STEP
from lmperf.reporting.side_by_side import (
    Beside,
    each,
    memory,
    side_by_side,
    speedup,
    step_time,
    time,
)
from lmperf.reporting.speedup import Series, compared, resolved, speedup_cells
from lmperf.reporting.tables import (
    STEPS,
    Owed,
    TableGroup,
    step_times,
    value_cells,
)
from lmperf.results import LOWER, Cell, Table
from lmperf.statistics import FASTER
from lmperf.transformer.rungs import FLOAT8, RUNGS, STEPS_ALONE, Rung

LOSS = "ladder_loss"
BASE = RUNGS[0]
_FLOAT8_WORDS = (
    f"The lines with FP8 are over {implementation_words(RUNGS[-1].name)}. Published gains of FP8:"
    " 1.31x (llmq, 3B), 1.25x tensorwise and 1.10x rowwise (torchao, 8B), 0.90x rowwise (nanochat)."
)
# A loss within this fraction of the losses with float32 weights counts as equal.
NEAR = 0.01


def rungs(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of `end_to_end` that are rungs, with the rung's name as ``implementation``.

    They are the train steps of cells in which an implementation of the ladder alone was configured.
    """
    alone = having(frame, phase=STEP, implementation=set(STEPS_ALONE))
    named = techniques(frame)
    here = pd.MultiIndex.from_frame(named[CELL]).isin(pd.MultiIndex.from_frame(alone[CELL]))
    return named[here]


def techniques(frame: pd.DataFrame) -> pd.DataFrame:
    """The train steps of any cell in the ways of the rungs, named as in ``rungs``."""
    return _named(frame, RUNGS)


def _named(frame: pd.DataFrame, of: Sequence[Rung]) -> pd.DataFrame:
    names = {(rung.dtype, rung.implementation): rung.name for rung in of}
    steps = having(frame, phase=STEP)
    pairs = zip(steps["dtype"], steps["implementation"], strict=True)
    named = steps.assign(implementation=pd.Series(map(names.get, pairs), steps.index, dtype=object))
    return named[named["implementation"].notna()]


def tables(evidence: MachineEvidence) -> list[Table]:
    """Tables E6: one for each size, context and batch, with a line for each rung of the ladder."""
    frame = evidence.frame(STEM)
    if frame is None:
        return []
    lines = pd.concat([rungs(frame), _named(frame, FLOAT8)])
    frame, found = _with_rates(evidence, lines), losses(evidence)
    return each(*(_cell(evidence, rows, found) for *_, rows in groups(frame, *CELL)))


def _with_rates(evidence: MachineEvidence, frame: pd.DataFrame) -> pd.DataFrame:
    return ways.with_rates(evidence, frame.assign(dtype=_fastest_numerics(evidence)))


def _fastest_numerics(evidence: MachineEvidence) -> str:
    """The ladder's dtype with the highest matmul rate; the MFU of every rung is over this rate.

    The rate is the data sheet's, else the measured matmul ceiling. Were MFU over the rate of each
    rung's own dtype, a faster rung could have a lower MFU.
    """

    def most(dtype: str) -> float:
        promised = sheet_ceiling(evidence, dtype)
        return promised or matmul_ceiling(evidence, dtype, SUSTAINED) or 0.0

    return max(dict.fromkeys(rung.dtype for rung in RUNGS), key=most)


def _cell(evidence: MachineEvidence, rows: pd.DataFrame, losses: pd.DataFrame) -> Table | None:
    lasting = ways.sustained(rows[~rows["burst"]])
    columns = [
        step_time("burst", step_times(rows), STEP),
        time("sustained", lasting, f"{STEP}.sustained"),
        *ways.stretch(rows, STEP),
        speedup("over the rung above", _over_previous(evidence, rows), f"{STEP}.over.previous"),
        *ways.rates(rows, STEP),
        ways.share_of_matmul(rows, STEP),
        memory("peak memory", value_cells(rows, ways.peak(rows)), f"{STEP}.peak", "GiB"),
    ]
    replaces = "; autocast replaces TF32" if "tf32" in set(rows["implementation"]) else ""
    of = ways.denominators(evidence, _fastest_numerics(evidence))
    note = f"{STEPS} {ways.LASTING if len(lasting) else ''}"
    note += f"Each line adds a technique to the one above it{replaces}{of}."
    if set(rows["implementation"]) & {rung.name for rung in FLOAT8}:
        note += f" {_FLOAT8_WORDS}"
    size = rows["size"].iloc[0]
    if size in losses.index.get_level_values("size"):
        known = losses.loc[size]
        names = rows["implementation"][rows["implementation"].isin(known.index)]
        cells = [loss_cell(*known.loc[name, ["loss", "base"]]) for name in names]
        cells = pd.Series(cells, names.index, dtype=object)
        columns.append(Beside("loss (over float32)", cells, "loss", "", "precise", LOWER))
        note += f" {_loss_words(evidence, size)}"
        if len(cells) < len(rows) and not evidence.missing.get(LOSS):
            note += " A dash: no loss is configured."
    caption = "The ladder" + "".join(
        f", {name} {rows[axis].iloc[0]}"
        for axis, name in zip(CELL, ("size", "context", "batch"), strict=True)
    )
    return side_by_side(caption, rows, ["implementation"], columns, note)


def _series(rung: Rung) -> Series:
    return Series.of(dtype=rung.dtype, implementation=rung.implementation)


def _pairs(rows: pd.DataFrame) -> Iterator[tuple[Series, Series]]:
    """Each rung that these rows contain and the rung before it; of float8 the highest rung."""
    names = set(rows["implementation"])
    there = [_series(rung) for rung in RUNGS if rung.name in names]
    yield from ((rung, before) for before, rung in itertools.pairwise(there))
    yield from ((_series(rung), _series(RUNGS[-1])) for rung in FLOAT8 if rung.name in names)


def _over_previous(evidence: MachineEvidence, rows: pd.DataFrame) -> pd.Series:
    """The speed-up of each rung over the previous rung that these rows contain."""
    cells = [speedup_cells(evidence, STEM, rung, before) for rung, before in _pairs(rows)]
    found = pd.concat([pd.Series(dtype=object), *cells])
    return found[found.index.isin(rows.index)]


def _compared(
    evidence: MachineEvidence,
    rows: pd.DataFrame,
    rung: Series,
    base: Series,
    of: Callable[..., pd.DataFrame] = compared,
) -> pd.DataFrame:
    """The ``rows`` (from ``rungs``) of a rung that have a speed-up over the base, with it.

    of: ``compared`` for a statement on the whole rung, ``resolved`` for one on single rows.
    """
    found = of(evidence, STEM, rung, base)
    found = found[found.index.isin(rows.index)]
    return found.assign(implementation=rows["implementation"].reindex(found.index))


def losses(evidence: MachineEvidence) -> pd.DataFrame:
    """A data frame of losses at the last recorded step, indexed by size and rung.

    Columns: ``loss``; ``seed``, which determines the tokens; ``base``, the mean loss of the rungs
    with float32 weights on the same tokens, NaN if there is none. These rungs differ in rounding
    only, which training amplifies, so their mean is a better reference than one of them.
    """
    frame = evidence.frame(LOSS)
    if frame is None:
        nothing = pd.MultiIndex.from_tuples([], names=["size", "implementation"])
        return pd.DataFrame({"loss": [], "seed": [], "base": []}, nothing)
    frame = frame[gates.shown(frame)]
    last = having(frame, step=frame["step"].max())
    exact = last["loss"].where(last["implementation"].isin(_exact_rungs()))
    base = exact.groupby([last["size"], last["seed"]]).transform("mean")
    return last.assign(base=base).set_index(["size", "implementation"])[["loss", "seed", "base"]]


def growth(evidence: MachineEvidence, size: str, rung: str | None) -> float | None:
    """By how much a rung's loss exceeds that with float32 weights, as a fraction; None: unknown."""
    found = losses(evidence)
    over = (found["loss"] / found["base"] - 1).dropna()
    return over.get((size, rung))


def growth_words(evidence: MachineEvidence, rows: pd.DataFrame) -> str:
    """For a note: how much bf16 weights raise the loss at the sizes of these rows, if they do."""
    rung = next(r.name for r in RUNGS if dtype_of(r.dtype).storage != "float32")
    found = {size: growth(evidence, size, rung) for size in in_order("size", rows["size"])}
    grown = [f"{size} {signed_percent(g)}" for size, g in found.items() if g and g > NEAR]
    return f" bf16 weights raise the loss: {', '.join(grown)} (E6)." if grown else ""


def _exact_rungs() -> list[str]:
    return [rung.name for rung in RUNGS if dtype_of(rung.dtype).storage == "float32"]


def loss_cell(loss: float, base: float) -> Cell:
    """A cell with a loss; one that is apart from `base`, NaN if unknown, says by how much."""
    far = loss / base - 1
    words = precise(loss) + (f" ({signed_percent(far)})" if abs(far) > NEAR else "")
    return Cell(words, float(loss))


def _loss_words(evidence: MachineEvidence, size: str) -> str:
    frame = having(all_rows(evidence, LOSS), size=size)
    context, batch = (frame[axis].iloc[0] for axis in ("context_length", "batch"))
    stated, steps = load(LOSS).stated, frame["step"].max()
    several = losses(evidence).loc[size, "seed"].nunique() > 1
    apart = " Lines trained on other tokens are compared among themselves." if several else ""
    return (
        f"Loss: mean of the last tenth of {steps:g} steps, one run on the same"
        f" tokens, with {batch:g} sequences of {context:g} tokens in each step and a learning rate"
        f" of {stated['learning_rate']:g}; in brackets over the mean with float32 weights, if"
        f" further than {percent(NEAR, 0)} from it.{apart}"
    )


def trained_on(evidence: MachineEvidence, sizes: Iterable[str]) -> str:
    """For a note: after how many steps, and on how many tokens, the losses of sizes are."""
    if evidence.frame(LOSS) is None:
        return ""
    frame = having(evidence.frame(LOSS), size=[*sizes])
    per_step = frame["batch"] * frame["context_length"]
    sizes = in_order("size", frame["size"])
    counts = {size: per_step[frame["size"] == size].max() for size in sizes}
    said = [
        f"{count:,g} tokens a step ({listed([s for s in sizes if counts[s] == count])})"
        for count in dict.fromkeys(counts.values())
    ]
    steps = load(LOSS).stated["steps"]
    return f"Loss: after {steps} steps of one run on the same tokens: {', '.join(said)}."


def _shown(evidence: MachineEvidence) -> pd.DataFrame:
    """The valid rows of the ladder; raises NotMeasured if there are none."""
    rows = rungs(all_rows(evidence, STEM))
    return measured(rows[gates.shown(rows)])


def _top(evidence: MachineEvidence) -> pd.DataFrame:
    """Rows of the highest rung that has a speed-up over the lowest rung, with that speed-up."""
    rows = _shown(evidence)
    found = (_compared(evidence, rows, _series(r), _series(BASE)) for r in reversed(RUNGS[1:]))
    return measured(next((some for some in found if len(some)), pd.DataFrame()))


def _context(rows: pd.DataFrame) -> str:
    return f"context {rows['context_length'].iloc[0]:g}"


def _where(rows: pd.DataFrame) -> str:
    batches = rows["batch"].nunique() > 1
    return _context(rows) if batches else f"{_context(rows)}, batch {rows['batch'].iloc[0]:g}"


def _whole(evidence: MachineEvidence) -> dict:
    """Speed-ups of the highest rung over the lowest, its MFU, and by how much its loss grows."""
    rows = _with_rates(evidence, _top(evidence))
    pairs = zip(rows["size"], rows["implementation"], strict=True)
    growths = {g: pair[0] for pair in pairs if (g := growth(evidence, *pair)) is not None}
    return {
        "base": implementation_words(BASE.name),
        "top": implementation_words(rows["implementation"].iloc[0]),
        "sizes": _sizes(rows),
        "mfu": Spread.of(rows["mfu"].dropna()) if rows["mfu"].notna().any() else None,
        "burst": bool(rows["burst"].any()),
        "growth": max(growths, default=None),
        "grows_at": growths[max(growths)] if growths else "",
        "grows": bool(growths) and max(growths) > NEAR,
        "falls": bool(growths) and min(growths) < -NEAR,
        "fall": -min(growths, default=0.0),
        "falls_at": growths[min(growths)] if growths else "",
        "steps": load(LOSS).stated["steps"],
        "near": NEAR,
        **verdicts(rows),
    }


def _sizes(rows: pd.DataFrame) -> str:
    sizes = in_order("size", rows["size"])
    return f"{sizes[0]} to {sizes[-1]}" if len(sizes) > 1 else "".join(sizes)


def _most(evidence: MachineEvidence) -> dict:
    """The rung with the largest resolved speed-up over the previous rung, for each size."""
    cells, rows = _top(evidence)[CELL], _shown(evidence)
    steps = [_compared(evidence, rows, *pair, of=resolved) for pair in _pairs(rows)]
    found = measured(pd.concat(steps).merge(cells, on=CELL))
    found = found[found["verdict"] == FASTER]
    if found.empty:
        return {"which": [], "by_size": [], "where": _where(cells)}
    best = found.loc[found.groupby("size", sort=False)["ratio"].idxmax()]
    words = [implementation_words(name) for name in best["implementation"]]
    return {
        "where": _where(cells),
        "which": list(dict.fromkeys(words)),
        "by_size": [
            f"{name} at {size} ({ratio(gain)})"
            for name, size, gain in zip(words, best["size"], best["ratio"], strict=True)
        ],
        "gain": Spread.of(best["ratio"]),
    }


def _most_answer(values: dict) -> str:
    if not values["which"]:
        return "none"
    return "one" if len(values["which"]) == 1 else "by_size"


def _cost_in_loss(evidence: MachineEvidence) -> dict:
    """How far losses with bf16 weights lie outside the range of losses with float32 weights.

    Rungs with float32 weights differ in rounding only, so their range is the effect of rounding.
    ``most`` is the largest relative distance from the range, ``apart`` the largest relative width.
    """
    table = losses(evidence).set_index("seed", append=True)["loss"].unstack("implementation")
    exact = table.columns.isin(_exact_rungs())
    wide, narrow = table.loc[:, exact], table.loc[:, ~exact]
    wide, narrow = (side.dropna(how="all") for side in (wide, narrow))
    several = wide.index[wide.count(axis="columns") > 1]
    narrow = measured(narrow[narrow.index.isin(several)])
    wide = wide.loc[narrow.index]
    low, high = wide.min(axis="columns"), wide.max(axis="columns")
    above, below = narrow.max(axis="columns") / high - 1, narrow.min(axis="columns") / low - 1
    off, apart = above.where(above > 0, below.where(below < 0, 0.0)), high / low - 1
    off, apart = (some.droplevel("seed") for some in (off, apart))
    return {
        "steps": evidence.frame(LOSS)["step"].max(),
        "apart": apart.max(),
        "most": off.abs().max(),
        "by_size": [
            f"{size} {signed_percent(off[size])} ({percent(apart[size], 2)})"
            for size in in_order("size", off.index)
        ],
    }


_WHOLE = (
    "The whole ladder ({{ base }} to {{ top }}) makes a step {{ gain | range('ratio') }} as fast"
    "{{ ' (burst)' if burst }} at {{ sizes }}"
)
# The loss stands beside every number that rests on it.
_MFU = (
    ".{% if mfu %} MFU is then {{ mfu | range('percent') }}{{ ' (burst)' if burst }}.{% endif %}"
    "{% if growth is none %} Its loss was not measured."
    "{% elif grows %} But its bf16 weights raise the loss after {{ steps }} steps by"
    " up to {{ growth | percent }} ({{ grows_at }}).{% elif falls %} Its loss exceeds float32's by"
    " at most {{ near | percent(0) }}, and is up to {{ fall | percent }} lower ({{ falls_at }})."
    "{% else %} Its loss stays within"
    " {{ near | percent(0) }} of float32's.{% endif %}"
)
_LOSS = (
    "After {{ steps }} steps on the same tokens (one run per rung), losses with bf16 weights lie"
)
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
            " that of {{ which | join }} at every size: {{ gain | range('ratio') }}.",
            "by_size": "The largest speed-up of a ladder rung over the rung before it"
            " ({{ where }}): {{ by_size | join(', ') }}.",
            "none": "No rung of the ladder ({{ where }}) is faster than the rung before it.",
        },
        place=PAGE,
    ),
    Finding(
        name="ladder_loss",
        question="How much do bf16 weights change the loss?",
        values=_cost_in_loss,
        answer=lambda v: "near" if v["most"] <= NEAR else "apart",
        answers={
            "near": _LOSS + " within {{ most | percent(2) }} of those with float32 weights, which"
            " are up to {{ apart | percent(2) }} apart.",
            "apart": _LOSS + " outside the range of those with float32 weights; distance from the"
            " range (and its width): {{ by_size | join(', ') }}.",
        },
        place=PAGE,
    ),
)
TABLE = TableGroup(
    "E6",
    "The ladder",
    tables,
    Owed(
        lambda frame: frame.index.isin(rungs(frame).index),
        stem=STEM,
        cell=[*CELL, "dtype", "implementation"],
    ),
)
