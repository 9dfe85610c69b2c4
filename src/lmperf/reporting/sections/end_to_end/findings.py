"""What the evidence says of a train step: what is fastest, and what each way of it gives."""

from __future__ import annotations

import itertools

import pandas as pd

from lmperf.names import dtype_words, implementation_words, in_order
from lmperf.reporting.ceilings import matmul_ceiling
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.findings import PAGE, SHORT, Finding, NotMeasured, frame_of, measured, rows_of
from lmperf.reporting.numbers import Count, Spread, listed
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
    Ends,
    faster_steps,
    way,
)
from lmperf.reporting.speedup import FASTER, SLOWER

ATTENTIONS = ("sdpa", "triton")
# What a share of the ceiling must fall to, of the one before, to be called lower.
FALL = 0.9


def _spread(values: pd.Series) -> Spread | None:
    values = values.dropna()
    return Spread.of(values) if len(values) else None


def _verdicts(rows: pd.DataFrame) -> dict:
    faster, slower = (int((rows["verdict"] == verdict).sum()) for verdict in (FASTER, SLOWER))
    return {"faster": Count(faster, len(rows)), "slower": slower}


def _by_verdicts(values: dict) -> str:
    if values["faster"].all or values["faster"].none:
        return "all" if values["faster"].all else "none"
    return "mixed" if values["slower"] else "some"


def _compared(what: str, rest: str) -> dict[str, str]:
    """The sentences of a comparison by what its verdicts are: ``_by_verdicts``."""
    some = what + ", faster in {{ faster }} train steps and slower in "
    return {
        "all": f"{what}: {rest}",
        "some": f"{some}none: {rest}",
        "mixed": some + "{{ slower }}: " + rest,
        "none": f"{what}, no train step faster: {rest}",
    }


def _fastest(evidence: MachineEvidence) -> dict:
    frame_of(evidence, STEM)
    rows = measured(ways.fastest(evidence))
    if len(ways.of(ways.usual_steps(evidence))) < 2:
        raise NotMeasured
    pairs = zip(rows["implementation"], rows["dtype"], strict=True)
    which = rows["size"].groupby([ways.words(way(*pair)) for pair in pairs], sort=False).agg(listed)
    return {
        "which": list(which.index),
        "by_size": [f"{words} ({sizes})" for words, sizes in which.items()],
        "context": rows["context_length"].iloc[0],
        "over": _spread(rows["ratio"]),
        "rate": Spread.of(rows["rate"]),
        "share": _spread(rows["share"]),
    }


def _fastest_answer(values: dict) -> str:
    if values["which"] == [ways.words(ways.BASE)]:
        return "base"
    return "one" if len(values["which"]) == 1 else "by_size"


def _compiling(evidence: MachineEvidence) -> dict:
    dtypes = in_order("dtype", frame_of(evidence, STEM)["dtype"])
    found = {
        name: [(d, faster_steps(evidence, way(name, d), way(EAGER, d))) for d in dtypes]
        for name in (BLOCKS, WHOLE)
    }
    name = max(found, key=lambda name: sum(len(rows) for _, rows in found[name]))
    rows = measured(pd.concat([rows for _, rows in found[name]]))
    return {
        "what": implementation_words(name).capitalize(),
        "gains": [f"{dtype_words(d)} {Ends(rows)}" for d, rows in found[name] if len(rows)],
        "seconds": Spread.of(measured(rows["compile_s"].dropna())),
        **_verdicts(rows),
    }


def _mixed_precision(evidence: MachineEvidence) -> dict:
    rows = measured(faster_steps(evidence, way(EAGER, BF16)))
    sizes = in_order("size", rows["size"])
    pays = (rows["verdict"] == FASTER).groupby(rows["size"]).all()
    later = list(itertools.takewhile(lambda size: pays[size], reversed(sizes)))
    least = rows.loc[rows["ratio"].idxmin()]
    return {
        "words": dtype_words(BF16),
        "first": later[-1] if later else None,
        "above": Ends(having(rows, size=later)) if later else None,
        "gain": Ends(rows),
        "least": least["ratio"],
        "where": f"{least['size']}, context {least['context_length']:g}",
        **_verdicts(rows),
    }


