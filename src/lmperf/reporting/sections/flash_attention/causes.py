"""Why FlashAttention-2 is as fast as it is: findings on phases, ceilings and the host."""

from __future__ import annotations

import pandas as pd

from lmperf.names import implementation_words, in_order
from lmperf.reporting import host_time
from lmperf.reporting.ceilings import achieved_tflops, balance, matmul_share, peak_words
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.findings import Finding, NotMeasured, measured, rows_of
from lmperf.reporting.numbers import Spread, significant
from lmperf.reporting.sections.flash_attention import kinds

NOWHERE = "nowhere"
# A kernel below this share of the peak matmul's rate is not bound by its FLOPs or bytes.
NEAR_CEILING = 0.5


def _backward(evidence: MachineEvidence) -> dict:
    """Share of the backward in forward and backward, and its FLOPs and rate over the forward's.

    Each is the median over ``cells`` cells.
    """
    work, rows = kinds.main(rows_of(evidence, kinds.STEM))
    ours = having(rows, implementation=kinds.kernel_of(rows), phase=kinds.PHASES)
    ours = ours.assign(rate=achieved_tflops(ours))
    cell = [*kinds.SHAPE, "causal"]
    wide = ours.pivot_table(["median_ms", "flops", "rate"], cell, "phase").dropna()
    if wide.empty or not set(kinds.PHASES) <= set(wide["median_ms"]):
        raise NotMeasured
    forward, backward = (wide.xs(phase, axis=1, level="phase") for phase in kinds.PHASES)
    share = backward["median_ms"] / (forward["median_ms"] + backward["median_ms"])
    middle = (backward / forward).median()
    return {
        "work": work,
        "cells": len(wide),
        "share": share.median(),
        **{name: middle[name] for name in ("flops", "rate")},
    }


def _compute_bound(evidence: MachineEvidence) -> dict:
    """FLOPs per byte of the main cells beside those at which the device balances.

    ``best``: phase -> largest share of the peak matmul's rate that our kernel reaches.
    """
    work, rows = kinds.main(rows_of(evidence, kinds.STEM))
    ours = having(rows, implementation=kinds.kernel_of(rows), phase=kinds.PHASES)
    ours = measured(ours.dropna(subset=["flops", "bytes"]))
    even = balance(evidence, ours["dtype"].iloc[0])
    if even is None:
        raise NotMeasured
    shares = matmul_share(evidence, ours).groupby(ours["phase"]).max()
    return {
        "work": work,
        "intensity": Spread.of(ours["flops"] / ours["bytes"]),
        "balance": even,
        "peak": peak_words(evidence, ours["dtype"].iloc[0]),
        "best": {phase: shares[phase] for phase in kinds.PHASES if phase in shares},
    }


def _compute_bound_answer(values: dict) -> str:
    if max(values["best"].values()) < NEAR_CEILING:
        return "neither"
    if values["intensity"].low > values["balance"]:
        return "compute"
    return "memory" if values["intensity"].high < values["balance"] else "either"


def _waiting(evidence: MachineEvidence) -> dict:
    """Below which length a call takes longer to launch than to run: our kernel and a peer."""
    rows = kinds.short_work(rows_of(evidence, kinds.STEM))
    rows = measured(host_time.known(rows[kinds.single(rows)]))
    rows = having(rows, causal=rows["causal"].max())
    names = [kinds.kernel_of(rows), *kinds.rivals(rows)[:1]]
    return {
        "numerics": kinds.numerics(rows),
        "widths": in_order("d_head", rows["d_head"]),
        "least": rows["seq_len"].min(),
        "kernels": {
            implementation_words(name): [
                _waits(measured(having(rows, implementation=name, phase=phase)))
                for phase in kinds.PHASES
            ]
            for name in names
        },
    }


def _waits(rows: pd.DataFrame) -> str:
    """Where the host takes longer than the device: ``below length 2,048``, ``nowhere``, ...

    Below a length: at every shorter one. Some lengths: a shorter one does not wait.
    """
    rows = rows.sort_values("seq_len").drop_duplicates("seq_len")
    waits, end = rows["median_ms"] < rows["host_ms"], host_time.end_of_waiting(rows, "seq_len")
    if not waits.any():
        return NOWHERE
    if not waits.is_monotonic_decreasing:
        longest = significant(rows.loc[waits, "seq_len"].iloc[-1])
        return f"at some lengths up to {longest}"
    if end is not None:
        return f"below length {significant(end)}"
    only = f"at length {significant(rows['seq_len'].iloc[0])}"
    return only if len(rows) == 1 else "at every measured length"


def _waiting_answer(values: dict) -> str:
    found = {where for both in values["kernels"].values() for where in both}
    return "device" if found == {NOWHERE} else "host"


_BEST = (
    "{% if best | length == 2 %} Of {{ peak }} the forward reaches up to"
    " {{ best.forward | percent }}, the backward {{ best.backward | percent }}.{% endif %}"
)
_BACKWARD = (
    "takes {{ share | percent }} of the time, with {{ flops | sig }} times the FLOPs at"
    " {{ rate | sig }} times the forward's rate. {{ 'Medians of' if cells > 1 else 'On' }}"
    " {{ cells | count('cell') }} ({{ work }})."
)

CAUSES = (
    Finding(
        name="flash_backward",
        question="Why is the pair of phases as fast as it is?",
        values=_backward,
        answer=lambda v: "most" if v["share"] > 0.5 else "part",
        answers={
            "most": "The backward decides: it " + _BACKWARD,
            "part": "The backward " + _BACKWARD,
        },
    ),
    Finding(
        name="flash_bound",
        question="Do FLOPs or bytes bound it?",
        values=_compute_bound,
        answer=_compute_bound_answer,
        answers={
            "compute": "Compute-bound ({{ work }}): at least {{ intensity.low | sig }} FLOPs per"
            " byte; the device balances at {{ balance | sig }}." + _BEST,
            "memory": "Memory-bound ({{ work }}): at most {{ intensity.high | sig }} FLOPs per"
            " byte; the device balances at {{ balance | sig }}." + _BEST,
            "neither": "Neither FLOPs nor bytes bound it ({{ work }})." + _BEST,
            "either": "FLOPs per byte ({{ work }}): {{ intensity | range }}; the device balances"
            " at {{ balance | sig }}, above which compute binds." + _BEST,
        },
    ),
    Finding(
        name="flash_host",
        question="Below which length does launching a call take longer than running it?",
        values=_waiting,
        answer=_waiting_answer,
        answers={
            "host": "One head ({{ numerics }}, d_head {{ widths | listed }}) takes longer to launch"
            " than to run"
            "{% for name, (forward, backward) in kernels.items() %}{{ ',' if loop.first }}"
            " {{ name }}: forward {{ forward }}, backward {{ backward }}.{% endfor %}",
            "device": "One head ({{ numerics }}) takes no longer to launch than to run from length"
            " {{ least | sig }} on: {{ kernels | listed }}.",
        },
    ),
)
