"""Why FlashAttention-2 is as fast as it is: findings on phases, ceilings and the host."""

from __future__ import annotations

import pandas as pd

from lmperf.names import implementation_words, in_order, phase_words
from lmperf.reporting import host_time
from lmperf.reporting.ceilings import achieved_tflops, balance, matmul_share, peak_words
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.findings import Finding, NotMeasured, measured, rows_of
from lmperf.reporting.numbers import Spread, listed, significant
from lmperf.reporting.sections.flash_attention import kinds

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
    """Up to which length a call takes longer to launch than to run: our kernel and a peer.

    ``kernels``: name -> words; a kernel of which nothing can be said is left out. ``names``: of
    both. ``nowhere``: whether both take no longer to launch at any length.
    """
    rows = kinds.short_work(rows_of(evidence, kinds.STEM))
    rows = measured(host_time.known(rows[kinds.single(rows)]))
    rows = having(rows, causal=rows["causal"].max())
    names = [kinds.kernel_of(rows), *kinds.rivals(rows)[:1]]
    parts = {name: having(rows, implementation=name) for name in names}
    kernels = {implementation_words(name): _waits(part) for name, part in parts.items()}
    kernels = {name: words for name, words in kernels.items() if words}
    nowhere = bool(host_time.launch_is_shorter(pd.concat(parts.values())).all())
    if not (kernels or nowhere):
        raise NotMeasured
    return {
        "numerics": kinds.numerics(rows),
        "widths": in_order("d_head", rows["d_head"]),
        "least": rows["seq_len"].min(),
        "kernels": kernels,
        "names": [*map(implementation_words, names)],
        "nowhere": nowhere,
    }


def _waits(rows: pd.DataFrame) -> str:
    """Where a kernel takes longer to launch: ``forward and backward up to length 2,048``, ...

    Empty if that cannot be said of the shortest length of any phase.
    """
    found: dict[str, list[str]] = {}
    for phase in kinds.PHASES:
        part = having(rows, phase=phase)
        until = host_time.longer_launch_until(part, "seq_len")
        if until is not None:
            found.setdefault(_until(part["seq_len"], until), []).append(phase_words(phase))
    return ", ".join(f"{listed(phases)} {where}" for where, phases in found.items())


def _until(lengths: pd.Series, until: int) -> str:
    if until < lengths.max():
        return f"up to length {significant(until)}"
    only = f"at length {significant(until)}"
    return only if lengths.nunique() == 1 else "at every measured length"


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
        question="Up to which length does launching a call take longer than running it?",
        values=_waiting,
        answer=lambda v: "device" if v["nowhere"] else "host",
        answers={
            "host": "One head ({{ numerics }}, d_head {{ widths | listed }}) takes longer to launch"
            " than to run"
            "{% for name, where in kernels.items() %}{{ ',' if loop.first }} {{ name }}:"
            " {{ where }}.{% endfor %}",
            "device": "One head ({{ numerics }}) takes no longer to launch than to run from length"
            " {{ least | sig }} on: {{ names | listed }}.",
        },
    ),
)
