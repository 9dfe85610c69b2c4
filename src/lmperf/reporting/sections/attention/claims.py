"""What the evidence on plain attention says."""

from __future__ import annotations

import pandas as pd

from lmperf.reporting import gates
from lmperf.reporting.claims import VERDICTS, Claim, NotMeasured, frame_of, rows_of
from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.numbers import dtype_words, gib
from lmperf.reporting.scaling import POINTS, exponents, threshold
from lmperf.reporting.speedup import compared_rows

CELL = ["batch", "d_head", "causal"]
SQUARE = (1.7, 2.3)


def _eager(evidence: MachineEvidence, phase: str) -> pd.DataFrame:
    return rows_of(evidence, "attention", implementation="eager", dtype="float32", phase=phase)


def _time_exponent(evidence: MachineEvidence) -> dict:
    frame = _eager(evidence, "forward")
    return exponent(frame, "median_ms")


def _memory_exponent(evidence: MachineEvidence) -> dict:
    return exponent(with_held(_eager(evidence, "backward")), "held")


def with_held(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of the backward with ``held``, MiB that the forward left for it; raises NotMeasured."""
    rows = rows.dropna(subset=["saved_mib"])
    if rows.empty:
        raise NotMeasured("no row has the memory held before backward")
    return rows.assign(held=rows["saved_mib"] - rows["resident_mib"].fillna(0.0))


def exponent(frame: pd.DataFrame, column: str) -> dict:
    """The exponent of a column in the length, over the cells, for a claim.

    Raises NotMeasured where no cell has enough lengths.
    """
    groups = [name for name in CELL if frame[name].notna().all()]
    found = exponents(frame, "seq_len", column, groups)
    if found.empty:
        raise NotMeasured(f"no d_head has {POINTS} lengths")
    lengths = sorted(frame["seq_len"].unique())[-POINTS:]
    return {
        "middle": found.median(),
        "lowest": found.min(),
        "highest": found.max(),
        "fits": len(found),
        "from_length": lengths[0],
        "to_length": lengths[-1],
    }


def compiling(evidence: MachineEvidence, phase: str) -> dict:
    """From which length on compiling pays in a phase, for a claim; raises NotMeasured."""
    frame_of(evidence, "attention")
    rows = compared_rows(evidence, "attention", "implementation", "eager")
    rows = rows[(rows["implementation"] == "compiled") & (rows["dtype"] == "float32")]
    rows = rows[rows["phase"] == phase]
    if rows.empty:
        raise NotMeasured("no two rows that were timed in turn")
    found = threshold(rows["seq_len"], rows["verdict"])
    return {
        "first": found.first,
        "steady": found.steady,
        "faster": found.faster,
        "same": found.same,
        "mixed": found.mixed,
        "slower": found.slower,
        "lowest": rows["ratio"].min(),
        "highest": rows["ratio"].max(),
    }


def _out_of_memory(evidence: MachineEvidence) -> dict:
    frame = frame_of(evidence, "attention")
    frame = frame[frame["implementation"] == "eager"]
    if frame.empty:
        raise NotMeasured("no row of eager attention")
    full, ran = frame[frame["status"] == "oom"], frame[gates.shown(frame)]
    if ran.empty:
        raise NotMeasured("no row of eager attention may be shown")
    first = full.sort_values("seq_len", kind="stable").iloc[0] if len(full) else None
    keys = [name for name in (*CELL, "dtype", "phase") if frame[name].notna().all()]
    smallest = full.groupby(keys)["seq_len"].min().rename("smallest")
    beyond = ran.join(smallest, on=keys)
    return {
        "length": None if first is None else first["seq_len"],
        "d_head": None if first is None else first["d_head"],
        "numerics": None if first is None else dtype_words(first["dtype"]),
        "requested": None if first is None else gib(first.get("requested_bytes")),
        "free": None if first is None else gib(first.get("free_bytes")),
        "longest": ran["seq_len"].max() if len(ran) else None,
        "consistent": not (beyond["seq_len"] > beyond["smallest"]).any(),
    }


_FIT = (
    " {{ middle | sig }} ({{ lowest | sig }} to {{ highest | sig }} over {{ fits }} fits, lengths"
    " {{ from_length }} to {{ to_length }})"
)

CLAIMS = (
    Claim(
        name="time_exponent",
        text="The forward time of plain attention (eager, float32 IEEE) grows with about the square"
        " of the length: exponent" + _FIT + ".",
        values=_time_exponent,
        holds=lambda v: SQUARE[0] <= v["middle"] <= SQUARE[1],
        about="how the time of attention grows",
        instead="That exponent is not near two.",
        summary=True,
    ),
    Claim(
        name="memory_exponent",
        text="What plain attention holds for its backward grows with about the square of the"
        " length, not in proportion to it: exponent" + _FIT + ".",
        values=_memory_exponent,
        holds=lambda v: SQUARE[0] <= v["middle"] <= SQUARE[1],
        about="how the memory of attention grows",
        instead="That exponent is not near two.",
        summary=True,
    ),
    Claim(
        name="compiling",
        text="Compiling plain attention (forward, float32 IEEE) pays"
        "{% if first %} from length {{ first }}"
        " on{% else %} at no length measured{% endif %}, with {{ lowest | ratio }} to"
        " {{ highest | ratio }} over eager." + VERDICTS,
        values=lambda evidence: compiling(evidence, "forward"),
        holds=lambda v: v["steady"],
        about="compiled against eager attention",
        instead="The lengths do not follow one another.",
        summary=True,
    ),
    Claim(
        name="out_of_memory",
        text="{% if length %}The shortest length at which plain attention runs out of memory is"
        " {{ length }} (d_head {{ d_head }}, {{ numerics }}: {{ requested }} asked, {{ free }}"
        " free), and no longer one runs at the same cell{% else %}No cell of plain attention ran"
        " out of memory, up to length {{ longest }}{% endif %}.",
        values=_out_of_memory,
        holds=lambda v: v["consistent"],
        about="where plain attention runs out of memory",
        instead="A longer one did run.",
    ),
)
