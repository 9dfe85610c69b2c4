"""Tables D5 and D12: communication in all, hidden under computation, and exposed."""

from __future__ import annotations

import pandas as pd

from lmperf.names import implementation_words, in_order
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.findings import SECTION, SHORT, Finding, NotMeasured, measured, sound
from lmperf.reporting.numbers import percent
from lmperf.reporting.sections.distributed import rows
from lmperf.reporting.sections.distributed.rows import LEDGER, LINES
from lmperf.reporting.side_by_side import Beside, each, rate, share, side_by_side, text, time
from lmperf.reporting.tables import Owed, TableGroup, number_cells, value_cells
from lmperf.results import LOWER, Table

SHARDED = ("fully_sharded", "fsdp2", "fully_sharded_checkpointed", "fsdp2_checkpointed")
OVERLAPPED, DDP = "overlapped", "ddp"
_SAMPLES = (
    "Median over {} steps under the profiler, each one sample (interval of the median). The rank"
    " with most exposed communication decides a step."
)
_POINTS = f"{100 * rows.WIDEST:g} points"
_LONGER_NOTE = (
    " Nor is it where computation and exposed communication exceed the timed step by more than"
    f" {percent(rows.MOST_EXCESS, 0)}: the profiler has changed the step."
)
NOTE = (
    " Medians of parts need not add up to that of the whole. A collective begins when its last rank"
    " begins it; what a rank waits for that, computing nothing, is *waited* and no communication."
    " *Idle*: the share of a step in which a rank neither computes nor communicates. Where it"
    f" exceeds {percent(rows.MOST_IDLE, 0)}, or where the interval of *hidden* is wider than"
    f" {_POINTS}, what is hidden in a timed step is not decided, and other tables say so."
    + _LONGER_NOTE
)
GATHERS_NOTE = (
    " An all-gather is *in time* as far as the rank computes meanwhile, else *late*. Where a rank"
    f" is idle for more than {percent(rows.MOST_IDLE, 0)} of the step (D5), or where the interval"
    f" of *in time* is wider than {_POINTS}, the share in a timed step is not decided."
    + _LONGER_NOTE
)


def ledger_table(evidence: MachineEvidence) -> list[Table]:
    """Table D5: the overlap ledger of each strategy."""
    frame = rows.ledger(evidence)
    columns = [
        time("step", rows.interval_cells(frame, "step_ms"), "step"),
        _ms(frame, "computation", "compute_ms"),
        _ms(frame, "communication", "communication_ms"),
        _ms(frame, "hidden", "hidden_ms"),
        _ms(frame, "exposed", "exposed_ms", LOWER),
        share("idle", value_cells(frame, rows.idle_share(frame), percent), "idle"),
        rate("hidden", rows.share_cells(frame), "hidden.share", "%", "percent_digits"),
        _ms(frame, "waited", "waited_ms", LOWER),
        text("collectives", number_cells(frame["calls"], rows.count), "calls"),
        text("trace", frame["trace"], "trace"),
    ]
    return each(side_by_side("The overlap ledger", frame, LINES, columns, _samples(frame) + NOTE))


def _samples(frame: pd.DataFrame) -> str:
    steps = {f"{number:g}" for number in frame["steps"].dropna()}
    return _SAMPLES.format(" or ".join(sorted(steps)))


def _ms(frame: pd.DataFrame, what: str, name: str, better: str = "") -> Beside:
    cells = rows.interval_cells(frame, name)
    return Beside(f"{what} (ms)", cells, name.removesuffix("_ms"), "ms", "significant", better)


def gathers_table(evidence: MachineEvidence) -> list[Table]:
    """Table D12: all-gathers of the fully sharded strategies, and the share of them hidden."""
    frame = rows.of_strategies(rows.ledger(evidence), SHARDED)
    late = frame["gathers_ms"] - frame["gathers_hidden_ms"]
    columns = [
        time("step", rows.interval_cells(frame, "step_ms"), "step"),
        _ms(frame, "all-gathers", "gathers_ms"),
        rate(
            "in time",
            rows.share_cells(frame, "gathers_hidden_share"),
            "gathers.hidden",
            "%",
            "percent_digits",
        ),
        Beside("late (ms)", value_cells(frame, late), "gathers.late", "ms", "significant", LOWER),
    ]
    note = _samples(frame) + GATHERS_NOTE
    return each(side_by_side("All-gathers of weights", frame, LINES, columns, note))


def largest(evidence: MachineEvidence, name: str, batch: float | None = None) -> pd.Series:
    """The valid ledger of a strategy at its largest size: compiled where that was measured.

    batch: of all ranks; None: the smallest.
    """
    frame = having(sound(evidence, LEDGER), table="ledger")
    frame = measured(rows.of_strategies(frame, [name]))
    frame = measured(having(frame, size=in_order("size", frame["size"])[-1]))
    frame = measured(having(frame, batch=frame["batch"].min() if batch is None else batch))
    frame = rows.with_timed(evidence, frame)
    compiled = frame[frame["implementation"].str.endswith(rows.COMPILED)]
    return (compiled if len(compiled) else frame).iloc[-1]


# From this share on, communication counts as hidden; up to the other it counts as exposed.
MOST, HARDLY_ANY = 0.9, 0.1


