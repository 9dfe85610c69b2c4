"""What the evidence on plain attention says."""

from __future__ import annotations

import pandas as pd

from lmperf.names import dtype_words, in_order, phase_words
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.findings import SHORT, Finding, NotMeasured, measured
from lmperf.reporting.numbers import MIB, Count, Spread, absent
from lmperf.reporting.sections.attention.growth import doubling, matrices, published_matrices
from lmperf.reporting.sections.attention.tables import BASE, STEM, ran_out
from lmperf.reporting.speedup import FASTER, SLOWER, Series, compared

# A doubling of the length: a square grows by four, a line by two.
SQUARE, LINE = 4.0, 2.0
WITHIN = 0.25
AS_PREDICTED = 0.01


def _end(evidence: MachineEvidence) -> dict:
    """The shortest length that did not fit, be it of the grid or of ``attention_limit``."""
    found = [part for part in (ran_out(evidence), _full_cells(evidence)) if len(part)]
    if not found:
        raise NotMeasured
    first = pd.concat(found).sort_values("seq_len", kind="stable").iloc[0]
    predicted = first.get("predicted_requested_mib")
    return {
        "length": f"{first['seq_len']:,.0f}",
        "numerics": dtype_words(first["dtype"]),
        "phase": phase_words(first["phase"]),
        "asked": None if absent(first["requested_mib"]) else first["requested_mib"] * MIB,
        "free": first["free_mib"] * MIB,
        "off": None if absent(predicted) else predicted / first["requested_mib"] - 1,
    }


def _full_cells(evidence: MachineEvidence) -> pd.DataFrame:
    frame = evidence.frame(STEM)
    if frame is None:
        return pd.DataFrame()
    full = having(frame, implementation="eager", status="oom")
    sizes = {name: full[f"{name}_bytes"] / MIB for name in ("requested", "free")}
    return full.assign(requested_mib=sizes["requested"], free_mib=sizes["free"])


def _end_answer(values: dict) -> str:
    if values["asked"] is None:
        return "unsaid"
    if values["off"] is None:
        return "in_grid"
    return "predicted" if abs(values["off"]) <= AS_PREDICTED else "unpredicted"


def _growth(evidence: MachineEvidence) -> dict:
    found = doubling(evidence, dtype="float32")
    if any(found[name] is None for name in ("forward", "backward", "memory")):
        raise NotMeasured
    short, long = found["lengths"]
    return {**found, "short": f"{short:,.0f}", "long": f"{long:,.0f}"}


def _kind_of_growth(values: dict) -> str:
    middle = values["memory"].middle
    near = {"square": SQUARE, "line": LINE}
    return next((name for name, f in near.items() if abs(middle / f - 1) <= WITHIN), "other")


def _compiling(evidence: MachineEvidence) -> dict:
    compiled = Series.of(implementation="compiled", dtype="float32")
    if evidence.frame(STEM) is None:
        raise NotMeasured
    rows = measured(compared(evidence, STEM, compiled, BASE))
    longest = having(rows, seq_len=rows["seq_len"].max(), phase="backward")
    return {
        "faster": Count(int((rows["verdict"] == FASTER).sum()), len(rows)),
        "slower": int((rows["verdict"] == SLOWER).sum()),
        "gains": _by_phase(rows),
        "length": f"{rows['seq_len'].max():,.0f}",
        "peak": _peaks(evidence.frame(STEM), longest),
    }


def _peaks(frame: pd.DataFrame, rows: pd.DataFrame) -> Spread | None:
    """The peak of rows over that of eager attention in the same cells; None where not measured."""
    keys = ["batch", "seq_len", "d_head", "causal", "phase"]
    both = rows[[*keys, "peak_mib"]].merge(BASE.rows(frame)[[*keys, "peak_mib"]], on=keys)
    found = (both["peak_mib_x"] / both["peak_mib_y"]).dropna()
    return Spread.of(found) if len(found) else None


def _by_phase(rows: pd.DataFrame) -> list[tuple[str, Spread]]:
    """The speed-ups of each phase that has some, in words."""
    return [
        (phase_words(phase), Spread.of(having(rows, phase=phase)["ratio"]))
        for phase in in_order("phase", rows["phase"])
    ]


def _compiling_answer(values: dict) -> str:
    if values["faster"].all:
        return "faster"
    return "mixed" if values["slower"] else "never_slower"


def _numerics(evidence: MachineEvidence) -> dict:
    """Each numerics over float32 at the longest length: the speed-ups of each phase."""
    frame = evidence.frame(STEM)
    others = [] if frame is None else in_order("dtype", set(frame["dtype"]) - {"float32"})
    series = {dtype: Series.of(implementation="eager", dtype=dtype) for dtype in others}
    found = {d: compared(evidence, STEM, ours, BASE) for d, ours in series.items()}
    found = {dtype: rows for dtype, rows in found.items() if len(rows)}
    if not found:
        raise NotMeasured
    longest = min(rows["seq_len"].max() for rows in found.values())
    found = {dtype: having(rows, seq_len=longest) for dtype, rows in found.items()}
    verdicts = pd.concat(found.values())["verdict"]
    return {
        "length": f"{longest:,.0f}",
        "gains": [(dtype_words(dtype), _by_phase(rows)) for dtype, rows in found.items()],
        "faster": Count(int((verdicts == FASTER).sum()), len(verdicts)),
        "widths": _widths(list(found.values())),
    }


