"""What the evidence says of a train step: what is fastest, and what each way of it gives."""

from __future__ import annotations

import itertools

import pandas as pd

from lmperf.names import dtype_words, implementation_words, in_order
from lmperf.reporting.ceilings import matmul_ceiling
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.findings import PAGE, SHORT, Finding, NotMeasured, measured, rows_of, verdicts
from lmperf.reporting.numbers import Spread, listed, ranged, ratio
from lmperf.reporting.sections.end_to_end import ways
from lmperf.reporting.sections.end_to_end.ways import (
    BF16,
    BLOCKS,
    CELL,
    EAGER,
    FLOAT32,
    STEM,
    STEP,
    TF32,
    WHOLE,
    steps_over,
    way,
)

ATTENTIONS = ("sdpa", "triton")
# What a share of the ceiling must fall to, of the one before, to be called lower.
FALL = 0.9


def _how_many(values: dict) -> str:
    if values["faster"].all or values["faster"].none:
        return "all" if values["faster"].all else "none"
    return "some"


def _compared(what: str, rest: str = "") -> dict[str, str]:
    """The sentences of a comparison, by how many of its train steps are faster."""
    return {
        "all": f"{what}{rest}.",
        "some": f"{what}, faster in {{{{ faster }}}} steps{rest}.",
        "none": f"{what}, no step faster{rest}.",
    }


def _reach(ratios: pd.Series) -> str:
    return ranged(Spread.of(ratios), ratio, "-")


def _contexts(rows: pd.DataFrame) -> str:
    low, high = rows["context_length"].min(), rows["context_length"].max()
    return f"context {low:g}" if low == high else f"contexts {low:g}-{high:g}"


def _gains(found: dict[str, pd.DataFrame]) -> list[str]:
    return [f"{words} {_reach(rows['ratio'])}" for words, rows in found.items() if len(rows)]


def _fastest(evidence: MachineEvidence) -> dict:
    rows = ways.fastest(evidence)
    rows = measured(rows[rows["ways"] > 1])
    over = rows["ratio"].dropna()
    which = rows["size"].groupby(rows["way"], sort=False).agg(listed)
    return {
        "which": list(which.index),
        "by_size": [f"{words} ({sizes})" for words, sizes in which.items()],
        "contexts": _contexts(rows),
        "over": _reach(over) if len(over) else None,
        **rows.iloc[-1][["size", "rate", "share"]],
    }


def _fastest_answer(values: dict) -> str:
    if values["which"] == [ways.words(ways.BASE)]:
        return "base"
    return "one" if len(values["which"]) == 1 else "by_size"


def _compiling(evidence: MachineEvidence) -> dict:
    """Of compiling by block or whole, what was measured in more steps."""
    dtypes = in_order("dtype", rows_of(evidence, STEM)["dtype"])
    found = {
        name: {dtype_words(d): steps_over(evidence, way(name, d), way(EAGER, d)) for d in dtypes}
        for name in (BLOCKS, WHOLE)
    }
    name = max(found, key=lambda name: sum(map(len, found[name].values())))
    rows = measured(pd.concat(found[name].values()))
    return {
        "what": implementation_words(name).capitalize(),
        "contexts": _contexts(rows),
        "gains": _gains(found[name]),
        "seconds": Spread.of(measured(rows["compile_s"].dropna())),
        **verdicts(rows),
    }


def _mixed_precision(evidence: MachineEvidence) -> dict:
    rows = measured(steps_over(evidence, way(EAGER, BF16)))
    most, least = (rows.loc[i] for i in (rows["ratio"].idxmax(), rows["ratio"].idxmin()))
    return {
        "words": dtype_words(BF16),
        "contexts": _contexts(rows),
        "reach": _reach(rows["ratio"]),
        "most": f"{ratio(most['ratio'])} ({most['size']})",
        "least": f"{ratio(least['ratio'])} ({least['size']}, {_contexts(least.to_frame().T)})",
        **verdicts(rows),
    }


def _attention(evidence: MachineEvidence) -> dict:
    frame = rows_of(evidence, STEM, implementation=ATTENTIONS, phase=STEP)
    dtype = in_order("dtype", frame["dtype"])[-1]
    found = {
        implementation_words(name): steps_over(evidence, way(name, dtype), way(EAGER, dtype))
        for name in ATTENTIONS
    }
    rows = measured(pd.concat(found.values()))
    plain = rows_of(evidence, STEM, implementation=EAGER, dtype=dtype, phase=STEP)
    peaks = rows.merge(plain[[*CELL, "peak_mib"]], on=CELL, suffixes=("", "_plain"))
    less = (1 - peaks["peak_mib"] / peaks["peak_mib_plain"]).dropna()
    return {
        "words": dtype_words(dtype),
        "contexts": _contexts(rows),
        "gains": _gains(found),
        "less": Spread.of(less) if len(less) else None,
        **verdicts(rows),
    }


def _tf32(evidence: MachineEvidence) -> dict:
    rows = measured(steps_over(evidence, way(EAGER, TF32)))
    compiled = pd.concat([steps_over(evidence, way(name, FLOAT32)) for name in (BLOCKS, WHOLE)])
    compiled = having(compiled, context_length=set(rows["context_length"]))["ratio"]
    mixed = steps_over(evidence, way(EAGER, BF16), way(EAGER, TF32))
    return {
        "words": dtype_words(TF32),
        "contexts": _contexts(rows),
        "reach": _reach(rows["ratio"]),
        "compiled": _reach(compiled) if len(compiled) else None,
        "mixed": f"{dtype_words(BF16)} is faster than {dtype_words(TF32)}",
        "of_mixed": verdicts(mixed)["faster"] if len(mixed) else None,
        **verdicts(rows),
    }


