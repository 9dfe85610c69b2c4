"""What the evidence on plain attention says."""

from __future__ import annotations

import math

import pandas as pd

from lmperf.names import dtype_words, in_order, phase_words
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.findings import SHORT, Finding, NotMeasured, frame_of, measured
from lmperf.reporting.numbers import MIB, Count, Spread, absent
from lmperf.reporting.sections.attention.growth import doubling, matrices, published_matrices
from lmperf.reporting.sections.attention.tables import BASE, PREDICTED, STEM, ran_out
from lmperf.reporting.speedup import FASTER, SLOWER, Series, compared

# A doubling of the length: a square grows by four, a line by two.
SQUARE, LINE = 4.0, 2.0
WITHIN = 0.25
AS_PREDICTED = 0.01


def _end(evidence: MachineEvidence) -> dict:
    """The shortest length that did not fit, be it of the grid or of ``attention_limit``."""
    grid = having(frame_of(evidence, STEM), implementation="eager", status="oom")
    ends = [rows for rows in (ran_out(evidence), grid) if rows["requested_bytes"].notna().any()]
    if not ends:
        raise NotMeasured
    first = pd.concat(ends).sort_values("seq_len", kind="stable").iloc[0]
    off = first.get(PREDICTED, math.nan) * MIB / first["requested_bytes"] - 1
    return {**first, "off": None if absent(off) else off}


def _end_answer(values: dict) -> str:
    if values["off"] is None:
        return "in_grid"
    return "predicted" if abs(values["off"]) <= AS_PREDICTED else "unpredicted"


def _kind_of_growth(values: dict) -> str:
    middle = values["memory"].middle
    near = {"square": SQUARE, "line": LINE}
    return next((name for name, f in near.items() if abs(middle / f - 1) <= WITHIN), "other")


def _counts_answer(values: dict) -> str:
    """Whether one write-up counts what is kept here, and the other the peak of the forward."""
    pairs = zip(values["counts"], (values["kept"], values["forward"]), strict=True)
    near = [abs(theirs.middle / ours.middle - 1) <= WITHIN for theirs, ours in pairs]
    return "explains" if all(near) else "counts"


def _compiling(evidence: MachineEvidence) -> dict:
    frame = frame_of(evidence, STEM)
    compiled = Series.of(implementation="compiled", dtype="float32")
    rows = measured(compared(evidence, STEM, compiled, BASE))
    length = rows["seq_len"].max()
    longest = having(rows, seq_len=length, phase="backward")
    return {
        "faster": _count(rows["verdict"], FASTER),
        "slower": _count(rows["verdict"], SLOWER),
        "gains": _by_phase(rows),
        "length": length,
        "peak": _peaks(longest, BASE.rows(frame)),
    }


def _count(verdicts: pd.Series, verdict: str) -> Count:
    return Count(int((verdicts == verdict).sum()), len(verdicts))


def _by_phase(rows: pd.DataFrame) -> list[tuple[str, Spread]]:
    """The speed-ups of each phase that has some, in words."""
    return [
        (phase_words(phase), Spread.of(having(rows, phase=phase)["ratio"]))
        for phase in in_order("phase", rows["phase"])
    ]


def _peaks(rows: pd.DataFrame, base: pd.DataFrame) -> Spread | None:
    """The peak of rows over that of the base in the same cells; None where not measured."""
    keys = ["batch", "seq_len", "d_head", "causal", "phase"]
    both = rows[[*keys, "peak_mib"]].merge(base[[*keys, "peak_mib"]], on=keys)
    found = (both["peak_mib_x"] / both["peak_mib_y"]).dropna()
    return Spread.of(found) if len(found) else None


def _compiling_answer(values: dict) -> str:
    if values["faster"].all:
        return "faster"
    return "never_slower" if values["slower"].none else "mixed"


