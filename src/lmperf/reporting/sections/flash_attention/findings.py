"""Findings on FlashAttention-2: speed-ups over plain attention and peers, host time, errors."""

from __future__ import annotations

import pandas as pd

from lmperf.names import STATUSES, implementation_words, in_order
from lmperf.reporting import gates, host_time
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
from lmperf.reporting.numbers import Count, Spread, absent, significant
from lmperf.reporting.published import figures_of
from lmperf.reporting.sections.flash_attention import kinds
from lmperf.reporting.sections.flash_attention.errors import tensors, worst_errors
from lmperf.reporting.speedup import Series, averaged, compared, geometric_mean
from lmperf.statistics import FASTER

PUBLISHED = "course leaderboard 2025"


def _peers(evidence: MachineEvidence) -> dict:
    """Geometric-mean speed-ups of our kernel over each peer, forward and backward.

    The cells are the filled grid in bf16, or without it one head; of these the ``averaged`` ones.
    """
    work, rows = kinds.main(all_rows(evidence, kinds.STEM))
    found = {peer: kinds.over(evidence, peer, rows, averaged) for peer in kinds.rivals(rows)}
    means = {
        implementation_words(peer): [
            geometric_mean(having(over, phase=phase)["ratio"]) for phase in kinds.PHASES
        ]
        for peer, over in found.items()
        if set(kinds.PHASES) <= set(over["phase"])
    }
    if not means:
        raise NotMeasured
    words = {"kernel": kinds.kernel_words(rows), "numerics": kinds.numerics(rows)}
    par = [implementation_words(name) for name, over in found.items() if all_same(over)]
    return {**words, "work": work, "means": means, "par": par}


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

    In float32 the kernel splits each operand into a high and a low float16 half.
    """
    frame = all_rows(evidence, kinds.STEM)
    frame = frame[kinds.filled(frame)]
    ours, base = (Series.of(implementation=kinds.TRITON, dtype=d) for d in ("tf32", "float32"))
    rows = compared(evidence, kinds.STEM, ours, base)
    rows = having(rows[rows.index.isin(frame.index)], phase=kinds.PHASES)
    found = verdicts(rows)
    which = "slower" if found["slower"].k > found["faster"].k else "faster"
    worst = worst_errors(frame, kinds.TRITON)[tensors(frame)].max(axis=1)
    errors = Spread.of((worst["tf32"] / worst["float32"]).dropna())
    return {"gain": found["gain"], "which": which, "counted": found[which], "errors": errors}


def _leaderboard(evidence: MachineEvidence) -> dict:
    """Time of a forward and backward in the public leaderboard's cell, and the published time."""
    frame = rows_of(evidence, kinds.STEM)
    rows = having(kinds.leaderboard(frame), phase="forward_backward")
    ours = measured(having(rows, implementation=kinds.kernel_of(frame))).iloc[0]
    peers = measured(having(rows, implementation=kinds.rivals(rows)))
    published = having(figures_of(kinds.STEM), source=PUBLISHED).iloc[0]
    return {
        "kernel": kinds.kernel_words(rows),
        "numerics": kinds.numerics(rows),
        **{axis: int(ours[axis]) for axis in ("heads", "seq_len", "d_head")},
        "ms": ours["median_ms"],
        "peers": peers.set_index(peers["implementation"].map(implementation_words))[
            "median_ms"
        ].to_dict(),
        "published": published[["source", "device", "value", "unit", "note"]].to_dict(),
    }


def _waiting(evidence: MachineEvidence) -> dict:
    """Below which length a call is host-bound, for our kernel and the first peer."""
    rows = kinds.short_work(rows_of(evidence, kinds.STEM))
    rows = measured(host_time.known(rows[kinds.single(rows)]))
    rows = having(rows, causal=rows["causal"].max())
    names = [kinds.kernel_of(rows), *kinds.rivals(rows)[:1]]
    return {
        "numerics": kinds.numerics(rows),
        "d_head": rows["d_head"].iloc[0],
        "least": rows["seq_len"].min(),
        "kernels": {
            implementation_words(name): [
                _waits(measured(having(rows, implementation=name, phase=phase)))
                for phase in kinds.PHASES
            ]
            for name in names
        },
    }


def _launch(evidence: MachineEvidence) -> dict:
    """Median host time of a call of each kernel on the filled grid, forward and backward."""
    frame = rows_of(evidence, kinds.STEM)
    rows = host_time.known(having(frame[kinds.filled(frame)], dtype=kinds.HALF))
    names = [kinds.kernel_of(frame), *kinds.rivals(measured(rows))]
    host = rows.groupby(["implementation", "phase"])["host_ms"].median()
    return {
        "numerics": kinds.numerics(measured(rows)),
        "kernels": {
            implementation_words(name): [host[name, phase] for phase in kinds.PHASES]
            for name in names
            if all((name, phase) in host.index for phase in kinds.PHASES)
        },
    }


def _waits(rows: pd.DataFrame) -> dict:
    rows = rows.sort_values("seq_len").drop_duplicates("seq_len")
    end = host_time.end_of_waiting(rows, "seq_len")
    words = "at every length" if end is None else f"below {significant(end)}"
    never = end == rows["seq_len"].iloc[0]
    return {"where": "nowhere" if never else words, "host": rows["host_ms"].median()}


