"""What the evidence on plain attention says."""

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
    """The length at which the table of the write-up ends because it did not fit; sizes in GiB."""
    frame = usual(evidence)
    if frame is None:
        raise NotMeasured
    full = having(frame, implementation="eager", status="oom")
    first = measured(full[full["requested_bytes"].notna()]).iloc[0]
    sizes = {name: first[f"{name}_bytes"] / GIB for name in ("requested", "free")}
    off = first.get(PREDICTED, math.nan) * MIB / first["requested_bytes"] - 1
    return {**first, **sizes, "as_predicted": abs(off) <= AS_PREDICTED}


def _matrices(evidence: MachineEvidence) -> dict:
    """Matrices [batch, length, length] that float32 holds at the two longest lengths, no inputs."""
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
        **{phase: ranged(Spread.of(own["peak"]), form) for phase, own in of.items()},
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
    """Phases in words, and the speed-ups of each that are resolved."""
    rows = having(rows, verdict=[FASTER, SLOWER])
    phases = in_order("phase", rows["phase"])
    return [(phase_words(p), Spread.of(having(rows, phase=p)["ratio"])) for p in phases]


def _numerics(evidence: MachineEvidence) -> dict:
    """Each numerics over float32 at the longest length: the speed-ups of each phase."""
    others = in_order("dtype", set(all_rows(evidence, STEM)["dtype"]) - {"float32"})
    series = [Series.of(implementation="eager", dtype=dtype) for dtype in others]
    found = [compared(evidence, STEM, ours, BASE) for ours in series]
    rows = measured(pd.concat(found or [pd.DataFrame()]))
    rows = having(rows, seq_len=rows["seq_len"].max())
    wide = rows.pivot_table("ratio", ["dtype", "phase"], "d_head")
    resolved = measured(having(rows, verdict=[FASTER, SLOWER]))
    return {
        **verdicts(rows),
        "length": rows["seq_len"].iloc[0],
        "gains": [
            (dtype_words(dtype), _gains(having(resolved, dtype=dtype)))
            for dtype in in_order("dtype", resolved["dtype"])
        ],
        "widest": bool((wide.iloc[:, -1] > wide.iloc[:, 0]).all()),
    }


def _all_faster(values: dict) -> str:
    return "all" if values["faster"].all else "rest"


_ENDS = (
    "Plain attention's {{ phase | phase }} ({{ dtype | numerics }}, batch {{ batch }}, d_head"
    " {{ d_head }}) exhausts memory at length {{ seq_len | sig }}"
)
_ASKED = ": {{ requested | sig }} GiB asked, {{ free | sig }} free."
_GAIN = (
    "{% for phase, gain in gains %}{{ gain | range('ratio') }} {{ phase }}"
    "{{ ', ' if not loop.last }}{% endfor %}"
)
_PEAK = (
    "{% if peak %}; at {{ length | sig }} its backward peaks at {{ peak | range('percent') }} of"
    " eager's{% endif %}."
)
_HELD = (
    "In matrices of length squared ({{ lengths | map('sig') | join(' and ') }}, float32, inputs"
    " apart): {{ kept }} kept for the backward, {{ forward }} at the forward's peak, {{ backward }}"
    " at the backward's"
)
_COMPILED = "Compiling is faster in {{ faster }} comparisons (float32)"
_LOWER = "At length {{ length | sig }} lower numerics are faster than float32"
_EACH = (
    ": {% for numerics, gains in gains %}{{ numerics }} " + _GAIN + "{{ '; ' if not loop.last }}"
    "{% endfor %}{% if widest %}, most with wide heads{% endif %}."
)

FINDINGS = (
    Finding(
        name="attention_ends",
        question="Where does plain attention end?",
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
        question="How many matrices of the length squared does it hold?",
        values=_matrices,
        answer=lambda v: "square" if v["square"] else "other",
        answers={
            "square": _HELD + "; a published write-up (001) says that memory is linear.",
            "other": _HELD + ".",
        },
    ),
    Finding(
        name="attention_compiled",
        question="What does compiling plain attention bring?",
        values=_compiling,
        answer=_all_faster,
        answers={
            "all": _COMPILED + ": " + _GAIN + _PEAK,
            "rest": _COMPILED + ", slower in {{ slower.k or 'none' }}{% if gains %}; where"
            " resolved, " + _GAIN + "{% endif %}" + _PEAK,
        },
    ),
    Finding(
        name="attention_numerics",
        question="What do lower numerics bring at the longest length?",
        values=_numerics,
        answer=_all_faster,
        answers={
            "all": _LOWER + _EACH,
            "rest": _LOWER + " in {{ faster }} comparisons" + _EACH,
        },
    ),
)
