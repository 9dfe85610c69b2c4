"""Findings on plain attention: when it runs out of memory, what bounds it, what speeds it up."""

from __future__ import annotations

import math
import operator
from functools import partial

import pandas as pd

from lmperf.dtypes import dtype_of
from lmperf.names import dtype_words, in_order, phase_words
from lmperf.reporting import gates
from lmperf.reporting.bound import COMPUTE, MEMORY, NEITHER
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
from lmperf.reporting.host_time import longer_launch_until
from lmperf.reporting.numbers import GIB, MIB, Spread, ranged, significant
from lmperf.reporting.sections.attention.bound import bounds
from lmperf.reporting.sections.attention.tables import BASE, CELL, PREDICTED, STEM, held, usual
from lmperf.reporting.sections.profiles.kernel_classes import COPY
from lmperf.reporting.sections.profiles.rows import by_class, usual_size
from lmperf.reporting.sections.profiles.tables import attention_parts
from lmperf.reporting.speedup import Series, compared, every
from lmperf.statistics import FASTER, SLOWER

WITHIN, AS_PREDICTED = 0.25, 0.01
# How far the memory in use may be from a whole number of matrices.
NEARLY = 0.1
ORDINALS = ("first", "second", "third")
# A ratio of peaks below this says that fewer matrices are alive.
FEWER = 0.9
SINGLE, HALF = "float32", "autocast_bfloat16"
MODEL_CELL = ["size", "context_length", "batch"]


def _end(evidence: MachineEvidence) -> dict:
    """The row of the first length at which eager attention ran out of memory, as a dict.

    ``requested`` and ``free`` are the GiB in the allocator's message. ``matrix`` says which matrix
    of scores was requested, as ``second``; None if that does not follow from the memory in use.
    """
    frame = usual(evidence)
    if frame is None:
        raise NotMeasured
    full = having(frame, implementation="eager", status="oom")
    first = measured(full[full["requested_bytes"].notna()]).iloc[0]
    sizes = {name: first[f"{name}_bytes"] / GIB for name in ("requested", "free")}
    return {**first, **sizes, "matrix": _which_matrix(first)}


def _which_matrix(row: pd.Series) -> str | None:
    """Which matrix of scores an allocation was for, from the memory that was used before it."""
    one = row.get(PREDICTED, math.nan) * MIB
    if not abs(one / row["requested_bytes"] - 1) <= AS_PREDICTED:
        return None
    known = (row.get(name, math.nan) for name in ("free_before_mib", "inputs_mib"))
    used = operator.sub(*known) * MIB - row["free_bytes"]
    before = round(used / one) if math.isfinite(used) else -1
    fits = 0 <= before < len(ORDINALS) and abs(used / one - before) <= NEARLY
    return ORDINALS[before] if fits else None


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
        "square": len(lengths) == 2 and kept.high <= (1 + WITHIN) * kept.low,
        "kept": ranged(kept, form),
        **{phase: ranged(Spread.of(part["peak"]), form) for phase, part in of.items()},
    }


def _compiling(evidence: MachineEvidence) -> dict:
    frame = all_rows(evidence, STEM)  # a mark of a time does not concern the peak
    backward = having(frame[gates.shown(frame)], dtype="float32", phase="backward")
    compiled = Series.of(implementation="compiled", dtype="float32")
    rows = measured(compared(evidence, STEM, compiled, BASE))
    timed = len(every(evidence, STEM, compiled, BASE))
    length = rows["seq_len"].max()
    peaks = having(backward, seq_len=length).pivot_table("peak_mib", CELL, "implementation")
    peaks = peaks.reindex(columns=["compiled", "eager"])
    share = (peaks["compiled"] / peaks["eager"]).dropna()
    peak = Spread.of(share) if len(share) else None
    fewer = peak is not None and peak.high < FEWER
    return {
        **verdicts(rows),
        "timed": timed,
        "gains": _gains(rows),
        "length": length,
        "peak": peak,
        "fewer": fewer,
    }


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
    timed = having(all_rows(evidence, STEM), implementation="eager", status="ok")
    timed = having(timed, dtype=others, seq_len=rows["seq_len"].iloc[0])
    wide = rows.pivot_table("ratio", ["dtype", "phase"], "d_head").dropna()
    resolved = measured(having(rows, verdict=[FASTER, SLOWER]))
    return {
        **verdicts(rows),
        "length": rows["seq_len"].iloc[0],
        "lacking": in_order("d_head", set(timed["d_head"]) - set(rows["d_head"])),
        "gains": [
            (phase_words(phase), _of_dtypes(having(resolved, phase=phase)))
            for phase in in_order("phase", resolved["phase"])
        ],
        "widest": len(wide) > 0 and bool((wide.iloc[:, -1] > wide.iloc[:, 0]).all()),
    }