def _shares(evidence: MachineEvidence) -> dict:
    rows = rows_of(evidence, STEM, phase=STEP, implementation=EAGER)
    rows = ways.with_rates(evidence, rows).dropna(subset=["share"])
    wide = rows.pivot_table(index=CELL, columns="dtype", values="share")
    dtypes = sorted(wide.columns, key=lambda dtype: matmul_ceiling(evidence, dtype))
    wide = measured(wide[dtypes].dropna())
    if len(dtypes) < 2:
        raise NotMeasured
    best = wide.max()
    return {
        "best": [(dtype_words(dtype), share) for dtype, share in best.items()],
        "falls": all(b < FALL * a for a, b in itertools.pairwise(best)),
        "contexts": _contexts(wide.reset_index()),
    }


def _whole(evidence: MachineEvidence) -> dict:
    dtypes = in_order("dtype", rows_of(evidence, STEM)["dtype"])
    rows = pd.concat([steps_over(evidence, way(WHOLE, d), way(BLOCKS, d)) for d in dtypes])
    blocks = rows_of(evidence, STEM, implementation=BLOCKS, phase=STEP)
    keys = [*CELL, "dtype"]
    both = measured(rows).merge(blocks[[*keys, "compile_s"]], on=keys, suffixes=("", "_blocks"))
    return {
        "contexts": _contexts(rows),
        "reach": _reach(rows["ratio"]),
        "cost": Spread.of(measured((both["compile_s"] / both["compile_s_blocks"]).dropna())),
        "seconds": both["compile_s"].max(),
        **verdicts(rows),
    }


_OVER = "{% if over %}: {{ over }} over eager float32{% endif %}"
_LAST = (
    "{{ size }}: {{ rate | rounded }} tokens/s{% if share == share %}, MFU {{ share | percent }}"
)
_LAST += "{% endif %}."
_SHARES = (
    "{% for words, share in best %}{{ share | percent }}{{ ' of the matmul ceiling' if loop.first }}"
    " in {{ words }}{{ ', ' if not loop.last }}{% endfor %}"
)
FINDINGS = (
    Finding(
        name="fastest_step",
        question="Which way of running a train step is the fastest, and how fast is it?",
        values=_fastest,
        answer=_fastest_answer,
        answers={
            "one": "Fastest step ({{ contexts }}): {{ which | join }}" + _OVER + "; " + _LAST,
            "by_size": "Fastest step ({{ contexts }}): {{ by_size | join('; ') }}" + _OVER + ".",
            "base": "No step ({{ contexts }}) is faster than in eager float32; " + _LAST,
        },
        place=SHORT,
    ),
    Finding(
        name="compiling",
        question="What does compiling give, and what do its first calls cost?",
        values=_compiling,
        answer=_how_many,
        answers=_compared(
            "{{ what }} over eager ({{ contexts }}): {{ gains | join(', ') }}",
            "; first calls {{ seconds | range('sig', '-') }} s",
        ),
        place=SHORT,
    ),
    Finding(
        name="mixed_precision",
        question="What does bf16 autocast give, and where does it not pay?",
        values=_mixed_precision,
        answer=_how_many,
        answers={
            "all": "{{ words }} over float32, both eager ({{ contexts }}): every step faster,"
            " {{ reach }}.",
            "some": "{{ words }} over float32, both eager: faster in {{ faster }} steps, up to"
            " {{ most }}; {{ least }}.",
            "none": "{{ words }} over float32, both eager ({{ contexts }}): no step faster,"
            " {{ reach }}.",
        },
        place=SHORT,
    ),
    Finding(
        name="attention_inside",
        question="What does flash attention give inside the model, in time and memory?",
        values=_attention,
        answer=_how_many,
        answers=_compared(
            "Eager {{ words }} step, {{ contexts }}, over plain attention: {{ gains | join(', ') }}",
            "{% if less %}; peak memory {{ less | range('percent') }} lower{% endif %}",
        ),
    ),
    Finding(
        name="tf32",
        question="What does TF32 alone give, and does mixed precision give more?",
        values=_tf32,
        answer=_how_many,
        answers=_compared(
            "{{ words }} over float32, both eager ({{ contexts }}): {{ reach }}",
            "{% if compiled %}; compiling float32: {{ compiled }}. A published write-up (003)"
            " calls {{ words }} “compile w/ f32”{% endif %}"
            "{% if of_mixed %}. {{ mixed }} in {{ of_mixed }} steps{% endif %}",
        ),
    ),
    Finding(
        name="share_of_ceiling",
        question="How much of the arithmetic does a train step use, by numerics?",
        values=_shares,
        answer=lambda v: "falls" if v["falls"] else "holds",
        answers={
            "falls": "The faster the arithmetic, the less of it an eager step uses: at"
            " {{ contexts }} at best " + _SHARES + ".",
            "holds": "At {{ contexts }} an eager step uses at best "
            + _SHARES
            + ": faster arithmetic is not always used less.",
        },
    ),
    Finding(
        name="whole_or_block",
        question="Is compiling the whole model better than compiling one block?",
        values=_whole,
        answer=_how_many,
        answers=_compared(
            "Compiled whole over compiled by block ({{ contexts }}): {{ reach }}",
            "; its first calls take {{ cost | range }} times as long, at most"
            " {{ seconds | sig }} s",
        ),
        place=PAGE,
    ),
)