def _widths(frames: list[pd.DataFrame]) -> bool:
    """Whether the widest heads gain more than the narrowest, in every numerics and phase."""
    ends = [
        rows.sort_values("d_head")["ratio"].iloc[[0, -1]]
        for frame in frames
        for _, rows in frame.groupby("phase")
        if rows["d_head"].nunique() > 1
    ]
    return bool(ends) and all(narrow < wide for narrow, wide in ends)


def _matrices(evidence: MachineEvidence) -> dict:
    return {**matrices(evidence), **published_matrices()}


def _matrices_answer(values: dict) -> str:
    """Whether one write-up counts what is kept here, and the other the peak of the forward."""
    if values["forward"] is None or values["backward"] is None:
        return "kept"
    here = (values["kept"], values["forward"])
    pairs = zip(values["counts"], here, strict=True)
    near = [abs(theirs.middle / ours.middle - 1) <= WITHIN for theirs, ours in pairs]
    return "explains" if all(near) else "counts"


_GAINS = (
    "{% for phase, gain in gains %}{{ gain | range('ratio') }} {{ phase }}"
    "{{ ', ' if not loop.last }}{% endfor %}"
)
_PEAK = (
    "{% if peak %}; at length {{ length }} the peak of its backward is"
    " {{ peak | range('percent') }} of the eager one{% endif %}."
)
_OVER = (
    "{% for numerics, phases in gains %}{{ numerics }} {% for phase, gain in phases %}"
    "{{ gain | range('ratio') }} {{ phase }}{{ ' and ' if not loop.last }}{% endfor %}"
    "{{ ', ' if not loop.last }}{% endfor %}"
)
_DOUBLED = (
    "Twice the length, {{ short }} to {{ long }} (float32), takes plain attention"
    " {{ forward | range }} times the time forward, {{ backward | range }} times backward, and"
    " {{ memory | range }} times the memory kept for the backward"
)
_HELD = (
    "At length {{ length }} (float32) it keeps {{ kept | range }} matrices of the length squared"
    " for the backward"
)
_PEAKS = (
    "; the forward holds {{ forward | range }} at its peak, the backward {{ backward | range }}"
)

FINDINGS = (
    Finding(
        name="attention_ends",
        question="Where does plain attention end?",
        values=_end,
        answer=_end_answer,
        answers={
            "predicted": "The {{ phase }} of plain attention ends at length {{ length }}"
            " ({{ numerics }}): {{ asked | gib }} asked, as predicted, {{ free | gib }} free.",
            "unpredicted": "The {{ phase }} of plain attention ends at length {{ length }}"
            " ({{ numerics }}): {{ asked | gib }} asked, prediction"
            " {{ off | signed_percent }}, {{ free | gib }} free.",
            "in_grid": "The {{ phase }} of plain attention ends at length {{ length }}"
            " ({{ numerics }}): {{ asked | gib }} asked, {{ free | gib }} free.",
            "unsaid": "The {{ phase }} of plain attention runs out of memory at length"
            " {{ length }} ({{ numerics }}).",
        },
        place=SHORT,
    ),
    Finding(
        name="attention_growth",
        question="How do time and memory grow with the length?",
        values=_growth,
        answer=_kind_of_growth,
        answers={
            "square": _DOUBLED + ": the square of the length, where a published write-up (001) says"
            " that memory scales linearly.",
            "line": _DOUBLED + ": memory grows in proportion to the length.",
            "other": _DOUBLED + ".",
        },
    ),
    Finding(
        name="attention_matrices",
        question="How many matrices of the length squared does it hold?",
        values=_matrices,
        answer=_matrices_answer,
        answers={
            "explains": _HELD + _PEAKS + ". Two published write-ups (000, 001),"
            " {{ apart | range }} times apart on this memory, come to {{ counts[0] | range }} and"
            " {{ counts[1] | range }} at {{ at }}: what is kept, and the peak of the forward.",
            "counts": _HELD + _PEAKS + ".",
            "kept": _HELD + ".",
        },
    ),
    Finding(
        name="attention_compiled",
        question="What does compiling plain attention bring?",
        values=_compiling,
        answer=_compiling_answer,
        answers={
            "faster": "Compiled, it is faster than eager in all"
            " {{ faster.n | count('comparison') }} (float32): " + _GAINS + _PEAK,
            "never_slower": "Compiled, it is faster than eager in {{ faster }} comparisons"
            " (float32) and slower in none: " + _GAINS + _PEAK,
            "mixed": "Compiled, it is faster than eager in {{ faster }} comparisons (float32) and"
            " slower in {{ slower }}: " + _GAINS + _PEAK,
        },
    ),
    Finding(
        name="attention_numerics",
        question="What do lower numerics bring at the longest length?",
        values=_numerics,
        answer=lambda v: "faster" if v["faster"].all else "mixed",
        answers={
            "faster": "At length {{ length }} lower numerics are faster than float32"
            "{% if widths %}, most so with wide heads{% endif %}: " + _OVER + ".",
            "mixed": "At length {{ length }} lower numerics are faster than float32 in {{ faster }}"
            " comparisons: " + _OVER + ".",
        },
    ),
)
