"""What the profiles say of single kernels and of the classes of kernels, phase by phase."""

from __future__ import annotations

import pandas as pd

from lmperf.reporting.claims import Claim, NotMeasured, rows_of
from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.sections.profiles.tables import CELL, STEM

SINGLE, HALF = "float32", "autocast_bfloat16"
TIMER_TOLERANCE = 0.10
MOST = 0.5
# What is commonly expected of matmuls: of inference, and of a step of training.
RULE = {"forward": (0.8, 0.9), "train_step": (0.5, 0.7)}


def _by_phase(rows: pd.DataFrame, column: str, *phases: str) -> pd.DataFrame:
    """A column by cell and phase, for the cells that have all of these phases."""
    wide = rows.pivot_table(index=CELL, columns="phase", values=column)
    wide = wide.reindex(columns=list(phases)).dropna()
    if wide.empty:
        raise NotMeasured(f"no cell has each of {', '.join(phases)}".replace("_", " "))
    return wide


def _timer(evidence: MachineEvidence) -> dict:
    rows = rows_of(evidence, STEM, table="class", implementation="eager")
    passes = rows.groupby(["dtype", *CELL[:3], "phase"])
    share = passes["total_ms"].sum() / passes["wall_ms"].first()
    if SINGLE not in share.index.get_level_values("dtype"):
        raise NotMeasured("no pass in float32")
    own = share.loc[SINGLE]
    half = share[share.index.get_level_values("dtype") == HALF]
    return {
        "low": own.min(),
        "high": own.max(),
        "passes": len(own),
        "half": len(half) > 0,
        "half_low": half.min(),
        "half_high": half.max(),
        "allowed": TIMER_TOLERANCE,
    }


def _pairs(evidence: MachineEvidence) -> pd.DataFrame:
    """By cell and phase the share of the two longest kernels, and their names."""

    def make() -> pd.DataFrame:
        rows = rows_of(evidence, STEM, table="kernel", implementation="eager")
        rows = rows[rows["name"] != "rest"]
        rows = rows.sort_values(["time_share", "name"], ascending=[False, True])
        longest = rows.groupby([*CELL, "phase"]).head(2).sort_values("name")
        found = longest.groupby([*CELL, "phase"])
        return found.agg(share=("time_share", "sum"), names=("name", "\n".join))

    return evidence.once((STEM, "pairs"), make)


def _leading(evidence: MachineEvidence) -> dict:
    share = _pairs(evidence)["share"]
    forward = share[share.index.get_level_values("phase") == "forward"]
    dtype = forward.index.get_level_values("dtype")
    own, half = forward[dtype == SINGLE], forward[dtype == HALF]
    if own.empty:
        raise NotMeasured("no forward in float32")
    return {
        "low": own.min(),
        "high": own.max(),
        "half": len(half) > 0,
        "half_low": half.min(),
        "half_high": half.max(),
        "most": MOST,
    }


def _spreading(evidence: MachineEvidence) -> dict:
    pairs = _pairs(evidence)
    share = _by_phase(pairs["share"].reset_index(), "share", "forward", "forward_backward")
    names = pairs["names"].unstack("phase").loc[share.index]
    return {
        "low": share["forward_backward"].min(),
        "high": share["forward_backward"].max(),
        "falls": int((share["forward_backward"] < share["forward"]).sum()),
        "same": int((names["forward"] == names["forward_backward"]).sum()),
        "cells": len(share),
    }


def _rest(evidence: MachineEvidence) -> dict:
    rows = rows_of(evidence, STEM, table="class")
    rows = rows[(rows["implementation"] == "eager") & (rows["phase"] == "forward")]
    rows = rows[rows["name"] != "matmul"]
    wide = rows.pivot_table(index=CELL, columns="name", values="time_share")
    share = wide.div(wide.sum(axis=1), axis=0)
    dtype = share.index.get_level_values("dtype")
    own, half = share[dtype == SINGLE], share[dtype == HALF]
    if own.empty or "elementwise" not in share:
        raise NotMeasured("no forward in float32")
    return {
        "low": own["elementwise"].min(),
        "high": own["elementwise"].max(),
        "half": None if half.empty else half.median().idxmax(),
        "half_share": None if half.empty else half.median().max(),
        "most": MOST,
    }


def _elementwise(evidence: MachineEvidence) -> dict:
    rows = rows_of(evidence, STEM, table="class")
    rows = rows[(rows["implementation"] == "eager") & (rows["name"] == "elementwise")]
    share = _by_phase(rows, "time_share", "forward", "backward")
    return {
        "low": share["backward"].min(),
        "high": share["backward"].max(),
        "forward_low": share["forward"].min(),
        "forward_high": share["forward"].max(),
        "more": int((share["backward"] > share["forward"]).sum()),
        "cells": len(share),
    }


