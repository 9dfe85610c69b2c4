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
NOTE = (
    "Median over steps under the profiler, each one sample (interval of the median); medians of"
    " parts need not add up to that of the whole. The rank with"
    " most exposed communication decides a step. A collective begins when its last rank begins it;"
    " what a rank waits for that, computing nothing, is *waited* and no communication. *Idle*: the"
    " share of a step in which a rank neither computes nor communicates. Where it exceeds a fifth,"
    f" or where the interval of *hidden* is wider than {percent(rows.WIDEST, 0)}, what is hidden in"
    " a timed step is not decided, and other tables do not show it."
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
    return each(side_by_side("The overlap ledger", frame, LINES, columns, NOTE))


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
        rate("hidden", rows.share_cells(frame), "hidden.share", "%", "percent_digits"),
    ]
    note = f"{NOTE} An all-gather is in time as far as the rank computes meanwhile."
    return each(side_by_side("All-gathers of weights", frame, LINES, columns, note))


def largest(evidence: MachineEvidence, name: str, batch: float | None = None) -> pd.Series:
    """The valid ledger of a strategy at its largest size: compiled where that was measured.

    batch: of all ranks; None: the smallest.
    """
    frame = having(sound(evidence, LEDGER), table="ledger")
    frame = measured(rows.of_strategies(frame, [name]))
    frame = measured(having(frame, size=in_order("size", frame["size"])[-1]))
    frame = measured(having(frame, batch=frame["batch"].min() if batch is None else batch))
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
        "step": ours["step_ms"],
        "size": ours["size"],
        "ranks": f"{ours['ranks']:g}",
        "name": implementation_words(ours["implementation"]),
        "ddp": ddp["hidden_share"].iloc[0] if len(ddp) else None,
        "idle": _idle(ours),
    }


def _idle(ours: pd.Series) -> float:
    return float(rows.idle_share(ours.to_frame().T).iloc[0])


def _by_share(values: dict) -> str:
    if values["idle"] > rows.MOST_IDLE:
        return "idle"
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
        "idle": _idle(ours),
        "size": ours["size"],
        "ranks": f"{ours['ranks']:g}",
        "name": implementation_words(ours["implementation"]),
    }


_CELL = " ({{ name }}, size {{ size }}, {{ ranks }} ranks)"
_DDP = "{% if ddp is not none %} DistributedDataParallel hides {{ ddp | percent(0) }}.{% endif %}"
_LEFT = (
    "{{ share | percent(0) }} of {{ communication | sig }} ms is hidden under computation" + _CELL
)
_IDLE = (
    " is not decided. Under the profiler a rank waits for {{ idle | percent(0) }} of the step, for"
    " its host or another rank" + _CELL + "."
)
_VARIES = (
    " is not decided: {{ low | percent(0) }} to {{ high | percent(0) }}, the interval of the"
    " median" + _CELL + "."
)
FINDINGS = (
    Finding(
        name="distributed_hidden",
        question="How much of the communication is hidden under the backward?",
        values=_hidden,
        answer=_by_share,
        answers={
            "most": "Nearly all communication is hidden: " + _LEFT + "." + _DDP,
            "part": "Part of the communication is hidden: "
            + _LEFT
            + "; {{ exposed | sig }} ms of it lengthen the step."
            + _DDP,
            "hardly": "Hardly any communication is hidden: "
            + _LEFT
            + "; {{ exposed | sig }} ms lengthen the step of {{ step | sig }} ms."
            + _DDP,
            "varies": "How much communication is hidden" + _VARIES,
            "idle": "How much of the {{ communication | sig }} ms of communication is hidden"
            + _IDLE,
        },
        place=SHORT,
    ),
    Finding(
        name="distributed_gathers",
        question="Are the weights of a fully sharded model gathered in time?",
        values=_in_time,
        answer=_by_share,
        answers={
            "most": "Weights are gathered in time: {{ share | percent(0) }} of the all-gathers'"
            " {{ gathers | sig }} ms is hidden" + _CELL + ".",
            "part": "Weights are gathered in time in part: {{ share | percent(0) }} of the"
            " all-gathers' {{ gathers | sig }} ms is hidden" + _CELL + ".",
            "hardly": "Weights are gathered late: the step waits for {{ late | sig }} ms of the"
            " all-gathers' {{ gathers | sig }} ms" + _CELL + ".",
            "varies": "What share of weights is gathered in time" + _VARIES,
            "idle": "Whether weights are gathered in time" + _IDLE,
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
