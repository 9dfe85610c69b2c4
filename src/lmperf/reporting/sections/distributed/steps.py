"""Tables D2 to D4 and D6: train steps by the way in which ranks exchange gradients.

The head table of the section shows one cell: the largest size, with most ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pandas as pd

from lmperf.names import implementation_words, in_order
from lmperf.reporting import gates
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.findings import PAGE, SECTION, Finding, NotMeasured, measured, sound
from lmperf.reporting.numbers import Spread, listed, percent, ranged
from lmperf.reporting.sections.distributed import rows
from lmperf.reporting.sections.distributed.memory import is_possible_peak, peaks_of
from lmperf.reporting.sections.distributed.model import with_predictions
from lmperf.reporting.sections.distributed.rows import COMPILED, LINES, ONE, STEM
from lmperf.reporting.side_by_side import each, memory, side_by_side, speedup, text, time
from lmperf.reporting.speedup import resolved
from lmperf.reporting.tables import Owed, TableGroup, burst_note, number_cells, value_cells
from lmperf.results import Table
from lmperf.statistics import FASTER, SAME, SLOWER

DDP, OVERLAPPED, FLAT, ONE_BY_ONE = "ddp", "overlapped", "flat", "one_by_one"
BUCKETS = "bucket_"
MIB_IN_GIB = 1024
HEAD_LINES = 12
# The strategies of the head table; of a compiled variant only these.
HEAD = (
    *(ONE, ONE_BY_ONE, OVERLAPPED, DDP, "sharded_optimizer", "fully_sharded", "fsdp2"),
    *(ONE + COMPILED, "overlapped_compiled", "ddp_compiled"),
    *("fully_sharded_compiled", "fsdp2_compiled"),
)
LEDGER = (
    "Communication, its share of the step and what is hidden are those of the ledger (D5), whose"
    " steps run under the profiler."
)


def _frame(evidence: MachineEvidence) -> pd.DataFrame:
    """The rows of steps; empty without evidence."""
    frame = evidence.frame(STEM)
    return pd.DataFrame(columns=[*LINES, "phase", "status"]) if frame is None else frame


def head(evidence: MachineEvidence) -> Table | None:
    """The head table: steps, what they hide, and their peak memory, in one cell."""
    frame = having(head_cell(_frame(evidence)), implementation=set(HEAD))
    if frame.empty:
        return None
    predicted = number_cells(with_predictions(evidence, frame)["predicted_ms"])
    times, lasting = rows.step(frame), frame["sustained_ms"].notna().all()
    peaks = peaks_of(evidence, frame) / MIB_IN_GIB
    columns = [
        replace(times[-1], header="step (ms)") if lasting else times[0],
        rows.hidden("communication hidden", rows.beside(evidence, frame)),
        memory("peak per rank", value_cells(frame, peaks), "peak", "GiB"),
        speedup("over one rank", rows.over(evidence, frame, ONE, brackets=False), f"over.{ONE}"),
        time("predicted", predicted, "train_step.predicted"),
    ]
    note = "Times: steps back to back." if lasting else burst_note(frame)
    note += " Peak: the larger one of timed steps and of the run that measures memory (D8, D11)."
    if (peaks.isna() & ~is_possible_peak(frame)).any():
        note += " A dash: not known, since timed steps do not count all gradients."
    note += " Predicted: by the model of D7, where it has what it needs."
    if floors := rows.floors(evidence, frame, ONE):
        note += f" Noise floor of speed-ups: {ranged(floors, percent)}."
    if frame["implementation"].str.endswith(COMPILED).any():
        note += " A compiled step is compared with the compiled step of one rank."
    table = side_by_side("One train step, by strategy", frame, LINES, columns, note)
    return table and table.last(HEAD_LINES)


def head_cell(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows at the largest size with the most strategies, and of one rank at the same cell."""
    if frame.empty:
        return frame
    several = frame[(frame["implementation"].map(rows.plain) != ONE) & gates.shown(frame)]
    for name in ("size", "context_length", "batch", "dtype"):
        if several.empty:
            return several
        known = in_order(name, several[name])
        count = {value: len(having(several, **{name: value})) for value in known}
        value = known[-1] if name == "size" else max(reversed(known), key=count.__getitem__)
        several, frame = (having(part, **{name: value}) for part in (several, frame))
    one = frame["implementation"].map(rows.plain) == ONE
    return frame[one | (frame["ranks"] == several["ranks"].max())]


