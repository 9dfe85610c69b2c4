"""Table D7: train steps predicted from collectives, and the buckets that should be best.

The steps of D2 to D6 are predicted from the fitted all-reduce (D1) and from the computation of a
rank, which is the measured step of one rank at its part of the batch. Where that was not measured,
it is the computation of a step of several ranks (D5), of the first measured of
`WITHOUT_EXPOSED`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import pandas as pd

from lmperf.distributed.cost import (
    AS_GOOD,
    BestBucket,
    Computation,
    Gradient,
    Line,
    Step,
    best_bucket,
    computation,
    gradients,
    predicted_step,
)
from lmperf.names import implementation_words, in_order
from lmperf.reporting import ceilings, gates
from lmperf.reporting.evidence import MachineEvidence, groups, having
from lmperf.reporting.findings import PAGE, Finding, measured, sound
from lmperf.reporting.jobs import sets_of_gpus
from lmperf.reporting.marks import doubtful, with_marks
from lmperf.reporting.numbers import Spread, percent, rounded, signed_percent, whole_percent
from lmperf.reporting.sections.distributed import links, rows
from lmperf.reporting.sections.distributed.links import ALL_REDUCE, lines_of
from lmperf.reporting.side_by_side import each, share, side_by_side, text, time
from lmperf.reporting.tables import (
    Owed,
    TableGroup,
    number_cells,
    text_cells,
    value_cells,
)
from lmperf.results import EMPTY, Table
from lmperf.transformer.sizes import SIZES, ModelSize, canonical

STEM, LEDGER, COLLECTIVES = "distributed", "distributed_overlap", links.STEM
CELL = ["size", "context_length", "batch", "ranks", "dtype"]
ONE_BY_ONE, BUCKETS = "one_by_one", "bucket_"
# Strategies whose computation in the ledger stands for that of a rank: those that copy no gradients
# come first.
WITHOUT_EXPOSED = (ONE_BY_ONE, "overlapped", "flat", "ddp")
# The implementations of D2, D3, D4 and D6, whose steps are predicted.
PREDICTED = (
    *(ONE_BY_ONE, "flat", "flat_compiled", "overlapped", "overlapped_compiled"),
    *("bucket_1", "bucket_10", "bucket_100", "bucket_1000", "ddp", "ddp_compiled"),
)
MS_PER_S, MB = 1e3, 1e6
# Predictions within this of the measured steps are good.
GOOD = 0.05


@dataclass(frozen=True)
class Cause:
    """What the steps of a cell are predicted from.

    Attributes:
        made: gradients in the order of the backward pass.
        computing: of one rank at its part of the batch.
        line: fitted time of an all-reduce of float32.
    """

    made: list[Gradient]
    computing: Computation
    line: Line

    def step(self, name: str) -> Step:
        return predicted_step(name, self.made, self.computing, self.line)

    @property
    def best(self) -> BestBucket:
        return best_bucket(self.made, self.computing, self.line)


def model_size(name: str) -> ModelSize:
    known = {size.short: size for size in SIZES.values()}
    return known.get(name) or SIZES[canonical(name)]


def _causes(evidence: MachineEvidence, compiled: bool, trusted: bool) -> dict[tuple, Cause]:
    """Cell -> its cause, for every cell whose computation and all-reduce were measured.

    trusted: as in `links.lines_of`, also for steps.
    """
    key = ("causes", compiled, trusted)
    return evidence.once(key, lambda: _find_causes(evidence, compiled, trusted))


def _find_causes(evidence: MachineEvidence, compiled: bool, trusted: bool) -> dict[tuple, Cause]:
    frame, found = evidence.frame(STEM), {}
    if frame is None:
        return found
    frame = sound(evidence, STEM) if trusted else frame[gates.shown(frame)]
    lines = lines_of(evidence, trusted)
    for cell in frame[CELL].drop_duplicates().itertuples(index=False):
        line = lines.get((ALL_REDUCE, "float32", int(cell.ranks)))
        seconds = _computing_s(evidence, frame, cell, compiled)
        if line is None or seconds is None or cell.batch % cell.ranks:
            continue
        size, batch = model_size(cell.size), int(cell.batch // cell.ranks)
        made = gradients(size, int(cell.context_length), batch)
        computing = computation(seconds, size.parameters(), ceilings.copy_ceiling(evidence))
        found[tuple(cell)] = Cause(made, computing, line)
    return found


def _computing_s(
    evidence: MachineEvidence, frame: pd.DataFrame, cell, compiled: bool
) -> float | None:
    """Seconds of a step without communication at a rank's part of the batch; None if unknown."""
    suffix = "_compiled" if compiled else ""
    same = {"size": cell.size, "context_length": cell.context_length, "dtype": cell.dtype}
    alone = {"ranks": 1, "batch": cell.batch // cell.ranks, "implementation": "one_rank" + suffix}
    single = having(frame, **same, **alone)
    if len(single):
        return float(rows.lasting_ms(single).iloc[-1]) / MS_PER_S
    ledger = evidence.frame(LEDGER)
    if ledger is None:
        return None
    several = having(ledger[gates.shown(ledger)], **same, batch=cell.batch, ranks=cell.ranks)
    alone_ms = several.dropna(subset=["compute_ms"]).set_index("implementation")["compute_ms"]
    known = [name + suffix for name in WITHOUT_EXPOSED if name + suffix in alone_ms]
    return float(alone_ms[known[0]]) / MS_PER_S if known else None


def with_predictions(
    evidence: MachineEvidence, frame: pd.DataFrame, trusted: bool = False
) -> pd.DataFrame:
    """The rows that D7 predicts, with ``predicted_ms``, ``predicted_calls`` and the communication.

    ``predicted_communication_ms`` is all of it, ``predicted_hidden`` the hidden fraction.
    trusted: as in `links.lines_of`.
    """
    frame, steps = having(frame, implementation=PREDICTED), []
    causes = {compiled: _causes(evidence, compiled, trusted) for compiled in (False, True)}
    for row in frame.itertuples():
        cell = tuple(getattr(row, name) for name in CELL)
        cause = causes[row.implementation.endswith("_compiled")].get(cell)
        steps.append(cause.step(row.implementation) if cause else None)
    numbers = {
        "predicted_ms": lambda step: MS_PER_S * step.seconds,
        "predicted_calls": lambda step: step.calls,
        "predicted_communication_ms": lambda step: MS_PER_S * step.communication,
        "predicted_hidden": lambda step: step.hidden,
    }
    columns = {
        name: pd.Series([get(s) if s else None for s in steps], frame.index, dtype=float)
        for name, get in numbers.items()
    }
    return frame.assign(**columns)


def steps(evidence: MachineEvidence) -> list[Table]:
    """Tables D7: a table of predicted and measured steps for each cell, and the best buckets."""
    frame = evidence.frame(STEM)
    if frame is None:
        return []
    frame = with_predictions(evidence, frame)
    if frame["predicted_ms"].isna().all():
        return []
    parts = [part for *_, part in groups(frame, "size", "dtype", "ranks")]
    parts = [part for part in parts if part["predicted_ms"].notna().any()]
    return each(*(_steps(evidence, part) for part in parts), _buckets(evidence, frame))


def _steps(evidence: MachineEvidence, frame: pd.DataFrame) -> Table | None:
    lasting = rows.lasting_ms(frame)
    change = frame["predicted_ms"] / lasting - 1
    communication = number_cells(frame["predicted_communication_ms"])
    columns = [
        text("calls", number_cells(frame["predicted_calls"], rows.count), "calls"),
        time("communication", communication, "communication.predicted"),
        share(
            "of it hidden (%)",
            number_cells(100 * frame["predicted_hidden"], whole_percent),
            *("hidden.predicted", "%", "whole_percent"),
        ),
        time("predicted step", number_cells(frame["predicted_ms"]), "train_step.predicted"),
        time("measured step", with_marks(value_cells(frame, lasting), frame), "train_step"),
        share(
            "difference",
            with_marks(value_cells(frame, change, signed_percent), frame),
            *("difference", "", "signed_percent"),
        ),
    ]
    note = (
        "Communication and steps are predicted from the fitted all-reduce (D1) and from the"
        " computation of a rank: the step of one rank at this part of the batch, or else that in"
        " the ledger (D5), eager of one by one, compiled of overlapped by hooks. Measured: back to"
        " back, or else the median of single steps."
    )
    if len(sets_of_gpus(evidence, (STEM, LEDGER, COLLECTIVES))) > 1:
        note += " Several sets of GPUs gave these times, so a difference includes theirs."
    return side_by_side("Predicted steps", frame, [*CELL, "implementation"], columns, note)


def _buckets(evidence: MachineEvidence, frame: pd.DataFrame) -> Table | None:
    """The bucket that should be best in each cell, beside the fastest one that was measured."""
    causes = _causes(evidence, compiled=False, trusted=False)
    lines = frame.drop_duplicates(CELL)
    cells = [*lines[CELL].itertuples(index=False, name=None)]
    lines = lines[[cell in causes for cell in cells]]
    if lines.empty:
        return None
    best = [causes[cell].best for cell in cells if cell in causes]
    fastest = [_fastest(having(frame, **dict(zip(CELL, cell, strict=True)))) for cell in causes]

    def column(values: list) -> pd.Series:
        return pd.Series(values, lines.index)

    good = [f"{rounded(one.low / MB)} to {rounded(one.high / MB)}" for one in best]
    columns = [
        text("best bucket (MB)", number_cells(column([one.message / MB for one in best])), "best"),
        text("as good (MB)", text_cells(column(good)), "as_good"),
        time("predicted step", number_cells(column([MS_PER_S * b.seconds for b in best])), "step"),
        text("fastest measured", text_cells(column([_words(n) for n in fastest])), "fastest"),
    ]
    note = f"As good: the predicted step is longer by at most {percent(AS_GOOD)}."
    if any(fastest) and not all(fastest):
        note += " A dash: no bucket was measured without a mark."
    return side_by_side("Best buckets", lines, CELL, columns, note)


def _words(implementation: str | None) -> str:
    return implementation_words(implementation) if implementation else EMPTY


def _timed_buckets(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of buckets that were timed and are not marked."""
    frame = frame[gates.shown(frame) & ~doubtful(frame, STEM)]
    return having(frame, implementation={one for one in PREDICTED if one.startswith(BUCKETS)})


def _bytes_of(implementation: str) -> float:
    """The bytes of a bucket of `PREDICTED`."""
    return MB * float(implementation.removeprefix(BUCKETS))


def _agrees(best: BestBucket, fastest: str, timed: pd.DataFrame) -> bool:
    """Whether the fastest measured bucket is as good by the model, or next to its best one."""
    if best.low <= _bytes_of(fastest) <= best.high:
        return True
    nearest = min(
        timed["implementation"], key=lambda name: abs(math.log(_bytes_of(name) / best.message))
    )
    return nearest == fastest


def _fastest(frame: pd.DataFrame) -> str | None:
    """The bucket with the shortest step that is not marked; None if all are."""
    frame = _timed_buckets(frame)
    return None if frame.empty else frame.loc[rows.lasting_ms(frame).idxmin(), "implementation"]


def _accuracy(evidence: MachineEvidence) -> dict:
    """How far predicted steps are from measured ones, and the best bucket of the largest cell."""
    predicted = with_predictions(evidence, sound(evidence, STEM), trusted=True)
    predicted = measured(predicted[predicted["predicted_ms"].notna()])
    errors = (predicted["predicted_ms"] / rows.lasting_ms(predicted) - 1).abs()
    shown = with_predictions(evidence, evidence.frame(STEM))
    size = in_order("size", predicted["size"])[-1]
    largest = having(predicted, size=size)
    cell = tuple(largest.iloc[-1][name] for name in CELL)
    causes = _causes(evidence, compiled=False, trusted=True)
    best = causes[cell].best if cell in causes else None
    steps = having(evidence.frame(STEM), **dict(zip(CELL, cell, strict=True)))
    fastest = _fastest(steps)
    return {
        "n": len(predicted),
        "left": int(
            doubtful(shown[shown["predicted_ms"].notna() & gates.shown(shown)], STEM).sum()
        ),
        "error": errors.median(),
        "errors": Spread.of(errors),
        "size": size,
        "best": best,
        "fastest": implementation_words(fastest) if fastest else None,
        "agrees": bool(best and fastest) and _agrees(best, fastest, _timed_buckets(steps)),
    }


_SAID = (
    "{{ n | count('step') }} predicted from the times of collectives (D7) are"
    " {{ error | percent }} from the measured ones (median; at most {{ errors.high | percent }})."
    "{% if left %} {{ left | count('marked step') }} {{ 'is' if left == 1 else 'are' }} left out."
    "{% endif %}"
)
_BEST = (
    "{% if best and agrees %} Buckets of {{ (best.message / 1e6) | rounded }} MB should be best for"
    " {{ size }}.{% elif best %} The model expects {{ (best.message / 1e6) | rounded }} MB to be"
    " the best bucket for {{ size }}; {% if fastest %}measured fastest: {{ fastest }}{% else %}none"
    " was measured without a mark{% endif %}.{% endif %}"
)
FINDINGS = (
    Finding(
        name="distributed_model",
        question="Do times of collectives predict the train steps, and which bucket is best?",
        values=_accuracy,
        answer=lambda v: "good" if v["error"] <= GOOD else "poor",
        answers={
            "good": _SAID + _BEST,
            "poor": _SAID
            + " The model does not know the host, and a line fits collectives roughly (D1)."
            + _BEST,
        },
        place=PAGE,
    ),
)


def _predicted_of_due(evidence: MachineEvidence) -> tuple[int, int]:
    """Numbers of rows of D7 that are predicted, and of those that are measured or configured."""
    frame, lacking = evidence.frame(STEM), evidence.lacking.get(STEM)
    due = 0 if lacking is None else len(having(lacking, implementation=PREDICTED))
    if frame is None:
        return 0, due
    frame = with_predictions(evidence, frame)
    return int(frame["predicted_ms"].notna().sum()), len(frame) + due


TABLES = (
    TableGroup(
        "D7",
        "Train steps predicted from collectives",
        steps,
        Owed(stem=STEM, counted=_predicted_of_due),
    ),
)
