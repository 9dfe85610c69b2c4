"""Findings on train steps: the gain of each technique."""

from __future__ import annotations

import itertools

import pandas as pd

from lmperf.names import UNSETTLED, dtype_words, implementation_words, in_order
from lmperf.reporting import gates, marks
from lmperf.reporting.ceilings import SUSTAINED, matmul_ceiling
from lmperf.reporting.custom import another_model
from lmperf.reporting.evidence import MachineEvidence, axes, having
from lmperf.reporting.findings import (
    PAGE,
    SHORT,
    Finding,
    NotMeasured,
    all_rows,
    measured,
    rows_of,
    sound,
    verdicts,
)
from lmperf.reporting.host_bound import HOST_BOUND, host_bound, queued
from lmperf.reporting.numbers import Count, Spread, ranged, ratio
from lmperf.reporting.sections.end_to_end import ways
from lmperf.reporting.sections.end_to_end.ways import BF16, BLOCKS, CELL, EAGER, STEM, WHOLE, Way
from lmperf.statistics import SLOWER

ATTENTIONS = ("sdpa", "triton")
# A share of the ceiling below this fraction of another one counts as lower.
FALL = 0.9
Pairs = dict[str, tuple[Way, Way]]


def _reach(ratios: pd.Series) -> str:
    return ranged(Spread.of(ratios), ratio)


def _contexts(rows: pd.DataFrame) -> str:
    low, high = rows["context_length"].min(), rows["context_length"].max()
    return f"context {low:g}" if low == high else f"contexts {low:g} to {high:g}"


def _dtypes(evidence: MachineEvidence) -> list[str]:
    return in_order("dtype", all_rows(evidence, STEM)["dtype"])


def _compared(evidence: MachineEvidence, pairs: Pairs) -> tuple[pd.DataFrame, dict]:
    """Train steps with their speed-ups, and the values that every sentence on them uses.

    pairs: name -> (way, base); a way is an implementation in a dtype. Raises NotMeasured without
    a speed-up.
    """
    found = {name: ways.steps_over(evidence, *pair) for name, pair in pairs.items()}
    rows = measured(pd.concat(found.values()))
    gains = [f"{name} {_reach(steps['ratio'])}" for name, steps in found.items() if len(steps)]
    return rows, {"contexts": _contexts(rows), "gains": gains, **verdicts(rows)}


def _how_many(values: dict) -> str:
    if values["faster"].all or values["faster"].none:
        return "all" if values["faster"].all else "none"
    return "some"


def _said(what: str, rest: str = "") -> dict[str, str]:
    """Three sentences on a comparison: if all, some or none of the train steps are faster."""
    return {
        "all": f"{what}{rest}.",
        "some": f"{what}, faster in {{{{ faster }}}} resolved steps{rest}.",
        "none": f"{what}, faster in no step{rest}.",
    }


def _compiling(evidence: MachineEvidence) -> dict:
    """Speed-ups of compiling by block over eager; of compiling the model, without rows by block."""
    name = BLOCKS if (all_rows(evidence, STEM)["implementation"] == BLOCKS).any() else WHOLE
    pairs = {dtype_words(d): (Way(name, d), Way(EAGER, d)) for d in _dtypes(evidence)}
    rows, values = _compared(evidence, pairs)
    seconds = Spread.of(measured(rows["compile_s"].dropna()))
    return {"what": implementation_words(name), "seconds": seconds, **values}


def _mixed_precision(evidence: MachineEvidence) -> dict:
    """Speed-ups of bf16 autocast over float32; ``busy``: host shares of the steps it slows down."""
    rows, values = _compared(evidence, {"": (Way(EAGER, BF16), ways.BASE)})
    slower = rows[rows["verdict"] == SLOWER]
    shares = queued(slower).dropna()
    return {
        "words": dtype_words(BF16),
        "busy": shares.min() if len(shares) and len(shares) == len(slower) else None,
        **values,
    }


def _mixed_precision_answer(values: dict) -> str:
    if values["busy"] is not None and values["busy"] > HOST_BOUND:
        return "host"
    return _how_many(values)


def _attention(evidence: MachineEvidence) -> dict:
    frame = rows_of(evidence, STEM, implementation=ATTENTIONS, phase=ways.STEP)
    dtype = in_order("dtype", frame["dtype"])[-1]
    plain = Way(EAGER, dtype)
    pairs = {implementation_words(name): (Way(name, dtype), plain) for name in ATTENTIONS}
    rows, values = _compared(evidence, pairs)
    base = having(plain.rows(evidence.frame(STEM)), phase=ways.STEP)
    peaks = rows.merge(base[[*CELL, "peak_mib"]], on=CELL, suffixes=("", "_plain"))
    less = (1 - peaks["peak_mib"] / peaks["peak_mib_plain"]).dropna()
    return {"words": plain.words, "less": Spread.of(less) if len(less) else None, **values}


