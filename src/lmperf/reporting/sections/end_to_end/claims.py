"""What end-to-end evidence says: claims with their values."""

from __future__ import annotations

import pandas as pd

from lmperf.reporting.ceilings import matmul_share
from lmperf.reporting.claims import VERDICTS, Claim, NotMeasured, frame_of, rows_of
from lmperf.reporting.evidence import MachineEvidence, in_order
from lmperf.reporting.numbers import dtype_words, implementation_words
from lmperf.reporting.scaling import threshold
from lmperf.reporting.speedup import compared_rows

CELL = ["size", "context_length", "batch"]
BACKWARD_RANGE = (1.5, 2.5)
SUM_TOLERANCE = 0.15


def _phases(evidence: MachineEvidence, *phases: str) -> pd.DataFrame:
    frame = rows_of(evidence, "end_to_end", dtype="float32", implementation="eager")
    table = frame.pivot_table(index=CELL, columns="phase", values="median_ms", aggfunc="last")
    missing = [phase for phase in phases if phase not in table.columns]
    if missing:
        raise NotMeasured(f"no row of the phase {missing[0]}")
    table = table.dropna(subset=list(phases))
    if table.empty:
        raise NotMeasured("no cell has all of its phases")
    return table.reset_index()


def _backward(evidence: MachineEvidence) -> dict:
    table = _phases(evidence, "forward", "backward")
    ratio = table["backward"] / table["forward"]
    by_size = ratio.groupby(table["size"]).median()
    sizes = in_order("size", table["size"])
    return {
        "sizes": [(size, by_size[size]) for size in sizes],
        "middle": ratio.median(),
        "lowest": ratio.min(),
        "highest": ratio.max(),
        "cells": len(ratio),
    }


def _sum_of_phases(evidence: MachineEvidence) -> dict:
    table = _phases(evidence, "forward", "backward", "forward_backward")
    off = table["forward_backward"] / (table["forward"] + table["backward"]) - 1
    worst = off.abs().idxmax()
    size, context = table.loc[worst, ["size", "context_length"]]
    return {
        "off": off[worst],
        "size": size,
        "context": context,
        "cells": len(off),
        "tolerance": SUM_TOLERANCE,
    }


def _compiling(evidence: MachineEvidence) -> dict:
    frame_of(evidence, "end_to_end")
    rows = compared_rows(evidence, "end_to_end", "implementation", "eager")
    return _verdicts(rows[(rows["phase"] == "train_step") & (rows["dtype"] == "float32")])


def _mixed_precision(evidence: MachineEvidence) -> dict:
    frame_of(evidence, "end_to_end")
    rows = compared_rows(evidence, "end_to_end", "dtype", "float32")
    rows = rows[rows["dtype"] == "autocast_bfloat16"]
    return _verdicts(rows[(rows["phase"] == "train_step") & (rows["implementation"] == "eager")])


def _verdicts(rows: pd.DataFrame) -> dict:
    if rows.empty:
        raise NotMeasured("no two train steps that were timed in turn")
    found = threshold(rows["size"], rows["verdict"])
    best = rows.loc[rows["ratio"].idxmax()]
    return {
        "first": found.first,
        "steady": found.steady,
        "faster": found.faster,
        "slower": found.slower,
        "same": found.same,
        "mixed": found.mixed,
        "lowest": rows["ratio"].min(),
        "highest": rows["ratio"].max(),
        "best": implementation_words(best["implementation"]),
        "best_size": best["size"],
        "best_context": best["context_length"],
        "cells": len(rows),
    }


def _train_steps(evidence: MachineEvidence) -> pd.DataFrame:
    return rows_of(evidence, "end_to_end", phase="train_step")


def _cell(row: pd.Series) -> dict:
    return {
        "size": row["size"],
        "context": row["context_length"],
        "implementation": implementation_words(row["implementation"]),
        "numerics": dtype_words(row["dtype"]),
    }