def _optimizer(evidence: MachineEvidence) -> dict:
    rows = rows_of(evidence, STEM, table="class")
    matmuls = rows[rows["name"] == "matmul"]
    count = _by_phase(matmuls, "instances", "forward_backward", "train_step")
    time = _by_phase(rows[rows["name"] == "optimizer"], "time_share", "train_step")
    added = count["train_step"] - count["forward_backward"]
    return {
        "none": int((added == 0).sum()),
        "cells": len(count),
        "added": added.max(),
        "low": time["train_step"].min(),
        "high": time["train_step"].max(),
    }


def _rule(evidence: MachineEvidence) -> dict:
    rows = rows_of(evidence, STEM, table="class")
    rows = rows[(rows["implementation"] == "eager") & (rows["dtype"] == SINGLE)]
    share = _by_phase(rows[rows["name"] == "matmul"], "time_share", *RULE)
    values = {"cells": len(share)}
    for phase, (low, high) in RULE.items():
        values |= {
            f"{phase}_from": low,
            f"{phase}_to": high,
            f"{phase}_low": share[phase].min(),
            f"{phase}_high": share[phase].max(),
            f"{phase}_inside": int(share[phase].between(low, high).sum()),
        }
    return values


CLAIMS = (
    Claim(
        name="timer_agrees",
        text="Profiler and timer agree where the device sets the pace: in float32 IEEE (eager) the"
        " kernels of a pass add up to {{ low | percent }} to {{ high | percent }} of its wall time"
        " without the profiler, over {{ passes }} passes{% if half %}; under bf16 autocast, where"
        " the device waits for the host as well, to {{ half_low | percent }} to"
        " {{ half_high | percent }}{% endif %}.",
        values=_timer,
        holds=lambda v: max(abs(1 - v["low"]), abs(1 - v["high"])) <= v["allowed"],
        about="the time of kernels against the timer",
        instead="This report expects a difference of at most {{ allowed | percent }} in float32"
        " IEEE.",
    ),
    Claim(
        name="leading_pair",
        text="Two kernels make up most of a forward in float32 IEEE (eager): the two longest take"
        " {{ low | percent }} to {{ high | percent }} of the time of kernels{% if half %}; under"
        " bf16 autocast {{ half_low | percent }} to {{ half_high | percent }}{% endif %}.",
        values=_leading,
        holds=lambda v: v["low"] > v["most"],
        about="the share of the two longest kernels",
        instead="Somewhere they take no more than {{ most | percent }}.",
        summary=True,
    ),
    Claim(
        name="spreading",
        text="With the backward the time spreads over more kernels: the two longest take"
        " {{ low | percent }} to {{ high | percent }} of forward + backward (eager), less than"
        " those of the forward alone take of it in all {{ cells }} cells; in {{ same }} of them"
        " they are the same two.",
        values=_spreading,
        holds=lambda v: v["falls"] == v["cells"],
        about="the two longest kernels of forward and backward together",
        instead="It is less in {{ falls }} of {{ cells }}.",
    ),
    Claim(
        name="rest_of_forward",
        text="What is not matmul in a forward is mostly elementwise in float32 IEEE (eager):"
        " {{ low | percent }} to {{ high | percent }} of the rest{% if half %}. Under bf16 autocast"
        " the largest class of the rest is {{ half }}, {{ half_share | percent }} of it in the"
        " median{% endif %}.",
        values=_rest,
        holds=lambda v: v["low"] > v["most"],
        about="the kernels of a forward that are not matmuls",
        instead="Somewhere it is no more than {{ most | percent }}.",
    ),
    Claim(
        name="backward_elementwise",
        text="Elementwise kernels weigh more in the backward than in the forward (eager), in all"
        " {{ cells }} cells: {{ low | percent }} to {{ high | percent }} of the backward,"
        " {{ forward_low | percent }} to {{ forward_high | percent }} of the forward.",
        values=_elementwise,
        holds=lambda v: v["more"] == v["cells"],
        about="the share of elementwise kernels by direction",
        instead="They do in {{ more }} of {{ cells }}.",
    ),
    Claim(
        name="optimizer_without_matmuls",
        text="The optimizer costs time without a single matmul: a train step launches as many of"
        " them as its forward + backward in all {{ cells }} cells, while the optimizer takes"
        " {{ low | percent }} to {{ high | percent }} of the time of its kernels.",
        values=_optimizer,
        holds=lambda v: v["none"] == v["cells"],
        about="the matmuls of the optimizer",
        instead="It does in {{ none }} of {{ cells }}; at most {{ added }} are added.",
    ),
    Claim(
        name="matmul_rule",
        text="Matmuls take what a common rule of thumb gives them, {{ forward_from | percent }} to"
        " {{ forward_to | percent }} of a forward and {{ train_step_from | percent }} to"
        " {{ train_step_to | percent }} of a train step: in float32 IEEE (eager)"
        " they take {{ forward_low | percent }} to {{ forward_high | percent }} and"
        " {{ train_step_low | percent }} to {{ train_step_high | percent }}.",
        values=_rule,
        holds=lambda v: v["forward_inside"] == v["train_step_inside"] == v["cells"],
        about="the share of matmuls against a rule of thumb",
        instead="The forward keeps to it in {{ forward_inside }} of {{ cells }} cells, the train"
        " step in {{ train_step_inside }}.",
    ),
)