def _triton_attention(evidence: MachineEvidence) -> dict:
    """Speed-ups of train steps with Triton attention over the same steps with SDPA."""
    frame = rows_of(evidence, STEM, implementation=ATTENTIONS, phase=ways.STEP)
    pairs = {
        implementation_words(run, axes(frame)): tuple(
            Way(name if run == EAGER else f"{name}_{run}", BF16) for name in ATTENTIONS[::-1]
        )
        for run in (EAGER, BLOCKS, WHOLE)
    }
    _, values = _compared(evidence, pairs)
    names = [implementation_words(name) for name in ATTENTIONS[::-1]]
    return {"words": dtype_words(BF16), "names": names, **values}


def _tf32(evidence: MachineEvidence) -> dict:
    eager = Way(EAGER, ways.TF32)
    _, values = _compared(evidence, {"": (eager, ways.BASE)})
    mixed = ways.steps_over(evidence, Way(EAGER, BF16), eager)
    waits = mixed[host_bound(mixed)] if len(mixed) else mixed
    return {
        "words": dtype_words(eager.dtype),
        "mixed": dtype_words(BF16),
        "of_mixed": verdicts(mixed) if len(mixed) else None,
        "waits": len(waits),
        **values,
    }


def _shares(evidence: MachineEvidence) -> dict:
    """The largest share of a sustained matmul by dtype, of steps back to back.

    Host-bound steps are left out: their time is that of the host.
    """
    rows = rows_of(evidence, STEM, phase=ways.STEP, implementation=EAGER)
    rows = ways.with_rates(evidence, rows[~host_bound(rows)]).dropna(subset=["share"])
    wide = rows.pivot_table(index=CELL, columns="dtype", values="share")
    dtypes = sorted(wide.columns, key=lambda dtype: matmul_ceiling(evidence, dtype, SUSTAINED))
    wide = measured(wide[dtypes].dropna())
    if len(dtypes) < 2:
        raise NotMeasured
    best = wide.max()
    return {
        "best": [(dtype_words(dtype), share) for dtype, share in best.items()],
        "falls": all(b < FALL * a for a, b in itertools.pairwise(best)),
        "contexts": _contexts(wide.reset_index()),
        "sizes": in_order("size", wide.reset_index()["size"]),
    }


def _whole(evidence: MachineEvidence) -> dict:
    pairs = {dtype: (Way(WHOLE, dtype), Way(BLOCKS, dtype)) for dtype in _dtypes(evidence)}
    rows, values = _compared(evidence, pairs)
    blocks = rows_of(evidence, STEM, implementation=BLOCKS, phase=ways.STEP)
    keys = [*CELL, "dtype"]
    both = rows.merge(blocks[[*keys, "compile_s"]], on=keys, suffixes=("", "_blocks"))
    cost = measured((both["compile_s"] / both["compile_s_blocks"]).dropna())
    return {"cost": Spread.of(cost), "seconds": both["compile_s"].max(), **values}


def _host(evidence: MachineEvidence) -> dict:
    """How many train steps are host-bound, in all and for each implementation of our model.

    The counts of all implementations add up to the total. A slow host makes more steps host-bound:
    ``beside`` counts those that were timed beside one. ``left_out``: how many steps of other
    models, and how many steps whose time may not hold for another reason, in words.
    """
    steps = having(all_rows(evidence, STEM), phase=ways.STEP)
    timed = steps[gates.shown(steps) & queued(steps).notna()]
    others = another_model(steps)[timed.index]
    slow = marks.marks_of(timed).map(lambda names: UNSETTLED & {*names} == {"host"}).astype(bool)
    holds = slow | timed.index.isin(sound(evidence, STEM).index)
    rows = measured(timed[holds & ~others])
    share, late = queued(rows), rows[host_bound(rows)]
    left_out = {"marked": timed[~holds & ~others], "of other models": timed[others]}
    counts = [
        (name, Count(*(len(having(part, implementation=name)) for part in (late, rows))))
        for name in in_order("implementation", rows["implementation"])
    ]
    return {
        "bound": Count(len(late), len(rows)),
        "beside": int(slow[late.index].sum()),
        "late": HOST_BOUND,
        "which": [f"{implementation_words(name, axes(rows))} {count}" for name, count in counts],
        "most": share.max(),
        "left_out": [
            f"{len(part)} {why} ({host_bound(part).sum()} host-bound)"
            for why, part in left_out.items()
            if len(part)
        ],
    }