def _pays(values: dict) -> str:
    if values["faster"].all or values["faster"].none:
        return "everywhere" if values["faster"].all else "nowhere"
    return "from" if values["first"] else "scattered"


def _attention(evidence: MachineEvidence) -> dict:
    frame = frame_of(evidence, STEM)
    frame = measured(having(frame, implementation=ATTENTIONS, phase=STEP))
    dtype = in_order("dtype", frame["dtype"])[-1]
    found = {n: faster_steps(evidence, way(n, dtype), way(EAGER, dtype)) for n in ATTENTIONS}
    rows = measured(pd.concat(found.values()))
    plain = rows_of(evidence, STEM, implementation=EAGER, dtype=dtype, phase=STEP)
    peaks = rows.merge(plain[[*CELL, "peak_mib"]], on=CELL, suffixes=("", "_plain"))
    return {
        "words": dtype_words(dtype),
        "contexts": sorted(rows["context_length"].unique()),
        "gains": [f"{implementation_words(n)} {Ends(own)}" for n, own in found.items() if len(own)],
        "peak": _spread(peaks["peak_mib"] / peaks["peak_mib_plain"] - 1),
        **_verdicts(rows),
    }


def _tf32(evidence: MachineEvidence) -> dict:
    rows = measured(faster_steps(evidence, way(EAGER, TF32)))
    mixed = faster_steps(evidence, way(EAGER, BF16), way(EAGER, TF32))
    compiled = pd.concat([faster_steps(evidence, way(n, FLOAT32)) for n in (BLOCKS, WHOLE)])
    contexts = sorted(rows["context_length"].unique())
    return {
        "words": dtype_words(TF32),
        "contexts": contexts,
        "gain": Ends(rows),
        "compiled": _spread(having(compiled, context_length=contexts)["ratio"]),
        "mixed_words": dtype_words(BF16),
        "mixed": _verdicts(mixed)["faster"],
        "mixed_sizes": in_order("size", having(mixed, verdict=FASTER)["size"]),
        **_verdicts(rows),
    }


def _shares(evidence: MachineEvidence) -> dict:
    rows = rows_of(evidence, STEM, phase=STEP, implementation=EAGER)
    rows = ways.with_rates(evidence, rows).dropna(subset=["share"])
    wide = rows.pivot_table(index=CELL, columns="dtype", values="share")
    dtypes = sorted(wide.columns, key=lambda dtype: matmul_ceiling(evidence, dtype))
    wide = measured(wide[dtypes].dropna())
    if len(dtypes) < 2:
        raise NotMeasured
    best = [wide[dtype].max() for dtype in dtypes]
    return {
        "best": list(zip(map(dtype_words, dtypes), best, strict=True)),
        "falls": all(b < FALL * a for a, b in itertools.pairwise(best)),
        "cells": len(wide),
    }


def _whole(evidence: MachineEvidence) -> dict:
    dtypes = in_order("dtype", frame_of(evidence, STEM)["dtype"])
    found = [faster_steps(evidence, way(WHOLE, d), way(BLOCKS, d)) for d in dtypes]
    rows = measured(pd.concat(found))
    blocks = rows_of(evidence, STEM, implementation=BLOCKS, phase=STEP)
    keys = [*CELL, "dtype"]
    both = rows.merge(blocks[[*keys, "compile_s"]], on=keys, suffixes=("", "_blocks"))
    return {
        "speed": Ends(rows),
        "cost": Spread.of(measured((both["compile_s"] / both["compile_s_blocks"]).dropna())),
        "seconds": both["compile_s"].max(),
        **_verdicts(rows),
    }


