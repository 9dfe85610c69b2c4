"""Findings on md_lrpe_cosine: its speed relative to a copy, and the cost of caching angles."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

import pandas as pd

from lmperf.names import dtype_words, implementation_words, phase_words
from lmperf.reporting import gates, host_time, marks
from lmperf.reporting.evidence import MachineEvidence, groups, having
from lmperf.reporting.findings import SHORT, Finding, NotMeasured, always, measured, verdicts
from lmperf.reporting.numbers import Count, Spread, counted
from lmperf.reporting.sections.lrpe import shapes
from lmperf.reporting.speedup import averaged, compared, every, resolved

# Below this share of copy speed, bytes do not bound an implementation.
BOUND_BY_BYTES = 0.5


def _rows(evidence: MachineEvidence) -> pd.DataFrame:
    """The rows that findings may rest on, in one dtype; raises NotMeasured without any."""
    frame = shapes.rows_of(evidence)
    if frame is None:
        raise NotMeasured
    rows = measured(frame[gates.shown(frame) & ~marks.doubtful(frame, shapes.STEM)])
    return having(rows, dtype=shapes.numerics(rows))


def _compared(
    evidence: MachineEvidence, name: str, base: str, which: Callable = compared
) -> pd.DataFrame:
    """The rows of large shapes of ``name``, with their speed-up over ``base``.

    which: ``speedup.compared``; or ``averaged``, with precise ones that are unresolved.
    """
    rows, over = _rows(evidence), shapes.over(evidence, name, base, which)
    return measured(rows[rows["large"]].join(over, how="inner"))


def _by_phase(rows: pd.DataFrame) -> dict[str, Spread]:
    """The spread of the speed-ups of each phase; raises NotMeasured if a phase has no row."""
    parts = {phase: having(rows, phase=phase) for phase in ("forward", "backward")}
    return {phase: Spread.of(measured(part)["ratio"]) for phase, part in parts.items()}


def _by_tokens(rows: pd.DataFrame) -> dict[str, Spread]:
    """Phase in words -> spread of its speed-ups, as ``{"forward": ...}``.

    Where the ranges with different numbers of extra tokens do not overlap, each has its own.
    """
    found: dict[str, Spread] = {}
    for phase, spread in _by_phase(rows).items():
        of_phase, words = having(rows, phase=phase), phase_words(phase)
        parts = {
            f"{words} {_tokens_words(number)}": Spread.of(part["ratio"])
            for number, part in groups(of_phase, "extra_tokens")
        }
        found |= parts if _are_apart(parts.values()) else {words: spread}
    return found


def _tokens_words(number: int) -> str:
    return f"with {counted(number, 'extra token')}" if number else "without extra tokens"


def _are_apart(spreads: Iterable[Spread]) -> bool:
    """Whether there are several ranges, none from a single value, of which no two overlap."""
    ordered = sorted(spreads, key=lambda spread: spread.low)
    several = len(ordered) > 1 and all(spread.n > 1 for spread in ordered)
    return several and all(one.high < other.low for one, other in itertools.pairwise(ordered))


def _copy(evidence: MachineEvidence) -> dict:
    """The share of a copy's speed that the lead reaches for large shapes."""
    rows = _rows(evidence)
    leads = shapes.leads(rows)
    if len(leads) < 2:
        raise NotMeasured
    shares = _compared(evidence, leads[0], "copy", averaged)
    return {
        **_by_phase(shares),
        "both": Spread.of(shares["ratio"]),
        "kernel": implementation_words(leads[0]),
        "numerics": dtype_words(shapes.numerics(rows)),
        "large": shapes.large_words(rows),
    }


def _copy_answer(values: dict) -> str:
    def near(share: Spread) -> bool:
        return max(1 - share.low, share.high - 1) <= shapes.NEAR_COPY

    if near(values["forward"]) and near(values["backward"]):
        return "both"
    return "bytes" if values["both"].low > BOUND_BY_BYTES else "shares"


def _over_peer(evidence: MachineEvidence) -> dict:
    """Resolved speed-ups of the lead over the next implementation, of large and small shapes.

    ``gains``: of large shapes, by ``_by_tokens``. ``least``: of small shapes. ``open``: how many of
    the small shapes are unresolved or marked.
    """
    rows = _rows(evidence)
    leads = shapes.leads(rows)
    if len(leads) < 2:
        raise NotMeasured
    lead, peer = leads[:2]
    found = rows.join(shapes.over(evidence, lead, peer, resolved), how="inner")
    timed = having(shapes.rows_of(evidence), dtype=shapes.numerics(rows))
    timed = timed[timed.index.isin(shapes.over(evidence, lead, peer, every).index)]
    small, of = found[~found["large"]], int((~timed["large"]).sum())
    if 2 * found["large"].sum() < timed["large"].sum():
        raise NotMeasured
    return {
        "gains": _by_tokens(found[found["large"]]),
        "kernel": implementation_words(lead),
        "peer": implementation_words(peer),
        "large": shapes.large_words(rows),
        "least": small["ratio"].min() if len(small) else None,
        "open": Count(of - len(small), of),
    }


