"""Tables D8 and D11: memory of each rank by component, predicted and measured.

D8 is of the strategies with a sharded optimizer, D11 of those that shard weights as well, with and
without activation checkpointing. The predictions are closed forms (`lmperf.distributed.memory`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np
import pandas as pd

from lmperf.distributed.memory import COMPONENTS, MOMENTS, predicted_bytes
from lmperf.names import implementation_words, in_order
from lmperf.reporting import gates
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.findings import (
    PAGE,
    SECTION,
    Finding,
    NotMeasured,
    all_rows,
    measured,
    sound,
)
from lmperf.reporting.machine import newest
from lmperf.reporting.numbers import MIB, gib, percent, signed_percent, significant
from lmperf.reporting.sections.distributed import rows
from lmperf.reporting.sections.distributed.rows import CELL, LINES, MEMORY
from lmperf.reporting.side_by_side import Beside, each, memory, side_by_side
from lmperf.reporting.tables import (
    Owed,
    TableGroup,
    beside,
    number_cells,
    status_cells,
    value_cells,
)
from lmperf.results import LOWER, Table
from lmperf.transformer.sizes import SIZES

# What sharding is compared with: first our own strategy, which has no copies of gradients in
# buckets, as the sharded ones have none.
REPLICATED = ("overlapped", "ddp")
SHARDED = ("sharded_optimizer", "zero_redundancy")
FULLY = ("fully_sharded", "fsdp2")
CHECKPOINTED = tuple(f"{name}_checkpointed" for name in FULLY)
TOTAL = "total"
# Bytes for each parameter at the update: weight, gradient and two moments, in float32.
_BYTES_AT_UPDATE = 16
_SHORT = {size.short: size for size in SIZES.values()}


def with_predictions(evidence: MachineEvidence, frame: pd.DataFrame) -> pd.DataFrame:
    """The rows with a column ``predicted_<component>_mib`` for each component and their total."""
    device = newest(evidence).get("kind") or "cpu"
    found = [_predicted(row, device) for _, row in frame.iterrows()]
    names = (*COMPONENTS, TOTAL)
    columns = {
        f"predicted_{name}_mib": pd.Series(
            [one.get(name, float("nan")) / MIB for one in found], frame.index, dtype=float
        )
        for name in names
    }
    return frame.assign(**columns)


def _predicted(row: pd.Series, device: str) -> dict[str, float]:
    """Bytes by component at the moment of a row; empty for an unknown size or a failed row."""
    size = _SHORT.get(row["size"])
    if size is None or row["moment"] not in MOMENTS:
        return {}
    name = row["implementation"]
    cell = size, int(row["context_length"]), int(row["batch"]), int(row["ranks"]), row["dtype"]
    try:
        return predicted_bytes(name, *cell, device)[row["moment"]]
    except ValueError:  # a user's strategy
        return {}


def _rows(evidence: MachineEvidence, names: Collection[str]) -> pd.DataFrame:
    frame = evidence.frame(MEMORY)
    if frame is None:
        return pd.DataFrame(columns=[*LINES, "phase", "status", "moment"])
    return rows.of_strategies(frame, names)


def _table(names: Collection[str], caption: str) -> Callable[[MachineEvidence], list[Table]]:
    """Return the function that makes the tables of some strategies, one for each dtype."""

    def make(evidence: MachineEvidence) -> list[Table]:
        frame = with_predictions(evidence, _rows(evidence, names))
        dtypes = in_order("dtype", frame["dtype"])
        return each(*(_of_dtype(having(frame, dtype=one), caption) for one in dtypes))

    return make


def _of_dtype(frame: pd.DataFrame, caption: str) -> Table | None:
    change = frame[f"{TOTAL}_mib"] / frame[f"predicted_{TOTAL}_mib"] - 1
    whole = value_cells(frame, frame[f"{TOTAL}_mib"])
    columns = [
        *(_component(frame, name) for name in COMPONENTS),
        memory("predicted in all", number_cells(frame[f"predicted_{TOTAL}_mib"]), "predicted"),
        memory("measured in all", whole.where(gates.shown(frame), status_cells(frame)), "peak"),
        Beside(
            "difference",
            value_cells(frame, change, signed_percent),
            *("difference", "", "signed_percent", LOWER),
        ),
    ]
    note = "Predicted / measured, of the rank that needs most."
    return side_by_side(caption, frame, [*LINES, "moment"], columns, note)


def _component(frame: pd.DataFrame, name: str) -> Beside:
    predicted = number_cells(frame[f"predicted_{name}_mib"])
    cells = beside(predicted, frame[f"{name}_mib"], significant)
    return memory(name, cells, f"{name}.predicted", second="measured")


def _at(frame: pd.DataFrame, name: str, moment: str) -> pd.Series:
    """The row of a strategy at a moment; raises NotMeasured."""
    return measured(having(frame, implementation=name, moment=moment)).iloc[0]


def _cell(evidence: MachineEvidence, names: Collection[str]) -> pd.DataFrame:
    """The sound rows of the largest size at which all these strategies were measured."""
    frame = sound(evidence, MEMORY)
    frame = having(frame, moment="peak", implementation=set(names))
    count = frame.groupby(CELL)["implementation"].nunique() if len(frame) else pd.Series()
    whole = [dict(zip(CELL, key, strict=True)) for key in count.index[count == len(set(names))]]
    if not whole:
        raise NotMeasured
    sizes = in_order("size", (cell["size"] for cell in whole))
    return having(sound(evidence, MEMORY), **next(c for c in whole if c["size"] == sizes[-1]))


def _saved(evidence: MachineEvidence, name: str) -> dict:
    """Bytes per rank of a sharded strategy beside those of a replicated one."""
    known = set(sound(evidence, MEMORY)["implementation"])
    both = name, next((one for one in REPLICATED if one in known), REPLICATED[-1])
    frame = _cell(evidence, both)
    ours, base = (_at(frame, one, "peak") for one in both)
    peaks = [_larger_peak(evidence, row) * MIB for row in (ours, base)]
    apart = [row[f"{TOTAL}_mib"] * MIB for row in (ours, base)]
    state = [_at(frame, one, "after_step")["optimizer_mib"] for one in both]
    return {
        "size": ours["size"],
        "ranks": f"{ours['ranks']:g}",
        "peak": peaks[0],
        "before": peaks[1],
        "differs": [*map(gib, peaks)] != [*map(gib, apart)],
        "state": state[0] * MIB,
        "whole_state": state[1] * MIB,
        "base": implementation_words(both[1]),
    }


def _larger_peak(evidence: MachineEvidence, apart: pd.Series) -> float:
    """The peak of a strategy in MiB that the head table has: see `peaks_of`.

    apart: the row of its peak in the run that measures memory.
    """
    steps = evidence.frame(rows.STEM)
    if steps is None:
        return float(apart[f"{TOTAL}_mib"])
    steps = having(steps[gates.shown(steps)], **{name: apart[name] for name in LINES})
    return float(np.fmax(apart[f"{TOTAL}_mib"], peaks_of(evidence, steps).max()))


def _prediction(evidence: MachineEvidence) -> dict:
    """The largest relative error of a predicted peak, and the strategy that has it."""
    frame = having(sound(evidence, MEMORY), moment="peak")
    frame = with_predictions(evidence, measured(frame))
    frame = measured(frame[frame[f"predicted_{TOTAL}_mib"].notna()])
    off = frame[f"{TOTAL}_mib"] / frame[f"predicted_{TOTAL}_mib"] - 1
    worst = off.abs().idxmax()
    return {
        "n": len(off),
        "most": abs(off[worst]),
        "off": off[worst],
        "name": implementation_words(frame.loc[worst, "implementation"]),
    }


def is_possible_peak(timed: pd.DataFrame) -> pd.Series:
    """Whether the peak of each timed step can be true: the update holds the state of the weights.

    However sharded, weights, gradients and AdamW's two moments are alive then, in float32. The
    worker of a timed step does not count FSDP2's gradients of the step before.
    """
    least = _BYTES_AT_UPDATE * timed["parameters"] / timed["ranks"] / MIB
    return ~(timed["peak_mib"] < least)


def peaks_of(evidence: MachineEvidence, timed: pd.DataFrame) -> pd.Series:
    """The peak of each step in MiB: the larger one of timed steps and measured apart (D8, D11).

    That of timed steps is left out if it is not `is_possible_peak`. NaN without either.
    """
    in_timed = timed["peak_mib"].where(is_possible_peak(timed))
    if evidence.frame(MEMORY) is None:
        return in_timed
    alone = having(sound(evidence, MEMORY), moment="peak")
    alone = alone.drop_duplicates(LINES).set_index(LINES)[f"{TOTAL}_mib"]
    apart = alone.reindex(pd.MultiIndex.from_frame(timed[LINES])).set_axis(timed.index)
    return np.fmax(apart, in_timed)


def _peaks(evidence: MachineEvidence) -> dict:
    """The cells whose peak differs between timed steps and the run that measures memory.

    A peak of timed steps that is not `is_possible_peak` is counted as left out.
    """
    timed = all_rows(evidence, rows.STEM)  # no mark of a time concerns a peak
    timed = timed[gates.shown(timed)].dropna(subset=["peak_mib"])
    alone = measured(having(sound(evidence, MEMORY), moment="peak"))
    every = timed.merge(alone, on=LINES, suffixes=("", "_alone"))
    both = measured(every[is_possible_peak(every)])
    apart = (both["peak_mib"] / both[f"{TOTAL}_mib"] - 1).abs()
    far = apart[apart > TOLERANCE]
    worst = both.loc[far.idxmax()] if len(far) else None
    return {
        "n": len(both),
        "left": len(every) - len(both),
        "far": len(far),
        "name": None if worst is None else implementation_words(worst["implementation"]),
        "timed": None if worst is None else worst["peak_mib"] * MIB,
        "alone": None if worst is None else worst[f"{TOTAL}_mib"] * MIB,
    }


TOLERANCE = 0.05
_PEAK = (
    " a {{ size }} step on {{ ranks }} ranks peaks at {{ peak | gib }} a rank, not"
    " {{ before | gib }} ({{ base }}; D8, D11)"
)
# Said if a peak differs from that in D8 and D11, as shown.
_LARGER = "{% if differs %} A peak is the larger one of timed steps and of D8, D11.{% endif %}"
_LEFT = (
    "{% if left %} Left out {{ 'is' if left == 1 else 'are' }} {{ left | count('cell') }} whose"
    " timed steps do not count all gradients.{% endif %}"
)
FINDINGS = (
    Finding(
        name="distributed_optimizer_memory",
        question="What does sharding the optimizer's state save?",
        values=lambda evidence: _saved(evidence, SHARDED[0]),
        answer=lambda v: "saves" if v["peak"] < v["before"] else "costs",
        answers={
            "saves": "With a sharded optimizer" + _PEAK + ". Its state takes {{ state | gib }}"
            " instead of {{ whole_state | gib }}." + _LARGER,
            "costs": "A sharded optimizer does not lower the peak: with it," + _PEAK + ", although"
            " its state takes {{ state | gib }} instead of {{ whole_state | gib }}." + _LARGER,
        },
        place=SECTION,
    ),
    Finding(
        name="distributed_fully_sharded_memory",
        question="What does sharding weights, gradients and state save?",
        values=lambda evidence: _saved(evidence, FULLY[0]),
        answer=lambda v: "saves" if v["peak"] < v["before"] else "costs",
        answers={
            "saves": "Fully sharded," + _PEAK + "." + _LARGER,
            "costs": "Sharding weights, gradients and state does not lower the peak: with it,"
            + _PEAK
            + "."
            + _LARGER,
        },
        place=SECTION,
    ),
    Finding(
        name="distributed_peaks",
        question="Do timed steps have the peak that is measured apart from them?",
        values=_peaks,
        answer=lambda v: "differ" if v["name"] else "agree",
        answers={
            "agree": "In {{ n | count('cell') }} of size and strategy, timed steps have the same"
            " peak as the run that measures memory (D8, D11), within"
            f" {percent(TOLERANCE, 0)}." + _LEFT,
            "differ": "In {{ far }} of {{ n | count('cell') }} of size and strategy, the peak of"
            f" timed steps is more than {percent(TOLERANCE, 0)} from that in D8, D11. The furthest"
            " is {{ name }}: {{ timed | gib }} and {{ alone | gib }} a rank. Plan with the larger"
            " one." + _LEFT,
        },
        place=PAGE,
    ),
    Finding(
        name="distributed_memory_predicted",
        question="How close is the closed form to the measured peak of a rank?",
        values=_prediction,
        answer=lambda v: "within" if v["most"] <= TOLERANCE else "outside",
        answers={
            "within": f"All {{{{ n }}}} peaks per rank are within {percent(TOLERANCE, 0)} of the"
            " closed form.",
            "outside": "Of {{ n }} peaks per rank, the one furthest from the closed form is off by"
            " {{ off | signed_percent }} ({{ name }}).",
        },
        place=PAGE,
    ),
)


def _owed(*names: str) -> Owed:
    where = lambda frame: frame["implementation"].map(rows.plain).isin(names)  # noqa: E731
    return Owed(where, MEMORY, LINES)


TABLES = (
    TableGroup(
        "D8",
        "Memory of a rank with a sharded optimizer",
        _table((*REPLICATED, *SHARDED), "Memory of a rank"),
        _owed(*REPLICATED, *SHARDED),
    ),
    TableGroup(
        "D11",
        "Memory of a rank, fully sharded",
        _table((*FULLY, *CHECKPOINTED), "Memory of a rank"),
        _owed(*FULLY, *CHECKPOINTED),
    ),
)