def _waiting_answer(values: dict) -> str:
    found = [each["where"] for both in values["kernels"].values() for each in both]
    return "device" if set(found) == {"nowhere"} else "host"


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
    off = (failed["max_error"] / failed["error_bound"]).astype(float)
    place = off.fillna(float("inf")).idxmax()
    row = kinds.with_mask(failed.loc[[place]])
    size, cell = off[place], row.iloc[0]
    how = STATUSES[cell["status"]] if absent(size) else f"error {significant(size)} times its bound"
    what = f"{implementation_words(cell['implementation'])}, {kinds.numerics(row)}"
    where = f"length {significant(cell['seq_len'])}, d_head {cell['d_head']:g}, {cell['mask']}"
    return f"{how} ({what}, {where})"


def _checks_answer(values: dict) -> str:
    if values["worst"] is None:
        return "passed"
    return "failed" if values["red"].none else "red"


_ONE_HEAD = "One head (F1): {{ kernel }} is faster than plain PyTorch in "
_AT_THE_END = (
    "; at {{ longest | sig }}: {% for phase, gain in gains.items() %}{{ gain | range('ratio') }}"
    " {{ phase }}{{ ', ' if not loop.last }}{% endfor %} ({{ numerics }})."
)
_NO_RED = "no gate of {{ red.n | count('timed row') }} failed."

FINDINGS = (
    Finding(
        name="flash_peers",
        question="How fast is our kernel compared with the best kernels?",
        values=_peers,
        answer=always,
        answers={
            "is": "{{ kernel }} attention, forward/backward ({{ work }}, {{ numerics }}, geometric"
            " means): {% for name, pair in means.items() %}{% if name in par %}on par with"
            "{% else %}{{ pair[0] | ratio }}/{{ pair[1] | ratio }} over{% endif %} {{ name }}"
            "{{ '.' if loop.last else ', ' }}{% endfor %}"
        },
        place=SHORT,
    ),
    Finding(
        name="flash_one_head",
        question="From which length on is our kernel faster than plain attention?",
        values=_one_head,
        answer=_one_head_answer,
        answers={
            "everywhere": _ONE_HEAD + "every resolved cell" + _AT_THE_END,
            "from": _ONE_HEAD
            + "every resolved cell from length {{ first | sig }} on and slower in {{ below }}"
            " below" + _AT_THE_END,
            "counted": _ONE_HEAD
            + "{{ faster }} resolved comparisons and slower in {{ slower.k }}"
            + _AT_THE_END,
        },
    ),
    Finding(
        name="flash_tf32",
        question="Does TF32 make our kernel faster than float32 from halves?",
        values=_tf32,
        answer=always,
        answers={
            "is": "Filled grid (F3): Triton is {{ which }} in TF32 than in float32* in"
            " {{ counted }} resolved comparisons ({{ gain | range('ratio') }}); errors in TF32 are"
            " {{ errors | range('rounded') }} times as large."
        },
        place=PAGE,
    ),
    Finding(
        name="flash_leaderboard",
        question="How fast is the cell of a public leaderboard?",
        values=_leaderboard,
        answer=always,
        answers={
            "is": "Forward and backward, {{ heads }} heads, length {{ seq_len | sig }}, d_head"
            " {{ d_head }}, causal ({{ numerics }}, F5): {{ kernel }} {{ ms | sig }} ms"
            "{% for name, ms in peers.items() %}, {{ name }} {{ ms | sig }}{% endfor %}; best"
            " published {{ published.value }} {{ published.unit }} ({{ published.source }},"
            " {{ published.device }}, {{ published.note }})."
        },
    ),
    Finding(
        name="flash_host",
        question="Below which length is a call host-bound?",
        values=_waiting,
        answer=_waiting_answer,
        answers={
            "host": "Host time (median) exceeds device time for one head ({{ numerics }}, d_head"
            " {{ d_head }}):{% for name, (forward, backward) in kernels.items() %} {{ name }}"
            " forward {{ forward.where }} ({{ forward.host | sig }} ms), backward"
            " {{ backward.where }} ({{ backward.host | sig }} ms)"
            "{{ '.' if loop.last else ';' }}{% endfor %}",
            "device": "Device time exceeds host time for one head ({{ numerics }}, d_head"
            " {{ d_head }}) from length {{ least | sig }} on: {{ kernels | listed }}.",
        },
    ),
    Finding(
        name="flash_launch",
        question="How long does the host need to launch each kernel?",
        values=_launch,
        answer=always,
        answers={
            "is": "Host time of a call on the filled grid (ms, {{ numerics }}, median,"
            " forward/backward):{% for name, (forward, backward) in kernels.items() %} {{ name }}"
            " {{ forward | sig }}/{{ backward | sig }}{{ '.' if loop.last else ',' }}{% endfor %}"
        },
    ),
    Finding(
        name="flash_checks",
        question="Does the kernel pass its tests, and its timings their gates?",
        values=_checks,
        answer=_checks_answer,
        answers={
            "passed": "All {{ tests.n | count('kernel test') }} pass; " + _NO_RED,
            "failed": "Kernel tests: {{ tests }} pass; the worst: {{ worst }}; " + _NO_RED,
            "red": "Kernel tests: {{ tests }} pass; {{ red }} timed rows failed their gate; the"
            " worst: {{ worst }}.",
        },
    ),
)
