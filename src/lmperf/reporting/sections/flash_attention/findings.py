"""Findings on FlashAttention-2: speed-ups over peers and plain attention, causes, errors."""

from __future__ import annotations

import pandas as pd

from lmperf.names import STATUSES, implementation_words, in_order, phase_words
from lmperf.reporting import gates
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.findings import (
    PAGE,
    SHORT,
    Finding,
    NotMeasured,
    all_rows,
    all_same,
    always,
    measured,
    rows_of,
    verdicts,
)
from lmperf.reporting.machine import newest
from lmperf.reporting.numbers import Count, Spread, absent, ranged, ratio, significant
from lmperf.reporting.published import figures_of
from lmperf.reporting.sections.flash_attention import kinds
from lmperf.reporting.sections.flash_attention.causes import CAUSES
from lmperf.reporting.sections.flash_attention.errors import tensors, worst_errors
from lmperf.reporting.speedup import (
    Series,
    averaged,
    compared,
    every,
    geometric_mean,
    resolved,
    verdict_of_mean,
)
from lmperf.reporting.tables import shortened
from lmperf.statistics import FASTER, SAME, SLOWER, UNRESOLVED

ON_PAR, _WITHIN = "on par", "within the noise floor"
LEADERBOARD, AUTHORS = "course leaderboard 2025", "FlashAttention-3"
AUTHORS_KERNEL = "flash_attn_3"
MOST_REASON = 90  # characters


def _rival(rows: pd.DataFrame) -> str:
    """The peer that the section leads with; raises NotMeasured without one."""
    peers = kinds.rivals(rows)
    if not peers:
        raise NotMeasured
    return peers[0]


def _speed(rows: pd.DataFrame, brief: bool = False) -> str:
    """The speed-ups of some cells in words: their geometric mean and range, or ``on par``.

    A deficit or gain in all cells is stated although it is within the noise floor.

    brief: without the mean if it is within the noise floor, else without the range.
    """
    cells, said = ranged(Spread.of(rows["ratio"]), ratio), verdict_of_mean(rows)
    mean = f"{ratio(geometric_mean(rows['ratio']))} in the geometric mean"
    if said == UNRESOLVED:
        return UNRESOLVED
    if said != SAME:
        several = " to " in cells
        whole = mean if brief else f"{mean} (cells: {cells})"
        return whole if several else cells
    if rows["verdict"].isin([FASTER, SLOWER]).any():
        range_alone = f"{cells}, the geometric mean {_WITHIN}"
        return range_alone if brief else f"{mean}, {_WITHIN} (cells: {cells})"
    if _leans(rows) and cells != ratio(1):
        where = " in all cells" if len(rows) > 1 else ""
        return f"{cells}{where}, {'' if all_same(rows) else 'the geometric mean '}{_WITHIN}"
    return ON_PAR


def _leans(rows: pd.DataFrame) -> bool:
    """Whether the intervals of all speed-ups are on the same side of 1."""
    return bool((rows["high"] < 1).all() or (rows["low"] > 1).all())


def _peers(evidence: MachineEvidence) -> dict:
    """Speed-ups of our kernel over the first peer in words, by phase.

    The cells are the filled grid in bf16, or without it one head; of these the ones that are
    ``averaged`` in every phase. ``length``: their length, if it is the same in all of them.
    """
    work, rows = kinds.main(all_rows(evidence, kinds.STEM))
    over = kinds.in_every_phase(kinds.over(evidence, peer := _rival(rows), rows, averaged))
    phases = in_order("phase", over["phase"])
    if not set(kinds.PHASES) <= set(phases):
        raise NotMeasured
    speeds = {phase_words(phase): _speed(having(over, phase=phase)) for phase in phases}
    words = {"kernel": kinds.kernel_words(rows), "numerics": kinds.numerics(rows)}
    told = kinds.over_or_withheld(evidence, peer, rows)
    return {
        **words,
        "work": work,
        "peer": implementation_words(peer),
        "speeds": speeds,
        "length": over["seq_len"].iloc[0] if over["seq_len"].nunique() == 1 else None,
        "cells": Count(kinds.cells_of(over), kinds.cells_of(kinds.in_every_phase(told))),
        "par": all_same(over) and set(speeds.values()) == {ON_PAR},
    }