def _hidden(evidence: MachineEvidence) -> dict:
    """The hidden share of overlapped communication, and that of DistributedDataParallel."""
    ours = largest(evidence, OVERLAPPED)
    frame = having(sound(evidence, LEDGER), table="ledger")
    same = having(frame, **{name: ours[name] for name in rows.CELL})
    ddp = having(same, implementation=rows.like(DDP, ours["implementation"]))
    return {
        "share": ours["hidden_share"],
        "low": ours["hidden_share_low"],
        "high": ours["hidden_share_high"],
        "communication": ours["communication_ms"],
        "exposed": ours["exposed_ms"],
        "size": ours["size"],
        "batch": f"{ours['batch']:g}",
        "ranks": f"{ours['ranks']:g}",
        "name": implementation_words(ours["implementation"]),
        "ddp": ddp["hidden_share"].iloc[0] if len(ddp) else None,
        **_profiled(ours),
    }


def _profiled(ours: pd.Series) -> dict[str, float]:
    """What decides whether a row of the ledger tells of the timed step: see `rows.decided`."""
    one = ours.to_frame().T
    return {
        "idle": float(rows.idle_share(one).iloc[0]),
        "work": float(rows.work_ms(one).iloc[0]),
        "excess": float(rows.excess_work(one).iloc[0]),
        "timed": float(ours["timed_ms"]),
    }


def _by_share(values: dict) -> str:
    if values["idle"] > rows.MOST_IDLE:
        return "idle"
    if values["excess"] > rows.MOST_EXCESS:
        return "longer"
    if values["high"] - values["low"] > rows.WIDEST:
        return "varies"
    share = values["share"]
    return "most" if share >= MOST else "hardly" if share <= HARDLY_ANY else "part"


def _in_time(evidence: MachineEvidence) -> dict:
    """The share of the all-gathers of the fully sharded strategy that is hidden."""
    ours = largest(evidence, SHARDED[0])
    if pd.isna(ours["gathers_hidden_share"]):
        raise NotMeasured
    return {
        "share": ours["gathers_hidden_share"],
        "low": ours["gathers_hidden_share_low"],
        "high": ours["gathers_hidden_share_high"],
        "gathers": ours["gathers_ms"],
        "late": ours["gathers_ms"] - ours["gathers_hidden_ms"],
        **_profiled(ours),
        "size": ours["size"],
        "batch": f"{ours['batch']:g}",
        "ranks": f"{ours['ranks']:g}",
        "name": implementation_words(ours["implementation"]),
    }


_AT = "At batch {{ batch }}, "
_CELL = " ({{ name }}, size {{ size }}, {{ ranks }} ranks)"
_DDP = "{% if ddp is not none %} DistributedDataParallel hides {{ ddp | percent(0) }}.{% endif %}"
_HIDDEN = (
    " of the communication is hidden under computation" + _CELL + ": {{ share | percent(0) }}."
)
_EXPOSED = " The exposed {{ exposed | sig }} of {{ communication | sig }} ms lengthen the step."
_IDLE = (
    " is not decided" + _CELL + ". Under the profiler a rank waits for {{ idle | percent(0) }} of"
    " the step, for its host or another rank."
)
_VARIES = (
    " is not decided" + _CELL + ". The interval of the median is {{ low | percent(0) }} to"
    " {{ high | percent(0) }}."
)
_LONGER = (
    " is not decided" + _CELL + ". Computation and exposed communication take {{ work | sig }} ms"
    " of a profiled step, more than the {{ timed | sig }} ms of the timed one."
)
_GATHERED = (
    " of the all-gathers of weights is in time"
    + _CELL
    + ": {{ share | percent(0) }}. The step waits for"
    " {{ late | sig }} of their {{ gathers | sig }} ms."
)
FINDINGS = (
    Finding(
        name="distributed_hidden",
        question="How much of the communication is hidden under the backward?",
        values=_hidden,
        answer=_by_share,
        answers={
            "most": _AT + "nearly all" + _HIDDEN + _DDP,
            "part": _AT + "a part" + _HIDDEN + _EXPOSED + _DDP,
            "hardly": _AT + "hardly any" + _HIDDEN + _EXPOSED + _DDP,
            "varies": _AT + "how much of the communication is hidden" + _VARIES,
            "idle": _AT + "how much of the communication is hidden" + _IDLE,
            "longer": _AT + "how much of the communication is hidden" + _LONGER,
        },
        place=SHORT,
    ),
    Finding(
        name="distributed_gathers",
        question="Are the weights of a fully sharded model gathered in time?",
        values=_in_time,
        answer=_by_share,
        answers={
            "most": _AT + "nearly all" + _GATHERED,
            "part": _AT + "a part" + _GATHERED,
            "hardly": _AT + "hardly any" + _GATHERED,
            "varies": _AT + "what share of the weights is gathered in time" + _VARIES,
            "idle": _AT + "what share of the weights is gathered in time" + _IDLE,
            "longer": _AT + "what share of the weights is gathered in time" + _LONGER,
        },
        place=SECTION,
    ),
)


def _of_sharded(frame: pd.DataFrame) -> pd.Series:
    return frame["implementation"].map(rows.plain).isin(SHARDED)


TABLES = (
    TableGroup("D5", "The overlap ledger", ledger_table, Owed(stem=LEDGER, cell=LINES)),
    TableGroup(
        "D12", "Are weights gathered in time?", gathers_table, Owed(_of_sharded, LEDGER, LINES)
    ),
)