def _throughput(evidence: MachineEvidence) -> dict:
    frame = _train_steps(evidence)
    frame = frame.dropna(subset=["tokens", "parameters"])
    if frame.empty:
        raise NotMeasured("no row counts its tokens")
    rate = frame["tokens"] / frame["median_ms"] * 1e3
    smallest = frame.groupby("size")["parameters"].max().idxmin()
    return {"rate": rate.max(), "smallest": smallest, **_cell(frame.loc[rate.idxmax()])}


def _utilisation(evidence: MachineEvidence) -> dict:
    frame = _train_steps(evidence)
    share = matmul_share(evidence, frame).dropna()
    if share.empty:
        raise NotMeasured("no matmul ceiling of the same numerics")
    return {"best": share.max(), "worst": share.min(), **_cell(frame.loc[share.idxmax()])}


CLAIMS = (
    Claim(
        name="throughput",
        text="The highest training throughput is {{ rate | rounded }} tokens/s: size {{ size }},"
        " context {{ context }}, {{ implementation }}, {{ numerics }}; it belongs to the smallest"
        " model measured.",
        values=_throughput,
        holds=lambda v: v["size"] == v["smallest"],
        about="the throughput of training",
        instead="The smallest model is {{ smallest }}.",
        summary=True,
    ),
    Claim(
        name="utilisation",
        text="A train step reaches {{ worst | percent }} to {{ best | percent }} of this machine's"
        " own matmul ceiling in the same numerics; the best is size {{ size }}, context"
        " {{ context }}, {{ implementation }}, {{ numerics }}.",
        values=_utilisation,
        holds=lambda v: v["best"] <= 1,
        about="the share of the matmul ceiling that training reaches",
        instead="Nothing can be above a ceiling: the ceiling or the count of FLOPs is wrong.",
        summary=True,
    ),
    Claim(
        name="backward",
        text="Backward takes {{ middle | sig }} times as long as forward ({{ lowest | sig }} to"
        " {{ highest | sig }} over {{ cells }} cells, eager, float32 IEEE), close to the factor of"
        " two of its matrix products; by size: {% for size, ratio in sizes %}{{ size }}"
        " {{ ratio | sig }}{{ ', ' if not loop.last }}{% endfor %}.",
        values=_backward,
        holds=lambda v: BACKWARD_RANGE[0] <= v["middle"] <= BACKWARD_RANGE[1],
        about="backward against forward",
        instead="The middle of the cells lies at {{ middle | sig }}, away from two.",
        summary=True,
    ),
    Claim(
        name="sum_of_phases",
        text="Forward and backward, each timed alone, add up to the two timed together: over"
        " {{ cells }} cells the largest difference is {{ off | signed_percent }} (size {{ size }},"
        " context {{ context }}).",
        values=_sum_of_phases,
        holds=lambda v: abs(v["off"]) <= v["tolerance"],
        about="the sum of forward and backward against both together",
        instead="That is more than the {{ tolerance | percent }} that this report allows.",
    ),
    Claim(
        name="compiling",
        text="For the train step in float32 IEEE, compiling pays{% if first %} from size"
        " {{ first }} on{% else %} at no size measured{% endif %}: speed-ups of"
        " {{ lowest | ratio }} to {{ highest | ratio }} over eager (the best: {{ best }}, size"
        " {{ best_size }}, context {{ best_context }})." + VERDICTS,
        values=_compiling,
        holds=lambda v: v["steady"],
        about="compiled against eager",
        instead="The sizes do not follow one another.",
        summary=True,
    ),
    Claim(
        name="mixed_precision",
        text="For the eager train step, bf16 autocast vs float32 IEEE pays{% if first %} from size"
        " {{ first }} on{% else %} at no size measured{% endif %}: {{ lowest | ratio }} to"
        " {{ highest | ratio }}." + VERDICTS,
        values=_mixed_precision,
        holds=lambda v: v["steady"],
        about="bf16 autocast vs float32 IEEE",
        instead="The sizes do not follow one another.",
        summary=True,
    ),
)
