"""What the evidence on md_lrpe_cosine says."""

from __future__ import annotations

import pandas as pd

from lmperf.names import dtype_words, implementation_words
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.findings import PAGE, SHORT, Finding, NotMeasured, measured, rows_of
from lmperf.reporting.numbers import MIB, Count, Spread
from lmperf.reporting.published import figures_of
from lmperf.reporting.sections.lrpe.rows import (
    CACHED,
    COPY,
    STEM,
    TRITON,
    large,
    main_dtype,
    measured_leads,
    shaped,
)
from lmperf.reporting.sections.lrpe.tables import predicted
from lmperf.reporting.speedup import FASTER, SLOWER, Series, compared

# A share of a copy this near to one is as fast as a copy: copies of two runs differ by as much.
NEAR_COPY = 0.02
# Medians that were not timed in turn differ from here on; those of one cell from SAME on.
APART, SAME = 0.05, 0.01
FEW_POSITIONS = 256
# A peak agrees with its closed form within this share, or within what the allocator rounds up.
PEAK_WITHIN, PEAK_ROUNDING_MIB = 0.05, 1.0


def _rows(evidence: MachineEvidence) -> pd.DataFrame:
    """What may be shown in the main numerics, with axes and positions."""
    rows = rows_of(evidence, STEM)
    return shaped(having(rows, dtype=main_dtype(rows)))


def _large(evidence: MachineEvidence, rows: pd.DataFrame) -> pd.DataFrame:
    return large(rows, _rows(evidence)["bytes"].max())


def _against(evidence: MachineEvidence, name: str, base: str) -> pd.DataFrame:
    """The main rows of an implementation that have a speed-up over another, with it."""
    dtype = main_dtype(rows_of(evidence, STEM))
    rows = compared(evidence, STEM, *(Series.of(implementation=n) for n in (name, base)))
    return measured(shaped(having(rows, dtype=dtype)))


def _lead_and_peer(evidence: MachineEvidence) -> list[str]:
    leads = measured_leads(_rows(evidence))
    if len(leads) < 2:
        raise NotMeasured
    return leads[:2]


def _by_phase(rows: pd.DataFrame) -> dict[str, Spread]:
    """The spread of the ratios of each direction; raises NotMeasured where one lacks."""
    ratios = {p: measured(having(rows, phase=p))["ratio"] for p in ("forward", "backward")}
    return {phase: Spread.of(each) for phase, each in ratios.items()}


def _copy(evidence: MachineEvidence) -> dict:
    lead, peer = _lead_and_peer(evidence)
    rows = _large(evidence, _against(evidence, lead, COPY))
    over = measured(_large(evidence, _against(evidence, lead, peer)))
    return {
        **_by_phase(rows),
        "over": Spread.of(over["ratio"]),
        "lead": implementation_words(lead),
        "peer": implementation_words(peer),
        "numerics": dtype_words(main_dtype(rows)),
        "megabytes": rows["bytes"].min() / 1e6,
    }


def _copy_answer(values: dict) -> str:
    def near(share: Spread) -> bool:
        return max(1 - share.low, share.high - 1) <= NEAR_COPY

    if not near(values["backward"]):
        return "shares"
    return "both" if near(values["forward"]) else "backward"


def _shape(evidence: MachineEvidence) -> dict:
    """The compiled version with and without extra tokens, and with as many positions on more axes.

    Cells are not timed in turn, so that these are quotients of medians.
    """
    rows = _rows(evidence)
    compiled = having(rows, implementation="compiled")
    wide = compiled.pivot_table("median_ms", ["phase", "axes", "shape"], "extra_tokens")
    if 0 not in wide or len(wide.columns) < 2:
        raise NotMeasured
    extra = max(wide.columns)
    over = (wide[0] / wide[extra]).dropna().reset_index(name="ratio")
    backward = having(over, phase="backward")
    groups = {"one": backward[backward["axes"] == 1], "more": backward[backward["axes"] > 1]}
    return {
        "extra": f"{extra:g}",
        "forward": Spread.of(measured(having(over, phase="forward"))["ratio"]),
        **{name: Spread.of(each["ratio"]) if len(each) else None for name, each in groups.items()},
        "axes_without": _axes_cost(evidence, having(compiled, extra_tokens=0)),
        "axes_with": _axes_cost(evidence, having(compiled, extra_tokens=extra)),
        "axes_triton": _axes_cost(evidence, having(rows, implementation=TRITON)),
    }