def _of(*names: str) -> Callable[[pd.DataFrame], pd.Series]:
    """Return the selection of rows of these strategies and of their compiled variants."""
    return lambda frame: frame["implementation"].map(rows.plain).isin(names)


def _buckets(frame: pd.DataFrame) -> pd.Series:
    return frame["implementation"].str.startswith(BUCKETS)


def _alone(name: str, caption: str) -> Callable[[MachineEvidence], list[Table]]:
    """Return the function that makes the table of one strategy (D2, D3)."""

    def make(evidence: MachineEvidence) -> list[Table]:
        frame = rows.of_strategies(_frame(evidence), [name])
        columns = [
            *rows.step(frame),
            *rows.over_one(evidence, frame),
            *rows.overlap(evidence, frame),
        ]
        return each(side_by_side(caption, frame, LINES, columns, f"{burst_note(frame)} {LEDGER}"))

    return make


def overlapped_table(evidence: MachineEvidence) -> list[Table]:
    """Table D4: the overlapped strategy beside D2, D3 and DistributedDataParallel."""
    return _compared(evidence, _of(ONE_BY_ONE, FLAT, OVERLAPPED, DDP), "One train step")


def buckets_table(evidence: MachineEvidence) -> list[Table]:
    """Table D6: the size of the buckets in which gradients are exchanged."""
    return _compared(evidence, _buckets, "One train step")


def _compared(evidence: MachineEvidence, where: Callable, caption: str) -> list[Table]:
    frame = _frame(evidence)
    frame = frame[where(frame)]
    calls = rows.beside(evidence, frame)["calls"]
    columns = [
        *rows.step(frame),
        *rows.over_one(evidence, frame),
        *(
            speedup(
                f"over {implementation_words(base)}",
                rows.over(evidence, frame, base),
                f"over.{base}",
            )
            for base in (ONE_BY_ONE, DDP)
        ),
        *rows.overlap(evidence, frame),
        text("collectives", number_cells(calls, rows.count), "calls"),
    ]
    return each(side_by_side(caption, frame, LINES, columns, f"{burst_note(frame)} {LEDGER}"))


def cell_words(frame: pd.DataFrame) -> dict:
    """The values of the axes that a sentence names, of rows of one cell."""
    first = frame.iloc[0]
    return {"size": first["size"], "ranks": f"{first['ranks']:g}"}


def _verdict_over(evidence: MachineEvidence, name: str, base: str) -> dict:
    """The resolved speed-ups of one strategy over another, at the largest size that has one.

    Compiled steps decide where both were measured: eager ones often wait for the host. Then the
    verdict of eager steps is added if it is another one.
    """
    eager = having(sound(evidence, STEM), implementation={name, base})
    compiled = {name + COMPILED, base + COMPILED}
    both = having(sound(evidence, STEM), implementation=compiled)
    decides = set(both["implementation"]) == compiled
    found = measured(_resolved_over(evidence, both if decides else eager, base))
    found = having(found, size=in_order("size", found["size"])[-1])
    others = _resolved_over(evidence, eager, base) if decides else eager.iloc[:0]
    others = having(others, size=found["size"].iloc[0])
    verdict, other = _one_verdict(found), _one_verdict(others) if len(others) else None
    batches, eager_batches = _batches(found), _batches(others)
    return {
        **cell_words(found),
        "batches": batches if found["batch"].nunique() > 1 else None,
        "eager_batches": None if eager_batches == batches else eager_batches,
        "verdict": verdict,
        "ratio": Spread.of(found["ratio"]),
        "name": implementation_words(name),
        "base": implementation_words(base),
        "compiled": decides,
        "eager": None if other in (None, verdict) else Spread.of(others["ratio"]),
    }


def _batches(frame: pd.DataFrame) -> str:
    """The batches of the rows, in words: ``4 and 16``."""
    return listed(f"{batch:g}" for batch in sorted(frame["batch"].unique()))


def _resolved_over(evidence: MachineEvidence, frame: pd.DataFrame, base: str) -> pd.DataFrame:
    """The rows of strategies with a resolved speed-up over ``base``, with that speed-up."""
    parts = [resolved(evidence, STEM, *pair) for pair in rows.pairs(frame, base)]
    return pd.concat([frame.iloc[:0], *parts])