def _together(evidence: MachineEvidence) -> dict:
    """Forward and backward together over the first peer: speed-ups by width, and of F5.

    ``speeds``: speed-ups in words -> the widths that have them; they rest on the cells of
    ``_peers``. ``floor``: the noise floor, if one of them refers to it. ``left_out``: how many of
    these cells ``speeds`` does not include. ``others``: speed-ups of the cells of F5 that are not
    marked or unresolved, if these are most; ``of_others``: how many they are.
    """
    frame = all_rows(evidence, kinds.STEM)
    work, rows = kinds.main(frame)
    other = frame[kinds.other(frame)]
    peer = _rival(rows)
    main = kinds.in_every_phase(kinds.over(evidence, peer, rows, averaged))
    told = kinds.in_every_phase(kinds.over_or_withheld(evidence, peer, rows))
    others = kinds.over(evidence, peer, other, resolved)
    of_others = kinds.over_or_withheld(evidence, peer, other)
    main, told, others, of_others = (
        having(part, phase=kinds.TOGETHER) for part in (main, told, others, of_others)
    )
    others = others if 2 * len(others) >= len(of_others) else others.iloc[:0]
    speeds: dict[str, list] = {}
    for width in in_order("d_head", measured(main)["d_head"]):
        speeds.setdefault(_speed(having(main, d_head=width), brief=True), []).append(width)
    return {
        "work": work,
        "numerics": kinds.numerics(rows),
        "peer": implementation_words(peer),
        "speeds": speeds,
        "floor": main["floor"].max() if any(_WITHIN in words for words in speeds) else None,
        "others": Spread.of(others["ratio"]) if len(others) else None,
        "of_others": Count(len(others), len(of_others)),
        "left_out": Count(len(told) - len(main), len(told)),
    }


def _authors(evidence: MachineEvidence) -> dict:
    """The rate that the authors of FlashAttention-3 publish, where it was not measured."""
    frame = all_rows(evidence, kinds.STEM)
    if newest(evidence).get("kind") != "cuda" or AUTHORS_KERNEL in set(frame["implementation"]):
        raise NotMeasured
    figure = having(figures_of(kinds.STEM), source=AUTHORS).iloc[0]
    return {"name": AUTHORS, **figure[["device", "dtype", "phase", "value", "unit", "note"]]}


def _over_plain(evidence: MachineEvidence, *phases: str) -> pd.DataFrame:
    frame = all_rows(evidence, kinds.STEM)
    rows = kinds.over(evidence, kinds.PLAIN, frame[kinds.single(frame)])
    return measured(having(rows, phase=phases))


def _one_head(evidence: MachineEvidence) -> dict:
    """The length from which on our kernel is faster than plain attention in every cell."""
    rows = _over_plain(evidence, *kinds.PHASES)
    every = (rows["verdict"] == FASTER).groupby(rows["seq_len"]).all()
    steady = every.index[every[::-1].cummin()[::-1]]
    # Being faster at the longest length alone is no trend.
    first = steady[0] if len(steady) > 1 else None
    found = verdicts(rows)
    at_end = having(rows, seq_len=rows["seq_len"].max())
    return {
        **found,
        "kernel": implementation_words(kinds.kernel_of(rows)),
        "numerics": kinds.numerics(at_end),
        "first": first,
        "below": first and Count(found["slower"].k, int((rows["seq_len"] < first).sum())),
        "longest": rows["seq_len"].max(),
        "gains": {
            phase: Spread.of(having(at_end, phase=phase)["ratio"])
            for phase in in_order("phase", at_end["phase"])
        },
    }


def _one_head_answer(values: dict) -> str:
    if values["faster"].all:
        return "everywhere"
    return "from" if values["first"] else "counted"


def _tf32(evidence: MachineEvidence) -> dict:
    """The Triton kernel in TF32 against float32, on the filled grid: speed-ups and error ratios.

    In float32 the kernel splits each operand into a high and a low float16 half. ``errors``: ratios
    of all tensors and cells. ``advised``: whether TF32 is slower in most comparisons and no error
    is smaller, so that nothing speaks for it.
    """
    frame = all_rows(evidence, kinds.STEM)
    frame = frame[kinds.filled(frame)]
    ours, base = (Series.of(implementation=kinds.TRITON, dtype=d) for d in ("tf32", "float32"))
    rows = compared(evidence, kinds.STEM, ours, base)
    rows = having(rows[rows.index.isin(frame.index)], phase=kinds.PHASES)
    found = verdicts(rows)
    which = "slower" if found["slower"].k > found["faster"].k else "faster"
    worst = worst_errors(frame, kinds.TRITON)[tensors(frame)]
    ratios = (worst.loc["tf32"] / worst.loc["float32"].where(worst.loc["float32"] > 0)).stack()
    errors = Spread.of(measured(ratios.dropna()))
    return {
        "gain": found["gain"],
        "which": which,
        "counted": found[which],
        "errors": errors,
        "advised": 2 * found["slower"].k > found["slower"].n and errors.low >= 1,
    }


