"""Tables D9 and D10: steps with sharded state or weights, and the volume of communication."""

from __future__ import annotations

import pandas as pd

from lmperf.distributed.memory import sent_bytes
from lmperf.names import implementation_words, in_order
from lmperf.reporting import gates
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.findings import PAGE, Finding, all_rows, measured
from lmperf.reporting.numbers import Count, percent, ratio
from lmperf.reporting.sections.distributed import rows
from lmperf.reporting.sections.distributed.rows import LINES, STEM
from lmperf.reporting.sections.distributed.steps import LEDGER, verdict_finding
from lmperf.reporting.side_by_side import Beside, each, side_by_side, speedup, text
from lmperf.reporting.tables import Owed, TableGroup, burst_note, number_cells, value_cells
from lmperf.results import LOWER, Table
from lmperf.transformer.sizes import SIZES, VOCAB_SIZE

PLAIN, DDP, OVERLAPPED = "one_rank", "ddp", "overlapped"
SHARDED = ("sharded_optimizer", "zero_redundancy")
FULLY = ("fully_sharded", "fsdp2", "fully_sharded_checkpointed", "fsdp2_checkpointed")
# The strategies of D9: those that shard, and what they are compared with.
STEPS_OF = (*SHARDED, *FULLY, OVERLAPPED, DDP)
STAGES = {"zero_1": "ZeRO-1", "zero_2": "ZeRO-2", "zero_3": "ZeRO-3"}
FLOAT32, MB = 4, 1e6
_SHORT = {size.short: size for size in SIZES.values()}
VOLUME = (
    "MB (10^6 bytes) that a rank sends in a step if each collective runs as a ring. Counted: what"
    " the strategy asks for. Launched: what the backend runs, in the ledger's steps; gloo runs a"
    " reduce-scatter as an all-reduce. Over the weights: counted over the bytes of all weights in"
    " float32. ZeRO: closed forms of its stages (arXiv 1910.02054), with"
    " gradients and weights in float32 but gathered weights of stage 3 in the dtype of the matmuls."
)


def _frame(evidence: MachineEvidence) -> pd.DataFrame:
    frame = evidence.frame(STEM)
    return pd.DataFrame(columns=[*LINES, "phase", "status"]) if frame is None else frame


def steps_table(evidence: MachineEvidence) -> list[Table]:
    """Table D9: steps with a sharded optimizer or sharded weights beside the plain ones."""
    frame = rows.of_strategies(_frame(evidence), STEPS_OF)
    columns = [
        *rows.step(frame),
        *rows.over_one(evidence, frame),
        *(
            speedup(
                f"over {implementation_words(base)}",
                rows.over(evidence, frame, base),
                f"over.{base}",
            )
            for base in (DDP, SHARDED[1])
        ),
        *rows.overlap(evidence, frame),
    ]
    return each(
        side_by_side("One train step", frame, LINES, columns, f"{burst_note(frame)} {LEDGER}")
    )


def volume_table(evidence: MachineEvidence) -> list[Table]:
    """Table D10: bytes that a rank sends in a step, beside those of ZeRO's stages."""
    frame = _frame(evidence)
    frame = frame[frame["implementation"].map(rows.plain) != PLAIN]
    launched = rows.beside(evidence, frame)["sent_bytes"]
    weights = frame["size"].map(_weights_bytes)
    columns = [
        text("collectives", value_cells(frame, frame["calls"], rows.count), "calls"),
        _volume("predicted", number_cells(_predicted(frame) / MB), "predicted"),
        _volume("counted", value_cells(frame, frame["sent_bytes"] / MB), "counted"),
        _volume("launched", number_cells(launched / MB), "launched"),
        Beside(
            "counted, over the weights",
            number_cells(frame["sent_bytes"] / weights, ratio),
            *("counted.over.weights", "", "ratio", LOWER),
        ),
        *(
            _volume(words, number_cells(_of_stage(frame, name) / MB), name)
            for name, words in STAGES.items()
        ),
    ]
    return each(side_by_side("Volume of communication", frame, LINES, columns, VOLUME))


def _volume(what: str, cells: pd.Series, name: str) -> Beside:
    return Beside(f"{what} (MB)", cells, f"sent.{name}", "MB", "significant", LOWER)


def _weights_bytes(size: str) -> float:
    shape = _SHORT.get(size)
    return FLOAT32 * shape.parameters(VOCAB_SIZE) if shape else float("nan")


def _predicted(frame: pd.DataFrame) -> pd.Series:
    """Bytes of the closed form of each row's strategy; NaN for a user's strategy."""
    return _sent(frame, frame["implementation"])


def _of_stage(frame: pd.DataFrame, name: str) -> pd.Series:
    return _sent(frame, pd.Series(name, frame.index, dtype=object))