def _one_verdict(found: pd.DataFrame) -> str:
    verdicts = set(found["verdict"])
    return verdicts.pop() if len(verdicts) == 1 else "mixed"


def _best_bucket(evidence: MachineEvidence) -> dict:
    """The buckets of the least and of the most time at the largest size.

    The best are named only if they are faster than all others, and called alike only if they are
    the same as all others.
    """
    frame = sound(evidence, STEM)
    frame = measured(frame[_buckets(frame)])
    frame = having(frame, size=in_order("size", frame["size"])[-1])
    frame = having(frame, ranks=frame["ranks"].max(), dtype=in_order("dtype", frame["dtype"])[-1])
    times = _times(frame)
    best, others = times.idxmin(), measured(times[1:]).index.size
    pairs = [
        pair
        for other in times.index
        for pair in rows.pairs(having(frame, implementation={best, other}), other)
    ]
    found = pd.concat([frame.iloc[:0], *(resolved(evidence, STEM, *two) for two in pairs)])
    verdicts = set(found["verdict"])
    if len(found) < others or len(verdicts) != 1:
        raise NotMeasured
    worst = times[::-1].idxmax()
    return {
        **cell_words(frame),
        "verdict": verdicts.pop(),
        "best": implementation_words(best),
        "worst": implementation_words(worst),
        "longer": times[worst] / times[best] - 1,
    }


def _times(frame: pd.DataFrame) -> pd.Series:
    """Implementation -> ms of a step: sustained if all rows have such a time, else in bursts."""
    lasting = frame["sustained_ms"].notna().all()
    return frame.set_index("implementation")["sustained_ms" if lasting else "median_ms"]


_ON = "On {{ ranks }} ranks a {{ size }} step"
_OVER = (
    "{% if compiled %} in compiled steps{% endif %} at size {{ size }} on {{ ranks }} ranks"
    " ({{ ratio | range('ratio') }})."
    "{% if batches %} Both were compared at batch {{ batches }}.{% endif %}"
    "{% if eager %} In eager steps"
    "{% if eager_batches %} at batch {{ eager_batches }}{% endif %}"
    " it is {{ eager | range('ratio') }} as fast.{% endif %}"
)


def verdict_finding(name: str, base: str, words: str, place: str = SECTION) -> Finding:
    """The finding whether a strategy, called ``words``, is faster than another one."""
    return Finding(
        name=f"distributed_{name}_over_{base}",
        question=f"Is a step of {name} faster than one of {base}?",
        values=lambda evidence: _verdict_over(evidence, name, base),
        answer=lambda v: v["verdict"],
        answers={
            FASTER: f"{words} is faster than {{{{ base }}}}" + _OVER,
            SAME: f"{words} is on par with {{{{ base }}}}" + _OVER,
            SLOWER: f"{words} is slower than {{{{ base }}}}" + _OVER,
            "mixed": f"{words} is faster than {{{{ base }}}} in some cells only," + _OVER,
        },
        place=place,
    )


FINDINGS = (
    verdict_finding(OVERLAPPED, DDP, "Communication overlapped by hooks"),
    verdict_finding(FLAT, ONE_BY_ONE, "One flat tensor after the backward", PAGE),
    Finding(
        name="distributed_buckets",
        question="Which size of buckets is best?",
        values=_best_bucket,
        answer=lambda v: "best" if v["verdict"] == FASTER else "alike",
        answers={
            "best": _ON + " is shortest with {{ best }}; with {{ worst }} it takes"
            " {{ longer | percent }} longer.",
            "alike": _ON + " hardly depends on the size of buckets: {{ longer | percent }} between"
            " {{ best }} and {{ worst }}.",
        },
        place=SECTION,
    ),
)
TABLES = (
    TableGroup(
        "D2",
        "Gradients all-reduced one by one after the backward",
        _alone(ONE_BY_ONE, "One train step"),
        Owed(_of(ONE_BY_ONE), STEM),
    ),
    TableGroup(
        "D3",
        "Gradients all-reduced as one flat tensor",
        _alone(FLAT, "One train step"),
        Owed(_of(FLAT), STEM),
    ),
    TableGroup(
        "D4",
        "Gradients all-reduced by hooks during the backward",
        overlapped_table,
        Owed(_of(ONE_BY_ONE, FLAT, OVERLAPPED, DDP), STEM),
    ),
    TableGroup("D6", "Gradients in buckets", buckets_table, Owed(_buckets, STEM)),
)
