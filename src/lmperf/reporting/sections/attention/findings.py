"""Findings on plain attention: when it runs out of memory, and what makes it faster."""

from __future__ import annotations

import math
from functools import partial

import pandas as pd

from lmperf.dtypes import dtype_of
from lmperf.names import dtype_words, in_order, phase_words
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.findings import (
    SHORT,
    Finding,
    NotMeasured,
    all_rows,
    measured,
    rows_of,
    verdicts,
)
from lmperf.reporting.numbers import GIB, MIB, Spread, ranged, significant
from lmperf.reporting.sections.attention.tables import BASE, CELL, PREDICTED, STEM, held, usual
from lmperf.reporting.speedup import Series, compared
from lmperf.statistics import FASTER, SLOWER

WITHIN, AS_PREDICTED = 0.25, 0.01


def _end(evidence: MachineEvidence) -> dict:
    """The row of the first length at which eager attention ran out of memory, as a dict.

    ``requested`` and ``free`` are the GiB in the allocator's message; ``as_predicted`` is whether
    the request is within ``AS_PREDICTED`` of the predicted one.
    """
    frame = usual(evidence)
    if frame is None:
        raise NotMeasured
    full = having(frame, implementation="eager", status="oom")
    first = measured(full[full["requested_bytes"].notna()]).iloc[0]
    sizes = {name: first[f"{name}_bytes"] / GIB for name in ("requested", "free")}
    off = first.get(PREDICTED, math.nan) * MIB / first["requested_bytes"] - 1
    return {**first, **sizes, "as_predicted": abs(off) <= AS_PREDICTED}


def _matrices(evidence: MachineEvidence) -> dict:
    """Memory of eager float32 attention, in units of one [batch, length, length] float32 tensor.

    Covers the two longest lengths and excludes the inputs. ``square`` is whether the memory kept
    for the backward is the same number of such tensors (to ``WITHIN``) at both lengths.
    """
    rows = rows_of(evidence, STEM, implementation="eager", dtype="float32")
    rows = rows[rows["saved_mib"].notna()]
    lengths = sorted(set(rows["seq_len"]))[-2:]
    rows = having(rows, seq_len=lengths)
    one = rows["batch"] * rows["seq_len"] ** 2 * dtype_of("float32").bytes / MIB
    rows = rows.assign(kept=held(rows) / one, peak=(rows["peak_mib"] - rows["resident_mib"]) / one)
    of = {phase: measured(having(rows, phase=phase)) for phase in ("forward", "backward")}
    kept = Spread.of(of["backward"]["kept"])
    form = partial(significant, digits=2)
    return {
        "lengths": lengths,
        "square": len(lengths) == 2 and kept.high <= (1 + WITHIN) * kept.low,
        "kept": ranged(kept, form),
        **{phase: ranged(Spread.of(part["peak"]), form) for phase, part in of.items()},
    }


def _compiling(evidence: MachineEvidence) -> dict:
    backward = rows_of(evidence, STEM, dtype="float32", phase="backward")
    compiled = Series.of(implementation="compiled", dtype="float32")
    rows = measured(compared(evidence, STEM, compiled, BASE))
    length = rows["seq_len"].max()
    peaks = having(backward, seq_len=length).pivot_table("peak_mib", CELL, "implementation")
    peaks = peaks.reindex(columns=["compiled", "eager"])
    share = (peaks["compiled"] / peaks["eager"]).dropna()
    peak = Spread.of(share) if len(share) else None
    return {**verdicts(rows), "gains": _gains(rows), "length": length, "peak": peak}


def _gains(rows: pd.DataFrame) -> list[tuple[str, Spread]]:
    """(phase in words, spread of its speed-ups), from rows whose verdict is faster or slower."""
    rows = having(rows, verdict=[FASTER, SLOWER])
    phases = in_order("phase", rows["phase"])
    return [(phase_words(p), Spread.of(having(rows, phase=p)["ratio"])) for p in phases]