def _sent(frame: pd.DataFrame, names: pd.Series) -> pd.Series:
    parts = zip(names, frame["size"], frame["ranks"], frame["dtype"], strict=True)
    return pd.Series([_closed(*part) for part in parts], frame.index, dtype=float)


def _closed(name: str, size: str, ranks: float, dtype: str) -> float:
    shape = _SHORT.get(size)
    if shape is None:
        return float("nan")
    try:
        return sent_bytes(name, shape, int(ranks), dtype)["total"]
    except ValueError:  # a user's strategy
        return float("nan")


# A counted volume within this fraction of the closed form agrees with it: shards are padded.
AGREES = 0.01


def _agreement(evidence: MachineEvidence) -> dict:
    """How many counted volumes agree with the closed forms, and the one furthest from it."""
    frame = all_rows(evidence, STEM)  # no mark of a time concerns a volume
    frame = frame[(frame["implementation"].map(rows.plain) != PLAIN) & gates.shown(frame)]
    predicted = _predicted(frame)
    frame = measured(frame[predicted.notna() & frame["sent_bytes"].notna()])
    off = frame["sent_bytes"] / predicted[frame.index] - 1
    worst = off.abs().idxmax()
    return {
        "more": _over_stage_1(frame),
        "agree": Count(int((off.abs() <= AGREES).sum()), len(off)),
        "off": off[worst],
        "name": implementation_words(frame.loc[worst, "implementation"]),
    }


def _over_stage_1(frame: pd.DataFrame) -> float | None:
    """Bytes that our sharded optimizer sends over those of ZeRO's first stage; None if the same."""
    ours = having(frame, implementation=SHARDED[0])
    more = float((ours["sent_bytes"] / _of_stage(ours, "zero_1")).max()) if len(ours) else 1.0
    return more if more > 1 + AGREES else None


def _stage(evidence: MachineEvidence) -> dict:
    """Bytes that the fully sharded strategy sends over those of plain data parallel training."""
    frame = all_rows(evidence, STEM)
    frame = having(frame[gates.shown(frame)], implementation={"fully_sharded", DDP})
    frame = measured(frame[frame["sent_bytes"].notna()])
    frame = having(frame, size=in_order("size", frame["size"])[-1])
    wide = frame.pivot_table("sent_bytes", [*rows.CELL], "implementation").dropna()
    measured(wide if wide.shape[1] == 2 else wide.iloc[:0])
    first = wide.iloc[-1]
    return {
        "ratio": first["fully_sharded"] / first[DDP],
        "dtype": wide.index[-1][rows.CELL.index("dtype")],
        "base": implementation_words(DDP),
        "size": wide.index[-1][0],
    }


_MORE = (
    "{% if more %} A sharded optimizer sends {{ more | ratio }} the bytes of ZeRO-1: gradients are"
    " all-reduced, not reduce-scattered.{% endif %}"
)
FINDINGS = (
    verdict_finding(SHARDED[0], OVERLAPPED, "A sharded optimizer"),
    verdict_finding(SHARDED[0], SHARDED[1], "Our sharded optimizer"),
    verdict_finding("fully_sharded", DDP, "Our fully sharded model"),
    verdict_finding("fully_sharded", "fsdp2", "Our fully sharded model"),
    Finding(
        name="distributed_volume",
        question="Do counted volumes agree with the closed forms?",
        values=_agreement,
        answer=lambda v: "all" if v["agree"].all else "some",
        answers={
            "all": f"All {{{{ agree.n }}}} counted volumes are within {percent(AGREES, 0)} of the"
            " closed forms." + _MORE,
            "some": f"{{{{ agree }}}} counted volumes are within {percent(AGREES, 0)} of the closed"
            " forms; the one furthest from it is off by {{ off | signed_percent }} ({{ name }})."
            + _MORE,
        },
        place=PAGE,
    ),
    Finding(
        name="distributed_stages",
        question="Does a fully sharded model send more than plain data parallel training?",
        values=_stage,
        answer=lambda v: "more" if v["ratio"] > 1 + AGREES else "no_more",
        answers={
            "more": "A fully sharded model sends {{ ratio | ratio }} the bytes of {{ base }} at"
            " size {{ size }}: weights are gathered twice.",
            "no_more": "A fully sharded model sends no more bytes than {{ base }} at size"
            " {{ size }} ({{ ratio | ratio }}).",
        },
        place=PAGE,
    ),
)
TABLES = (
    TableGroup(
        "D9",
        "Steps with sharded state or weights",
        steps_table,
        Owed(
            lambda frame: frame["implementation"].map(rows.plain).isin(STEPS_OF),
            STEM,
        ),
    ),
    TableGroup(
        "D10",
        "Volume of communication beside ZeRO",
        volume_table,
        Owed(lambda frame: frame["implementation"].map(rows.plain) != PLAIN, STEM),
    ),
)