def _host(evidence: MachineEvidence) -> dict:
    """Up to which number of positions every shape takes longer to launch than to run.

    ``until``: number of positions -> the phases of which this can be said.
    """
    rows = _rows(evidence)
    lead = shapes.leads(rows)[:1]
    rows = measured(host_time.known(having(rows, implementation=lead)))
    until: dict[int, list[str]] = {}
    for phase, part in groups(rows, "phase"):
        positions = host_time.longer_launch_until(part, "positions")
        if positions is not None:
            until.setdefault(positions, []).append(phase_words(phase))
    if not until:
        raise NotMeasured
    return {"kernel": implementation_words(lead[0]), "until": until}


def _cached(evidence: MachineEvidence) -> dict:
    """Caching angles against recomputing them: speed-up and extra memory for large shapes."""
    rows = _rows(evidence)
    peaks = rows[rows["large"]].pivot_table("peak_mib", [*shapes.CELL, "phase"], "implementation")
    peaks = measured(peaks.reindex(columns=["triton_cached", "triton"]).dropna())
    return {
        **verdicts(_compared(evidence, "triton_cached", "triton")),
        "large": shapes.large_words(rows),
        "memory": Spread.of(peaks["triton_cached"] / peaks["triton"] - 1),
    }


def _cached_answer(values: dict) -> str:
    if values["slower"].all:
        return "costs"
    return "pays" if values["faster"].all else "either"


_WHAT = "md_lrpe_cosine, {{ kernel }} ({{ numerics }}, {{ large }}): "
_OVER = (
    "{{ kernel[:1] | upper }}{{ kernel[1:] }} over {{ peer }} ({{ large }}):"
    "{% for what, gain in gains.items() %}{% if loop.first %} {{ gain | range('ratio') }}"
    " {{ what }}.{% else %} {{ what[:1] | upper }}{{ what[1:] }}: {{ gain | range('ratio') }}."
    "{% endif %}{% endfor %}"
)

FINDINGS = (
    Finding(
        name="lrpe_copy",
        question="Which share of a copy's speed does it reach where it is memory-bound?",
        values=_copy,
        answer=_copy_answer,
        answers={
            "both": _WHAT + "as fast as a copy of the same bytes, forward and backward.",
            "bytes": _WHAT + "memory-bound, at {{ both | range('percent') }} of the speed of a"
            " same-sized copy.",
            "shares": _WHAT + "{{ both | range('percent') }} of the speed of a same-sized copy.",
        },
        place=SHORT,
    ),
    Finding(
        name="lrpe_over",
        question="How much faster is it than the next implementation?",
        values=_over_peer,
        answer=lambda v: "alone" if v["least"] is None else "is",
        answers={
            "alone": _OVER,
            "is": _OVER + " Smaller shapes: {{ least | ratio }} at least{{ ', %s unresolved or"
            " marked' % open if open.k }}.",
        },
    ),
    Finding(
        name="lrpe_host",
        question="Up to which number of positions does launching take longer than running?",
        values=_host,
        answer=always,
        answers={
            "is": "Up to{% for positions, phases in until.items() %}"
            " {{ positions | count('position') if loop.first else positions | thousands }}"
            " {{ phases | listed }},{% endfor %} {{ kernel }} takes longer to launch than to run."
        },
    ),
    Finding(
        name="lrpe_cached",
        question="Does caching the angles for the backward pay?",
        values=_cached,
        answer=_cached_answer,
        answers={
            "costs": "Caching the angles does not pay ({{ large }}):"
            " {{ gain | range('ratio') }} the speed. Cached, they must be read, and take up to"
            " {{ memory.high | percent }} more memory.",
            "pays": "Caching the angles is faster ({{ large }}), {{ gain | range('ratio') }} the"
            " speed. It takes up to {{ memory.high | percent }} more memory.",
            "either": "Caching the angles is faster in {{ faster }} resolved comparisons"
            " ({{ large }}). It takes up to {{ memory.high | percent }} more memory.",
        },
    ),
)