def _numerics(evidence: MachineEvidence) -> dict:
    """Speed-ups of eager attention in each other dtype over float32, at the longest length."""
    others = in_order("dtype", set(all_rows(evidence, STEM)["dtype"]) - {"float32"})
    series = [Series.of(implementation="eager", dtype=dtype) for dtype in others]
    found = [compared(evidence, STEM, ours, BASE) for ours in series]
    rows = measured(pd.concat(found or [pd.DataFrame()]))
    rows = having(rows, seq_len=rows["seq_len"].max())
    wide = rows.pivot_table("ratio", ["dtype", "phase"], "d_head").dropna()
    resolved = measured(having(rows, verdict=[FASTER, SLOWER]))
    return {
        **verdicts(rows),
        "length": rows["seq_len"].iloc[0],
        "gains": [
            (dtype_words(dtype), _gains(having(resolved, dtype=dtype)))
            for dtype in in_order("dtype", resolved["dtype"])
        ],
        "widest": len(wide) > 0 and bool((wide.iloc[:, -1] > wide.iloc[:, 0]).all()),
    }


def _all_faster(values: dict) -> str:
    return "all" if values["faster"].all else "rest"


_ENDS = (
    "Plain attention's {{ phase | phase }} ({{ dtype | numerics }}, batch {{ batch }}, d_head"
    " {{ d_head }}) runs out of memory at length {{ seq_len | sig }}"
)
_ASKED = ": {{ requested | sig }} GiB requested, {{ free | sig }} free."
_GAIN = (
    "{% for phase, gain in gains %}{{ gain | range('ratio') }} {{ phase }}"
    "{{ ', ' if not loop.last }}{% endfor %}"
)
_PEAK = (
    "{% if peak %}; at length {{ length | sig }} the peak memory of its backward is"
    " {{ peak | range('percent') }} of eager's{% endif %}."
)
_HELD = (
    "Memory in matrices of length x length (float32, lengths"
    " {{ lengths | map('sig') | join(' and ') }}, without inputs): {{ kept }} kept for the"
    " backward, {{ forward }} at the forward's peak,"
    " {{ backward }} at the backward's"
)
_COMPILED = "Compiled attention is faster than eager in {{ faster }} resolved comparisons (float32)"
_LOWER = "At length {{ length | sig }} lower precision is faster than float32"
_EACH = (
    ": {% for numerics, gains in gains %}{{ numerics }} " + _GAIN + "{{ '; ' if not loop.last }}"
    "{% endfor %}{% if widest %}; the widest heads gain more than the narrowest{% endif %}."
)

FINDINGS = (
    Finding(
        name="attention_ends",
        question="At which length does plain attention run out of memory?",
        values=_end,
        answer=lambda v: "predicted" if v["as_predicted"] else "other",
        answers={
            "predicted": _ENDS + ", as predicted" + _ASKED,
            "other": _ENDS + _ASKED,
        },
        place=SHORT,
    ),
    Finding(
        name="attention_matrices",
        question="How many matrices of length x length does it hold in memory?",
        values=_matrices,
        answer=lambda v: "square" if v["square"] else "other",
        answers={
            "square": _HELD
            + "; a published write-up (001) says that memory is linear in the length.",
            "other": _HELD + ".",
        },
    ),
    Finding(
        name="attention_compiled",
        question="How much does compiling speed up plain attention?",
        values=_compiling,
        answer=_all_faster,
        answers={
            "all": _COMPILED + ": " + _GAIN + _PEAK,
            "rest": _COMPILED + ", slower in {{ slower.k or 'none' }}{% if gains %};"
            " speed-ups: " + _GAIN + "{% endif %}" + _PEAK,
        },
    ),
    Finding(
        name="attention_numerics",
        question="How much does lower precision speed up the longest length?",
        values=_numerics,
        answer=_all_faster,
        answers={
            "all": _LOWER + _EACH,
            "rest": _LOWER + " in {{ faster }} resolved comparisons" + _EACH,
        },
    ),
)