def _of_dtypes(rows: pd.DataFrame) -> list[tuple[str, Spread]]:
    """(dtype in words, spread of its speed-ups) of rows of one phase."""
    dtypes = in_order("dtype", rows["dtype"])
    return [(dtype_words(d), Spread.of(having(rows, dtype=d)["ratio"])) for d in dtypes]


def _bound(evidence: MachineEvidence) -> dict:
    """What bounds the longest forward of the head table, and what those of other head widths.

    ``memory`` and ``compute`` are the shares of its time that its bytes need at copy speed and its
    FLOPs at the peak matmul. ``others``: another bound -> the widths of the same length that have
    it. ``late_until``: up to which length launching takes longer than running; None if nowhere.
    """
    rows = rows_of(evidence, STEM, implementation="eager", phase="forward")
    rows = rows[rows.index.isin(usual(evidence).index)]
    known = bounds(evidence)
    rows = known[known.index.isin(rows.index)]
    last = measured(rows.sort_values("seq_len")).iloc[-1]
    cell = last[["seq_len", "dtype", "batch", "causal"]]
    beside = having(rows_of(evidence, STEM, phase="forward"), **cell)
    beside = known[known.index.isin(beside.index) & (known["bound"] != last["bound"])]
    return {
        **last[["seq_len", "d_head", "dtype", "bound"]],
        **{name: last[f"{name}_ms"] / last["median_ms"] for name in (MEMORY, COMPUTE)},
        "both": (last["memory_ms"] + last["compute_ms"]) / last["median_ms"],
        "others": {
            found: in_order("d_head", part["d_head"]) for found, part in beside.groupby("bound")
        },
        "late_until": longer_launch_until(rows, "seq_len"),
    }


def _softmax(evidence: MachineEvidence) -> dict:
    """Time of softmax, mask and casts in a model, under bf16 autocast and in float32.

    ``casts``: how much longer copies and casts of that forward take under autocast, in ms.
    """
    parts = having(attention_parts(evidence), name="softmax")
    forward = having(by_class(evidence), implementation="eager", phase="forward")
    size = usual_size(parts)
    wide, copies = (
        having(rows, size=size, dtype=[SINGLE, HALF]).pivot_table(value, MODEL_CELL, "dtype")
        for rows, value in ((parts, "total_ms"), (forward, COPY))
    )
    if not {SINGLE, HALF} <= {*wide.columns} & {*copies.columns}:
        raise NotMeasured
    wide = measured(wide.dropna())
    cell, times = wide.index[-1], wide.iloc[-1]
    more = copies.loc[cell, HALF] - copies.loc[cell, SINGLE]
    found = dict(zip(MODEL_CELL, cell, strict=True))
    return {**found, "half": times[HALF], "single": times[SINGLE], "casts": more}


def _softmax_answer(values: dict) -> str:
    longer = values["half"] - values["single"]
    if longer <= WITHIN * values["single"]:
        return "other"
    return "casts" if values["casts"] >= longer / 2 else "slower"


def _all_faster(values: dict) -> str:
    return "all" if values["faster"].all else "rest"


