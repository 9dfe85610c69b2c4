"""Losses of the rungs of the ladder: short training runs on the same tokens."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from lmperf.benchmarks import load
from lmperf.dtypes import dtype_of
from lmperf.names import in_order
from lmperf.reporting import gates
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.numbers import listed, percent, precise, signed_percent
from lmperf.results import Cell
from lmperf.transformer.rungs import RUNGS

LOSS = "ladder_loss"
# A loss within this fraction of the losses with float32 weights counts as equal.
NEAR = 0.01
# Largest relative width of the range of losses with float32 weights that makes them a reference.
# Their rungs differ in rounding only. At some sizes training amplifies it: on an H200, after 100
# steps of the smallest model, losses of seven such runs were up to 54 % apart.
WIDEST = 0.05
# Fewer losses with float32 weights say nothing about how far rounding moves a loss.
LEAST_RUNS = 2
_COLUMNS = ["loss", "seed", "base", "lowest", "highest", "apart"]
TOO_FEW = f"fewer than {LEAST_RUNS} runs have float32 weights"


def losses(evidence: MachineEvidence) -> pd.DataFrame:
    """A data frame of losses at the last recorded step, indexed by size and rung.

    Columns: ``loss``; ``seed``, which determines the tokens; ``base``, the mean loss of the rungs
    with float32 weights on the same tokens, NaN if there are fewer than `LEAST_RUNS` or if they are
    further apart than `WIDEST`; ``lowest`` and ``highest``, the range of them, NaN with ``base``;
    ``apart``, how far they are apart, as a fraction. These rungs differ in rounding only, which
    training amplifies, so their mean is a better reference than one of them.
    """
    frame = _rows(evidence)
    if frame.empty:
        nothing = pd.MultiIndex.from_tuples([], names=["size", "implementation"])
        return pd.DataFrame({name: [] for name in _COLUMNS}, nothing)
    last = having(frame, step=frame["step"].max())
    exact = last["loss"].where(last["implementation"].isin(exact_rungs()))
    alike = exact.groupby([last["size"], last["seed"]])
    apart = alike.transform("max") / alike.transform("min") - 1
    enough = alike.transform("count") >= LEAST_RUNS
    base, lowest, highest = (
        alike.transform(of).where(enough & (apart <= WIDEST)) for of in ("mean", "min", "max")
    )
    found = last.assign(base=base, lowest=lowest, highest=highest, apart=apart)
    return found.set_index(["size", "implementation"])[_COLUMNS]


def _rows(evidence: MachineEvidence) -> pd.DataFrame:
    """The rows with a loss, of one context and batch for each size; none without evidence.

    It is the cell of most rungs, and of several the one with the shorter context.
    """
    frame, cell = evidence.frame(LOSS), ["size", "context_length", "batch"]
    if frame is None:
        return pd.DataFrame(columns=[*cell, "implementation", "step", "loss", "seed"])
    frame = frame[gates.shown(frame)]
    rungs = frame.groupby(cell)["implementation"].nunique()
    most = rungs.sort_values(ascending=False, kind="stable").groupby(level="size").head(1)
    return frame[pd.MultiIndex.from_frame(frame[cell]).isin(most.index)]


def scattered(evidence: MachineEvidence) -> dict[str, float]:
    """Size -> how far losses with float32 weights are apart, where they are no reference."""
    apart = losses(evidence)["apart"].groupby(level="size").max()
    return {size: apart[size] for size in in_order("size", apart.index) if apart[size] > WIDEST}


def without_reference(evidence: MachineEvidence, sizes: Iterable[str]) -> list[str]:
    """Those of the sizes whose losses have no reference: too few runs have float32 weights.

    Sizes whose losses are ``scattered`` are left out: they have runs enough.
    """
    known = losses(evidence)["base"].groupby(level="size").count()
    found = [size for size in known.index if not known[size]]
    return [size for size in in_order("size", found) if size in {*sizes} - {*scattered(evidence)}]


def growth(evidence: MachineEvidence, size: str, rung: str | None) -> float | None:
    """By how much a rung's loss exceeds that with float32 weights, as a fraction; None: unknown."""
    found = losses(evidence)
    over = (found["loss"] / found["base"] - 1).dropna()
    return over.get((size, rung))


def raises(evidence: MachineEvidence, size: str, rung: str | None) -> bool:
    """Whether a rung's loss exceeds every loss with float32 weights by more than `NEAR`.

    A loss within their range is not raised by the rung: rounding alone moves losses as far.
    """
    found = losses(evidence)
    over = (found["loss"] / found["highest"] - 1).dropna()
    return over.get((size, rung), 0.0) > NEAR