def _axes_cost(evidence: MachineEvidence, rows: pd.DataFrame) -> float | None:
    """By how much one large shape takes longer than another with as many positions, at most."""
    groups = _large(evidence, rows).groupby(["phase", "extra_tokens", "positions"])
    times = groups["median_ms"].agg(["min", "max"])[groups["axes"].nunique() > 1]
    return None if times.empty else (times["max"] / times["min"] - 1).max()


def _shape_answer(values: dict) -> str:
    if values["forward"].low > 1 + APART:
        return "faster"
    return "slower" if values["forward"].high < 1 - APART else "either"


def _cached(evidence: MachineEvidence) -> dict:
    """Keeping the angles against computing them again: times of large shapes, memory of all."""
    ratios = _large(evidence, _against(evidence, CACHED, TRITON))
    rows = having(_rows(evidence), implementation=[TRITON, CACHED])
    wide = rows.pivot_table(
        ["median_ms", "peak_mib"], ["phase", "bytes", "shape"], "implementation"
    ).dropna()
    if ("peak_mib", CACHED) not in wide:
        raise NotMeasured
    times = wide["median_ms"].groupby(["bytes", "shape"]).sum()
    times = times[times.index.isin(ratios.set_index(["bytes", "shape"]).index)]
    return {
        **_by_phase(ratios),
        "both": Spread.of(measured(times[CACHED] / times[TRITON])),
        "memory": Spread.of(wide["peak_mib"][CACHED] / wide["peak_mib"][TRITON] - 1),
        "megabytes": ratios["bytes"].min() / 1e6,
    }


def _cached_answer(values: dict) -> str:
    if values["both"].low > 1 + SAME:
        return "costs"
    return "pays" if values["both"].high < 1 - SAME else "either"


def _small(evidence: MachineEvidence) -> dict:
    lead, peer = _lead_and_peer(evidence)
    rows = _against(evidence, lead, peer)
    rows = rows[rows["positions"] < FEW_POSITIONS]
    if len(rows) < 2:
        raise NotMeasured
    slower = rows[rows["verdict"] == SLOWER]
    return {
        "lead": implementation_words(lead),
        "peer": implementation_words(peer),
        "positions": FEW_POSITIONS,
        "shapes": list(dict.fromkeys(rows["shape"])),
        "ratio": Spread.of(rows["ratio"]),
        "faster": Count(int((rows["verdict"] == FASTER).sum()), len(rows)),
        "slower": Count(len(slower), len(rows)),
        "where": list(dict.fromkeys(slower["phase"])),
    }


def _small_answer(values: dict) -> str:
    if values["faster"].all:
        return "faster"
    return "never_slower" if values["slower"].none else "slower"


def _memory(evidence: MachineEvidence) -> dict:
    rows = rows_of(evidence, STEM).dropna(subset=["peak_mib"])
    more = measured((rows["peak_mib"] - predicted(rows)).dropna())
    off = more / predicted(rows)[more.index]
    outside = off[(off.abs() > PEAK_WITHIN) & (more.abs() > PEAK_ROUNDING_MIB)]
    names = rows.loc[outside.index, "implementation"].unique()
    return {
        "within": PEAK_WITHIN,
        "rounding": PEAK_ROUNDING_MIB,
        "inside": Count(len(off) - len(outside), len(off)),
        "names": list(map(implementation_words, names)),
        "off": Spread.of(outside if len(outside) else off),
        **_inputs_at_peak(rows),
    }


def _inputs_at_peak(rows: pd.DataFrame) -> dict:
    """The peak of the Triton forward in sizes of its input, here and where it was published."""
    ours = {"implementation": TRITON, "phase": "forward"}
    published = having(figures_of(STEM), metric="peak memory", **ours)
    cell = ["shape", "dtype", "batch", "heads", "d_head", "extra_tokens"]
    here = (
        having(rows, **ours).astype(dict.fromkeys(cell[2:], int)).astype(dict.fromkeys(cell, str))
    )
    both = here.merge(published[[*cell, "value", "source"]], on=cell)
    inputs = both["bytes"] / 3 / MIB
    return {
        "ours": Spread.of(both["peak_mib"] / inputs),
        "theirs": Spread.of(both["value"].astype(float) / inputs),
        "source": next(iter(both["source"]), None),
    }