_SPEED = (
    "{% if over %} {{ over | range('ratio') }} over eager float32,{% endif %}"
    " {{ rate | range('rounded') }} tokens/s"
    "{% if share %}, MFU at most {{ share.high | percent }}{% endif %}."
)
_SHARES = (
    "{% for words, share in best %}{{ share | percent }} in {{ words }}"
    "{{ ', ' if not loop.last }}{% endfor %} ({{ cells | count('cell') }} in each)"
)
FINDINGS = (
    Finding(
        name="fastest_step",
        question="Which way of running a train step is the fastest, and how fast is it?",
        values=_fastest,
        answer=_fastest_answer,
        answers={
            "one": "Fastest train step (context {{ context }}): {{ which | join }}:" + _SPEED,
            "by_size": "Fastest train step (context {{ context }}): {{ by_size | join('; ') }}:"
            + _SPEED,
            "base": "Nothing makes a train step (context {{ context }}) faster than eager float32:"
            " {{ rate | range('rounded') }} tokens/s.",
        },
        place=SHORT,
    ),
    Finding(
        name="compiling",
        question="What does compiling give, and what do its first calls cost?",
        values=_compiling,
        answer=_by_verdicts,
        answers=_compared(
            "{{ what }} over eager",
            "{{ gains | join(', ') }}; first calls, execution included, {{ seconds | range }} s.",
        ),
        place=SHORT,
    ),
    Finding(
        name="mixed_precision",
        question="What does bf16 autocast give, and from which size on?",
        values=_mixed_precision,
        answer=_pays,
        answers={
            "everywhere": "{{ words }} over float32, both eager, makes every train step faster:"
            " {{ gain }}.",
            "from": "{{ words }} over float32, both eager, pays from size {{ first }} on:"
            " {{ above }}; the least is {{ least | ratio }} ({{ where }}).",
            "scattered": "{{ words }} over float32, both eager, is faster in {{ faster }} train"
            " steps, at the largest size not in all: {{ gain }}.",
            "nowhere": "{{ words }} over float32, both eager, makes no train step faster:"
            " {{ gain }}.",
        },
        place=SHORT,
    ),
    Finding(
        name="attention_inside",
        question="What does flash attention give inside the model, in time and memory?",
        values=_attention,
        answer=_by_verdicts,
        answers=_compared(
            "Fused over plain attention in the eager model"
            " ({{ words }}, context {{ contexts | listed }})",
            "{{ gains | join(', ') }}"
            "{% if peak %}; peak memory {{ peak | range('percent') }}{% endif %}.",
        ),
        place=SHORT,
    ),
    Finding(
        name="tf32",
        question="What does TF32 alone give, and does mixed precision give more?",
        values=_tf32,
        answer=_by_verdicts,
        answers=_compared(
            "{{ words }} over float32, both eager (context {{ contexts | listed }})",
            "{{ gain }}{% if compiled %}, where compiling float32 gives"
            " {{ compiled | range('ratio') }}; what a published write-up (003) calls “compile w/"
            " f32” is {{ words }}{% endif %}.{% if mixed.n %} {{ mixed_words }} is faster than"
            " {{ words }} in {{ mixed }} train steps"
            "{% if mixed.k and not mixed.all %} ({{ mixed_sizes | listed }}){% endif %}."
            "{% endif %}",
        ),
    ),
    Finding(
        name="share_of_ceiling",
        question="How much of the arithmetic does a train step use, by numerics?",
        values=_shares,
        answer=lambda v: "falls" if v["falls"] else "holds",
        answers={
            "falls": "The faster the arithmetic, the less of it an eager train step uses: of the"
            " matmul ceiling at best " + _SHARES + ".",
            "holds": "Of the matmul ceiling an eager train step uses at best "
            + _SHARES
            + ": faster arithmetic is not always used less.",
        },
    ),
    Finding(
        name="whole_or_block",
        question="Is compiling the whole model better than compiling one block?",
        values=_whole,
        answer=_by_verdicts,
        answers=_compared(
            "Compiled whole over compiled by block",
            "{{ speed }}; the first calls take {{ cost | range }} times as long, at most"
            " {{ seconds | sig }} s.",
        ),
        place=PAGE,
    ),
)