def _leaderboard(evidence: MachineEvidence) -> dict:
    """Time of a forward and backward in the public leaderboard's cell, and the published time.

    ``over``: the speed-up over the first peer in words, if that has a time.
    """
    frame = rows_of(evidence, kinds.STEM)
    rows = having(kinds.leaderboard(frame), phase="forward_backward")
    ours = measured(having(rows, implementation=kinds.kernel_of(frame))).iloc[0]
    peer = _rival(rows)
    peers = measured(having(rows, implementation=peer))
    pair = kinds.over(evidence, peer, rows, every)
    published = having(figures_of(kinds.STEM), source=LEADERBOARD).iloc[0]
    return {
        "kernel": kinds.kernel_words(rows),
        "numerics": kinds.numerics(rows),
        **{axis: int(ours[axis]) for axis in ("heads", "seq_len", "d_head")},
        "ms": ours["median_ms"],
        "peer": implementation_words(peer),
        "peer_ms": peers["median_ms"].iloc[0],
        "over": _speed(pair) if len(pair) else "not compared",
        "published": published[["source", "device", "value", "unit", "note"]].to_dict(),
    }


def _checks(evidence: MachineEvidence) -> dict:
    """Counts of passed kernel tests and of failed gates, and the error furthest over its bound."""
    tests, rows = all_rows(evidence, kinds.CHECK), all_rows(evidence, kinds.STEM)
    tests = measured(tests[tests["status"] != "unsupported"])
    red = gates.red(rows)
    failed = pd.concat([tests[~gates.shown(tests)], rows[red]], ignore_index=True)
    return {
        "tests": Count(int(gates.shown(tests).sum()), len(tests)),
        "red": Count(int(red.sum()), int(gates.gated(rows).sum())),
        "worst": _worst(failed) if len(failed) else None,
    }


def _worst(failed: pd.DataFrame) -> str:
    """The failure furthest over its bound in words; one without an error over a bound comes first.

    A row with an error within its bound failed later, in a timed call: it has a recorded reason.
    """
    off = (failed["max_error"] / failed["error_bound"]).astype(float)
    place = off.where(off > 1).fillna(float("inf")).idxmax()
    row = kinds.with_mask(failed.loc[[place]])
    size, cell = off[place], row.iloc[0]
    if absent(size):
        how = STATUSES[cell["status"]]
    elif size > 1:
        how = f"error {significant(size)} times its bound"
    else:
        how = shortened(gates.reason(cell.to_dict()), MOST_REASON)
    what = f"{implementation_words(cell['implementation'])}, {kinds.numerics(row)}"
    where = f"length {significant(cell['seq_len'])}, d_head {cell['d_head']:g}, {cell['mask']}"
    return f"{how} ({what}, {where})"


def _checks_answer(values: dict) -> str:
    if values["worst"] is None:
        return "passed"
    return "failed" if values["red"].none else "red"


_ONE_HEAD = (
    "One head (F1, forward and backward separately): {{ kernel }} is faster than plain PyTorch in "
)
_AT_THE_END = (
    ". At {{ longest | sig }} ({{ numerics }}):{% for phase, gain in gains.items() %}"
    "{% if loop.first %} {{ gain | range('ratio') }} {{ phase }}.{% else %}"
    " {{ phase[:1] | upper }}{{ phase[1:] }}: {{ gain | range('ratio') }}.{% endif %}{% endfor %}"
)
_NO_RED = "no gate of {{ red.n | count('timed row') }} failed."
_OVER = "{{ kernel }} attention over {{ peer }} ({{ work }}, {{ numerics }}): "
_BY_PHASE = (
    "{% for phase, speed in speeds.items() %}{% if loop.first %}{{ phase }} {{ speed }}."
    "{% else %} {{ phase[:1] | upper }}{{ phase[1:] }}: {{ speed }}.{% endif %}{% endfor %}"
)
_CELLS = (
    " Compared in {{ cells.k | count('cell') if cells.all else '%s cells' % cells }}"
    "{% if length %}, length {{ length | sig }}{% endif %}."
)
_FLOOR = "{% if floor %} Noise floor: {{ floor | percent }}.{% endif %}"
_LEFT_OUT = (
    "{% if left_out.k %} Left out as withheld, marked or with too wide an interval (F2) in a phase:"
    " {{ left_out }} cells.{% endif %}"
)
_TOGETHER = (
    "{% for speed, widths in speeds.items() %}{% if loop.first %}Forward + backward over"
    " {{ peer }} ({{ work }}, {{ numerics }}) at d_head {{ widths | listed }}: {{ speed }}."
    "{% else %} At d_head {{ widths | listed }}: {{ speed }}.{% endif %}{% endfor %}"
)