def _numerics(evidence: MachineEvidence) -> dict:
    """Each numerics over float32 at the longest length: the speed-ups of each phase."""
    others = in_order("dtype", set(frame_of(evidence, STEM)["dtype"]) - {"float32"})
    series = {dtype: Series.of(implementation="eager", dtype=dtype) for dtype in others}
    found = {dtype: compared(evidence, STEM, ours, BASE) for dtype, ours in series.items()}
    found = [rows for rows in found.values() if len(rows)]
    if not found:
        raise NotMeasured
    rows = pd.concat(found)
    rows = having(rows, seq_len=rows["seq_len"].max())
    widths = sorted(rows["d_head"].unique())
    wide = rows.pivot_table(index=["dtype", "phase"], columns="d_head", values="ratio")
    return {
        "length": rows["seq_len"].iloc[0],
        "gains": [
            (dtype_words(dtype), _by_phase(having(rows, dtype=dtype)))
            for dtype in in_order("dtype", rows["dtype"])
        ],
        "faster": _count(rows["verdict"], FASTER),
        "widest": bool((wide[widths[-1]] > wide[widths[0]]).all()),
    }


_DOUBLED = (
    "Twice the length, {{ short | sig }} to {{ long | sig }} (float32), takes plain attention"
    " {{ forward | range }} times the time forward, {{ backward | range }} times backward, and"
    " {{ memory | range }} times the memory kept for the backward"
)
_HELD = (
    "At length {{ length | sig }} (float32) plain attention keeps {{ kept | range }} matrices of"
    " the length squared for the backward; the forward holds {{ forward | range }} at its peak, the"
    " backward {{ backward | range }}."
)
_COMPILED = "Compiled attention is faster than eager in {{ faster }} comparisons (float32)"
_GAINS = (
    ": {% for phase, gain in gains %}{{ gain | range('ratio') }} {{ phase }}"
    "{{ ', ' if not loop.last }}{% endfor %}{% if peak %}; at length {{ length | sig }} the peak"
    " of its backward is {{ peak | range('percent') }} of the eager one{% endif %}."
)
_OVER = (
    ": {% for numerics, phases in gains %}{{ numerics }} {% for phase, gain in phases %}"
    "{{ gain | range('ratio') }} {{ phase }}{{ ' and ' if not loop.last }}{% endfor %}"
    "{{ ', ' if not loop.last }}{% endfor %}."
)
_ENDS = (
    "The {{ phase | phase }} of plain attention ends at length {{ seq_len | sig }}"
    " ({{ dtype | numerics }}): {{ requested_bytes | gib }} asked"
)

FINDINGS = (
    Finding(
        name="attention_ends",
        question="Where does plain attention end?",
        values=_end,
        answer=_end_answer,
        answers={
            "predicted": _ENDS + ", as predicted, {{ free_bytes | gib }} free.",
            "unpredicted": _ENDS + ", prediction {{ off | signed_percent }},"
            " {{ free_bytes | gib }} free.",
            "in_grid": _ENDS + ", {{ free_bytes | gib }} free.",
        },
        place=SHORT,
    ),
    Finding(
        name="attention_growth",
        question="How do time and memory grow with the length?",
        values=lambda evidence: doubling(evidence, dtype="float32"),
        answer=_kind_of_growth,
        answers={
            "square": _DOUBLED + ": the square of the length, where a published write-up (001) says"
            " that memory scales linearly.",
            "line": _DOUBLED + ", which grows in proportion to the length.",
            "other": _DOUBLED + ".",
        },
    ),
    Finding(
        name="attention_matrices",
        question="How many matrices of the length squared does it hold?",
        values=lambda evidence: {**matrices(evidence), **published_matrices()},
        answer=_counts_answer,
        answers={
            "explains": _HELD + " Two published write-ups (000, 001), {{ apart | range }} times"
            " apart on this memory, come to {{ counts[0] | range }} and {{ counts[1] | range }} at"
            " {{ at | sig }}: what is kept, and the peak of the forward.",
            "counts": _HELD,
        },
    ),
    Finding(
        name="attention_compiled",
        question="What does compiling plain attention bring?",
        values=_compiling,
        answer=_compiling_answer,
        answers={
            "faster": _COMPILED + _GAINS,
            "never_slower": _COMPILED + " and slower in none" + _GAINS,
            "mixed": _COMPILED + " and slower in {{ slower.k }}" + _GAINS,
        },
    ),
    Finding(
        name="attention_numerics",
        question="What do lower numerics bring at the longest length?",
        values=_numerics,
        answer=lambda v: "faster" if v["faster"].all else "mixed",
        answers={
            "faster": "At length {{ length | sig }} lower numerics are faster than float32"
            "{% if widest %}, most so with wide heads{% endif %}" + _OVER,
            "mixed": "At length {{ length | sig }} lower numerics are faster than float32 in"
            " {{ faster }} comparisons" + _OVER,
        },
    ),
)