_ENDS = (
    "Plain attention in {{ dtype | numerics }} runs out of memory at length {{ seq_len | sig }}: "
)
_GAINS = (
    "{% for phase, gain in gains %} {{ phase | capitalize }}: {{ gain | range('ratio') }}."
    "{% endfor %}"
)
_PEAK = (
    "{% if peak and fewer %} At length {{ length | sig }} its backward's peak is"
    " {{ peak | range('percent') }} of PyTorch's: fewer matrices are written and read.{% endif %}"
)
_HELD = (
    "Plain attention keeps {{ kept }} matrices of length x length (float32) for the backward. The"
    " peak of its forward is {{ forward }} of them. That of its backward is {{ backward }}."
)
_COMPILED = (
    "Compiled attention is faster than plain PyTorch in {{ faster.k }} of {{ timed }} cells"
    " (float32)"
)
_OPEN = "{% if faster.n < timed %}; {{ timed - faster.n }} unresolved{% endif %}."
_LOWER = "At length {{ length | sig }} lower precision is faster than float32"
_UP_TO = (
    "{% for phase, of in gains %} {{ phase | capitalize }}:{% for numerics, gain in of %}"
    " {{ numerics }} up to {{ gain.high | ratio }}{{ '.' if loop.last else ',' }}{% endfor %}"
    "{% endfor %}"
)
_LACKING = "{% if lacking %} Left out, since marked: d_head {{ lacking | listed }}.{% endif %}"
_RANGES = (
    "{% for phase, of in gains %}{% for numerics, gain in of %} {{ phase | capitalize }},"
    " {{ numerics }}: {{ gain | range('ratio') }}.{% endfor %}{% endfor %}"
)
_WIDEST = (
    "{% if widest %} The widest heads gain most: matmuls grow with d_head, the matrix of scores"
    " does not.{% endif %}"
)
_AT = (
    "The longest {{ dtype | numerics }} forward ({{ seq_len | sig }}, d_head {{ d_head }}) is"
    " {{ bound }}-bound. "
)
_OTHERS = (
    "{% for found, widths in others.items() %} At d_head {{ widths | listed }}"
    " {{ 'neither binds' if found == 'neither' else 'it is %s-bound' % found }}.{% endfor %}"
)
_LATE = (
    "{% if late_until %} Up to length {{ late_until | sig }} a forward takes longer to launch than"
    " to run.{% endif %}"
)
_SOFTMAX = (
    "Softmax, mask and casts take {{ half | sig }} ms under bf16 autocast, {{ single | sig }} in"
    " float32 (plain attention's forward, {{ size }}, context {{ context_length }})"
)

FINDINGS = (
    Finding(
        name="attention_ends",
        question="At which length does plain attention run out of memory?",
        values=_end,
        answer=lambda v: "matrix" if v["matrix"] else "other",
        answers={
            "matrix": _ENDS + "its {{ matrix }} matrix of scores takes {{ requested | sig }} GiB,"
            " {{ free | sig }} are free.",
            "other": _ENDS + "{{ requested | sig }} GiB requested, {{ free | sig }} free.",
        },
        place=SHORT,
    ),
    Finding(
        name="attention_bound",
        question="Do FLOPs or bytes bound the forward?",
        values=_bound,
        answer=lambda v: v["bound"],
        answers={
            MEMORY: _AT + "Bytes take {{ memory | percent(0) }} of it at copy speed, FLOPs"
            " {{ compute | percent(0) }} at the peak matmul." + _OTHERS + _LATE,
            COMPUTE: _AT + "FLOPs take {{ compute | percent(0) }} of it at the peak matmul, bytes"
            " {{ memory | percent(0) }} at copy speed." + _OTHERS + _LATE,
            NEITHER: "At length {{ seq_len | sig }}, d_head {{ d_head }}, FLOPs at the peak matmul"
            " and bytes at copy speed explain {{ both | percent(0) }} of the forward's time"
            " ({{ dtype | numerics }})." + _OTHERS + _LATE,
        },
    ),
    Finding(
        name="attention_matrices",
        question="How many matrices of length x length does it hold in memory?",
        values=_matrices,
        answer=lambda v: "square" if v["square"] else "other",
        answers={
            "square": _HELD + " A published write-up (001) calls memory linear in the length.",
            "other": _HELD,
        },
    ),
    Finding(
        name="attention_softmax",
        question="Is softmax faster under bf16 autocast?",
        values=_softmax,
        answer=_softmax_answer,
        answers={
            "casts": _SOFTMAX + ". Softmax stays in float32, and autocast adds casts.",
            "slower": _SOFTMAX + ".",
            "other": _SOFTMAX + ": it stays float32.",
        },
    ),
    Finding(
        name="attention_compiled",
        question="How much does compiling speed up plain attention?",
        values=_compiling,
        answer=_all_faster,
        answers={
            "all": _COMPILED + _OPEN + _GAINS + _PEAK,
            "rest": _COMPILED + ", slower in {{ slower.k or 'none' }}." + _GAINS + _PEAK,
        },
    ),
    Finding(
        name="attention_numerics",
        question="How much does lower precision speed up the longest length?",
        values=_numerics,
        answer=_all_faster,
        answers={
            "all": _LOWER + "." + _UP_TO + _LACKING + _WIDEST,
            "rest": _LOWER
            + " in {{ faster }} resolved comparisons."
            + _RANGES
            + _LACKING
            + _WIDEST,
        },
    ),
)