def growth_words(evidence: MachineEvidence, rows: pd.DataFrame) -> str:
    """For a note: how much bf16 weights raise the loss at the sizes of these rows, if they do."""
    rung = next(r.name for r in RUNGS if dtype_of(r.dtype).storage != "float32")
    found = {size: growth(evidence, size, rung) for size in in_order("size", rows["size"])}
    grown = [
        f"{size} {signed_percent(g)}" for size, g in found.items() if raises(evidence, size, rung)
    ]
    return f" bf16 weights raise the loss: {', '.join(grown)} (E6)." if grown else ""


def exact_rungs() -> list[str]:
    """The rungs with float32 weights."""
    return [rung.name for rung in RUNGS if dtype_of(rung.dtype).storage == "float32"]


def loss_cell(found: pd.Series) -> Cell:
    """A cell with a loss and, outside the range of float32 weights, its distance from their mean.

    found: a row of `losses`. A loss within that range counts as equal: rounding alone moves losses
    as far. So does one within `NEAR` of the mean.
    """
    loss, far = float(found["loss"]), found["loss"] / found["base"] - 1
    is_apart = abs(far) > NEAR and not is_inside(found)
    return Cell(precise(loss) + (f" ({signed_percent(far)})" if is_apart else ""), loss)


def is_inside(found: pd.Series) -> bool:
    """Whether the loss in a row of `losses` is within the range of those with float32 weights."""
    return bool(found["lowest"] <= found["loss"] <= found["highest"])


def loss_words(evidence: MachineEvidence, size: str) -> str:
    """For a note: how the losses of a size were measured."""
    frame = having(_rows(evidence), size=size)
    context, batch = (frame[axis].iloc[0] for axis in ("context_length", "batch"))
    stated, steps = load(LOSS).stated, frame["step"].max()
    several = losses(evidence).loc[size, "seed"].nunique() > 1
    apart = " Lines trained on other tokens are compared among themselves." if several else ""
    return (
        f"Loss: mean of the last tenth of {steps:g} steps, one run on the same"
        f" tokens, with {batch:g} sequences of {context:g} tokens in each step and a learning rate"
        f" of {stated['learning_rate']:g}{_reference_words(evidence, size)}.{apart}"
    )


def _reference_words(evidence: MachineEvidence, size: str) -> str:
    """The end of a sentence on the losses of a size: what they are compared with."""
    if why := _lacks_reference(evidence, [size]):
        return f". No reference: {why[size]}"
    near = percent(NEAR, 0)
    return (
        "; in brackets over the mean with float32 weights, if outside their range and further than"
        f" {near} from it"
    )


def _lacks_reference(evidence: MachineEvidence, sizes: Iterable[str]) -> dict[str, str]:
    """Size -> why its losses have no reference; sizes with one are left out."""
    sizes = [*sizes]
    why = dict.fromkeys(without_reference(evidence, sizes), TOO_FEW)
    for size, far in scattered(evidence).items():
        if size in sizes:
            why[size] = f"those with float32 weights are up to {percent(far, 0)} apart"
    return why


def trained_on(evidence: MachineEvidence, sizes: Iterable[str]) -> str:
    """For a note: after how many steps, and on how many tokens, the losses of sizes are.

    Empty if none of these sizes was trained.
    """
    frame = having(_rows(evidence), size=[*sizes])
    if frame.empty:
        return ""
    per_step = frame["batch"] * frame["context_length"]
    sizes = in_order("size", frame["size"])
    counts = {size: per_step[frame["size"] == size].max() for size in sizes}
    said = [
        f"{count:,g} tokens a step ({listed([s for s in sizes if counts[s] == count])})"
        for count in dict.fromkeys(counts.values())
    ]
    steps = load(LOSS).stated["steps"]
    why = _lacks_reference(evidence, sizes)
    without = [
        f" No reference at {listed([size for size in why if why[size] == words])}: {words}."
        for words in dict.fromkeys(why.values())
    ]
    said = f"Loss: after {steps} steps of one run on the same tokens: {', '.join(said)}."
    said += _rounding(evidence, [size for size in sizes if size not in why])
    return said + "".join(without)


def _rounding(evidence: MachineEvidence, sizes: Iterable[str]) -> str:
    """A sentence on how far the losses with float32 weights of some sizes are apart, if at all."""
    found = having(losses(evidence).reset_index(), size=[*sizes])
    apart = found.groupby("size")["apart"].max()
    if apart.empty or apart.max() <= NEAR:
        return ""
    return f" Rounding alone moves it by up to {percent(apart.max(), 1)} ({apart.idxmax()})."