_NUMERICS = (
    "Eager train step, {{ words }} over float32 ({{ contexts }}): {{ gain | range('ratio') }}"
)
_MIXED = "{{ words }} makes an eager step {{ gain | range('ratio') }} as fast as float32 does"
_OWN = (
    "{{ names | join(' over ') }} in a {{ words }} step ({{ contexts }}):"
    " {{ gains | join(', ') }}, "
)
_LEFT_OUT = "{% if left_out %} Left out: {{ left_out | listed }}.{% endif %}"
_SHARES = (
    "{% for words, share in best %}{{ share | percent }}"
    "{{ ' of a sustained matmul' if loop.first }} in {{ words }}{{ ', ' if not loop.last }}"
    "{% endfor %}"
)
FINDINGS = (
    Finding(
        name="compiling",
        question="How much does compiling speed up a step, and how long do its first calls take?",
        values=_compiling,
        answer=_how_many,
        answers=_said(
            "Train step, {{ what }} over eager: {{ gains | join(', ') }}",
            "; the first calls take {{ seconds | range('sig') }} s with compilation",
        ),
        place=PAGE,
    ),
    Finding(
        name="mixed_precision",
        question="How much does bf16 autocast speed up a step, and where is it slower?",
        values=_mixed_precision,
        answer=_mixed_precision_answer,
        answers={
            "all": _MIXED + " ({{ faster.n | count('resolved comparison') }}).",
            "some": _MIXED + ". It is faster in {{ faster }} resolved comparisons.",
            "none": "{{ words }} makes no eager step faster than float32 does:"
            " {{ gain | range('ratio') }}.",
            "host": _MIXED + ". Where it is slower, the host is the limit: it is busy for at least"
            " {{ busy | percent(0) }} of the step.",
        },
        place=SHORT,
    ),
    Finding(
        name="attention_inside",
        question="How much time and memory does flash attention save inside the model?",
        values=_attention,
        answer=_how_many,
        answers=_said(
            "Over plain attention in an {{ words }} step ({{ contexts }}):"
            " {{ gains | join(', ') }}",
            "{% if less %}; peak memory {{ less | range('percent') }} lower{% endif %}",
        ),
        place=PAGE,
    ),
    Finding(
        name="triton_attention_inside",
        question="Is the project's kernel inside the model as fast as PyTorch's attention?",
        values=_triton_attention,
        answer=lambda v: "open" if v["faster"].none and v["slower"].none else "told",
        answers={
            "told": _OWN + "faster in {{ faster }} resolved steps, slower in {{ slower }}.",
            "open": _OWN + "on par.",
        },
        place=PAGE,
    ),
    Finding(
        name="tf32",
        question="How much does TF32 speed up a step, and is mixed precision faster still?",
        values=_tf32,
        answer=_how_many,
        answers=_said(
            _NUMERICS,
            "{% if of_mixed %}; {{ mixed }} over {{ words }}: {{ of_mixed.gain | range('ratio') }},"
            " faster in {{ of_mixed.faster }}{% if waits %}; {{ waits }} of its steps are"
            " host-bound{% endif %}{% endif %}",
        ),
        place=PAGE,
    ),
    Finding(
        name="share_of_ceiling",
        question="Which share of a sustained matmul does a train step reach, by dtype?",
        values=_shares,
        answer=lambda v: "falls" if v["falls"] else "holds",
        answers={
            "falls": "The faster the arithmetic, the smaller the share that an eager step reaches:"
            " at {{ contexts }} ({{ sizes | listed }}) at best " + _SHARES + ".",
            "holds": "At {{ contexts }} ({{ sizes | listed }}) an eager step reaches at best "
            + _SHARES
            + ": the share does not always fall as the arithmetic gets faster.",
        },
        place=PAGE,
    ),
    Finding(
        name="whole_or_block",
        question="Is compiling the whole model better than compiling one block?",
        values=_whole,
        answer=_how_many,
        answers=_said(
            "Train step, compiled as a whole over compiled by block ({{ contexts }}):"
            " {{ gain | range('ratio') }}",
            "; its first calls take {{ cost | range }} times as long, at most"
            " {{ seconds | sig }} s",
        ),
        place=PAGE,
    ),
    Finding(
        name="step_host",
        question="Which train steps are host-bound?",
        values=_host,
        answer=lambda v: "none" if v["bound"].none else "some",
        answers={
            "some": "{{ bound }} train steps are host-bound: the host queues the last work after"
            " {{ late | percent(0) }} of the step.{% if beside %} {{ beside }} of them ran beside a"
            " slow host.{% endif %} By technique: {{ which | join(', ') }}." + _LEFT_OUT,
            "none": "None of {{ bound.n | count('train step') }} is host-bound: their last work is"
            " queued after {{ most | percent }} of the step at the latest." + _LEFT_OUT,
        },
        place=PAGE,
    ),
)