FINDINGS = (
    Finding(
        name="flash_peers",
        question="How fast is our kernel compared with the best kernel?",
        values=_peers,
        answer=lambda v: "par" if v["par"] else "each",
        answers={
            "each": _OVER + _BY_PHASE + _CELLS,
            "par": _OVER + "on par in {{ cells }} cells.",
        },
        place=SHORT,
    ),
    Finding(
        name="flash_together",
        question="How fast are forward and backward together, compared with the best kernel?",
        values=_together,
        answer=lambda v: "both" if v["others"] else "is",
        answers={
            "is": _TOGETHER + _FLOOR + _LEFT_OUT,
            "both": _TOGETHER
            + _FLOOR
            + _LEFT_OUT
            + " Other widths and a leaderboard's cell (F5): {{ others | range('ratio') }}."
            "{% if not of_others.all %} Compared in {{ of_others }} such cells.{% endif %}",
        },
    ),
    *CAUSES,
    Finding(
        name="flash_authors",
        question="What do the authors of FlashAttention-3 publish?",
        values=_authors,
        answer=always,
        answers={
            "is": "{{ name }} is not installed here. Its authors publish {{ note }} {{ value }}"
            " {{ unit }} {{ phase | phase }} on an {{ device }} in {{ dtype | numerics }}"
            " (arXiv 2407.08608)."
        },
    ),
    Finding(
        name="flash_one_head",
        question="From which length on is our kernel faster than plain attention?",
        values=_one_head,
        answer=_one_head_answer,
        answers={
            "everywhere": _ONE_HEAD + "every resolved cell" + _AT_THE_END,
            "from": _ONE_HEAD
            + "every resolved cell from length {{ first | sig }} on. Below, it is slower in"
            " {{ below }}" + _AT_THE_END,
            "counted": _ONE_HEAD
            + "{{ faster }} resolved comparisons and slower in {{ slower.k }}"
            + _AT_THE_END,
        },
        place=PAGE,
    ),
    Finding(
        name="flash_tf32",
        question="Does TF32 make our kernel faster than float32 from halves?",
        values=_tf32,
        answer=always,
        answers={
            "is": "Filled grid (F3, forward and backward separately): Triton is {{ which }} in TF32"
            " than in float32* in {{ counted }} resolved comparisons"
            "{{ ': prefer float32*' if advised }}. The speed-ups are {{ gain | range('ratio') }}."
            " The error of a tensor (F4) in TF32 is {{ errors | range('rounded') }} times as large."
        },
        place=PAGE,
    ),
    Finding(
        name="flash_leaderboard",
        question="How fast is the cell of a public leaderboard?",
        values=_leaderboard,
        answer=always,
        answers={
            "is": "The leaderboard's cell (F5, both phases, {{ numerics }}) takes {{ kernel }}"
            " {{ ms | sig }} ms, {{ peer }} {{ peer_ms | sig }}. {{ kernel }} over {{ peer }}:"
            " {{ over }}. Best published: {{ published.value }} {{ published.unit }}"
            " ({{ published.source }}, {{ published.device }}, {{ published.note }})."
        },
        place=PAGE,
    ),
    Finding(
        name="flash_checks",
        question="Does the kernel pass its tests, and its timings their gates?",
        values=_checks,
        answer=_checks_answer,
        answers={
            "passed": "All {{ tests.n | count('kernel test') }} pass; " + _NO_RED,
            "failed": "Kernel tests: {{ tests }} pass; " + _NO_RED + " The worst: {{ worst }}.",
            "red": "Kernel tests: {{ tests }} pass; {{ red }} timed rows failed"
            " {{ 'its' if red.k == 1 else 'their' }} gate. The worst: {{ worst }}.",
        },
        place=PAGE,
    ),
)