_OF_WHAT = "md_lrpe_cosine, {{ lead }} ({{ numerics }}, from {{ megabytes | sig }} MB): "
_OVER = "; {{ over | range('ratio') }} over {{ peer }}."
_EXTRA_TOKENS = "{{ extra }} extra tokens make the compiled forward "
_OVER_NONE = (
    "{{ forward | range('ratio') }} over none in {{ forward.n | count('shape') }}"
    "{% if one %}; its backward {{ one | range('ratio') }} with one axis{% endif %}"
    "{% if one and more %}, {{ more | range('ratio') }} with more{% endif %}"
    " (medians, not timed in turn)."
    "{% if axes_without is not none and axes_with is not none %} In large shapes of equal"
    " positions the number of axes costs compiled up to {{ axes_without | percent }} without"
    " them, {{ axes_with | percent }} with them"
    "{% if axes_triton is not none %}, and Triton {{ axes_triton | percent }}{% endif %}."
    "{% endif %}"
)
_TAKES = (
    "{{ both | range('ratio') }} the time of both directions (from {{ megabytes | sig }} MB;"
    " {{ forward | range('ratio') }} the speed forward, {{ backward | range('ratio') }} backward)"
    " and {{ memory | range('percent') }} more memory."
)
_FEW = (
    "Below {{ positions }} positions ({{ shapes | listed }}) {{ lead }} is faster than {{ peer }} "
)
_RATIO = ": {{ ratio | range('ratio') }}."
_PEAKS = (
    "{{ inside.n }} peaks lie within {{ within | percent(0) }} or {{ rounding | sig(1) }} MiB of"
    " the closed form"
)
_OFF = (
    "{{ off | range('signed_percent') }}.{% if source %} The forward"
    " of Triton peaks at {{ ours | range }} times its input; {{ theirs | range }} times in a"
    " published one ({{ source }}), whose input is resident twice.{% endif %}"
)

FINDINGS = (
    Finding(
        name="lrpe_copy",
        question="How near to a copy of as many bytes is md_lrpe_cosine, where bytes decide?",
        values=_copy,
        answer=_copy_answer,
        answers={
            "both": _OF_WHAT + "as fast as a copy in both directions" + _OVER,
            "backward": _OF_WHAT
            + "forward {{ forward | range('percent') }} of a copy, backward as fast"
            + _OVER,
            "shares": _OF_WHAT + "forward {{ forward | range('percent') }} of a copy,"
            " backward {{ backward | range('percent') }}" + _OVER,
        },
        place=SHORT,
    ),
    Finding(
        name="lrpe_shape",
        question="What do extra tokens and axes cost the compiled version?",
        values=_shape,
        answer=_shape_answer,
        answers={
            "faster": _EXTRA_TOKENS + "faster, " + _OVER_NONE,
            "slower": _EXTRA_TOKENS + "slower, " + _OVER_NONE,
            "either": _EXTRA_TOKENS + _OVER_NONE,
        },
    ),
    Finding(
        name="lrpe_cached",
        question="Does it pay to keep the angles for the backward?",
        values=_cached,
        answer=_cached_answer,
        answers={
            "costs": "Keeping the angles for the backward does not pay: it takes " + _TAKES,
            "pays": "Keeping the angles for the backward pays in time: it takes " + _TAKES,
            "either": "Keeping the angles for the backward takes " + _TAKES,
        },
    ),
    Finding(
        name="lrpe_small",
        question="Is the kernel worth it at small shapes?",
        values=_small,
        answer=_small_answer,
        answers={
            "faster": _FEW + "in all {{ faster.n }} comparisons" + _RATIO,
            "never_slower": _FEW + "in {{ faster }} comparisons and slower in none" + _RATIO,
            "slower": _FEW + "in {{ faster }} comparisons and slower in {{ slower.k }}"
            " ({{ where | listed }})" + _RATIO,
        },
    ),
    Finding(
        name="lrpe_memory",
        question="Does memory follow from what is kept?",
        values=_memory,
        answer=lambda v: "all" if v["inside"].all else "some",
        answers={
            "all": "All " + _PEAKS + ", " + _OFF,
            "some": "{{ inside.k }} of " + _PEAKS + "; the others, of {{ names | listed }},"
            " are off by " + _OFF,
        },
        place=PAGE,
    ),
)
