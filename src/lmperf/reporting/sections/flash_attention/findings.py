"""What the evidence on FlashAttention-2 says."""

from __future__ import annotations

import pandas as pd

from lmperf.names import implementation_words, in_order
from lmperf.reporting import gates
from lmperf.reporting.evidence import MachineEvidence, having, row_names
from lmperf.reporting.findings import (
    PAGE,
    SHORT,
    Finding,
    NotMeasured,
    always,
    frame_of,
    measured,
)
from lmperf.reporting.numbers import Count, Spread, ratio
from lmperf.reporting.sections.flash_attention import kinds
from lmperf.reporting.sections.flash_attention.errors import tensors, worst_errors
from lmperf.reporting.sections.flash_attention.peers import geometric_mean
from lmperf.reporting.speedup import FASTER, SLOWER, Series, compared

NAMED_TESTS = 3
# A smaller step of the speed-up is not worth a word.
LEAST_DIP = 0.05


def _kernel(frame: pd.DataFrame) -> dict:
    words = implementation_words(kinds.kernel_of(frame))
    return {"kernel": words, "subject": kinds.sentence_case(words)}


def _length(tokens: float) -> str:
    return f"{tokens:,.0f}"


def _numerics(rows: pd.DataFrame) -> list[str]:
    kernel = kinds.kernel_of(rows)
    return [kinds.numerics_words(dtype, kernel) for dtype in in_order("dtype", rows["dtype"])]


def _verdict(rows: pd.DataFrame, verdict: str) -> Count:
    return Count(int((rows["verdict"] == verdict).sum()), len(rows))


def _peers(evidence: MachineEvidence) -> dict:
    """Geometric means over each peer: on the filled grid in bf16, else of one head."""
    frame = frame_of(evidence, kinds.STEM)
    on_grid = not having(frame[kinds.filled(frame)], dtype=kinds.HALF).empty
    where = kinds.filled if on_grid else kinds.single
    dtype = kinds.HALF if on_grid else in_order("dtype", frame["dtype"])[0]
    found = []
    for peer in kinds.peers_of(having(frame[where(frame)], dtype=dtype)):
        rows = having(kinds.over(evidence, peer), dtype=dtype)
        by_phase = [having(rows[where(rows)], phase=phase)["ratio"] for phase in kinds.PHASES]
        if peer != kinds.GENERAL and all(map(len, by_phase)):
            forward, backward = map(geometric_mean, by_phase)
            words = implementation_words(peer)
            found.append({"name": words, "forward": forward, "backward": backward})
    if not found:
        raise NotMeasured
    work = "filled grid" if on_grid else "one head"
    numerics = kinds.numerics_words(dtype, kinds.kernel_of(frame))
    return {**_kernel(frame), "peers": found, "work": work, "numerics": numerics}


def _over_plain(evidence: MachineEvidence, phases: tuple[str, ...] = kinds.PHASES) -> pd.DataFrame:
    frame_of(evidence, kinds.STEM)
    rows = kinds.over(evidence, kinds.PLAIN)
    return measured(having(rows[kinds.single(rows)], phase=phases))


def _one_head(evidence: MachineEvidence) -> dict:
    """From which length on our kernel is faster in every cell, forward and backward."""
    rows = _over_plain(evidence)
    every = (rows["verdict"] == FASTER).groupby(rows["seq_len"]).all()
    steady = every.index[every[::-1].cummin()[::-1]]
    first = steady[0] if len(steady) else None
    longest = rows["seq_len"].max()
    below = rows if first is None else rows[rows["seq_len"] < first]
    at_end = having(rows, seq_len=longest)
    return {
        **_kernel(rows),
        "numerics": _numerics(rows),
        "first": first and _length(first),
        "start": _length(rows["seq_len"].min()),
        "slower": _verdict(below, SLOWER),
        "longest": _length(longest),
        **{phase: Spread.of(having(at_end, phase=phase)["ratio"]) for phase in kinds.PHASES},
    }


def _one_head_answer(values: dict) -> str:
    if values["first"] is None:
        return "not_at_the_end"
    return "everywhere" if values["first"] == values["start"] else "from"


def _dips(evidence: MachineEvidence) -> dict:
    """Where the forward speed-up steps down, and by what the time of either grows there."""
    rows = _over_plain(evidence, ("forward",))
    columns = ["ratio", "base_ms", "median_ms"]
    cells = rows["seq_len"].map(rows["seq_len"].value_counts())
    by_length = rows[cells == cells.max()].groupby("seq_len")[columns].agg(geometric_mean)
    if len(by_length) < 2:
        raise NotMeasured
    growth = by_length / by_length.shift()
    falls = growth[growth["ratio"] < 1 - LEAST_DIP]
    return {
        **_kernel(rows),
        "numerics": _numerics(rows),
        "least": LEAST_DIP,
        "falls": [_length(n) for n in falls.index],
        "ratios": by_length.loc[falls.index, "ratio"].map(ratio),
        "plain_growth": falls["base_ms"].map(ratio),
        "our_growth": falls["median_ms"].map(ratio),
        "ends": [_length(n) for n in by_length.index[[0, -1]]],
        "end_ratios": by_length["ratio"].iloc[[0, -1]].tolist(),
    }


def _tf32(evidence: MachineEvidence) -> dict:
    """Our kernel with TF32 products against the same from halves, where both were timed."""
    frame = frame_of(evidence, kinds.STEM)
    series = (Series.of(implementation=kinds.TRITON, dtype=dtype) for dtype in ("tf32", "float32"))
    rows = measured(having(compared(evidence, kinds.STEM, *series), phase=kinds.PHASES))
    worst = worst_errors(frame, kinds.TRITON)[tensors(frame)].max(axis=1)
    return {
        "slower": _verdict(rows, SLOWER),
        "faster": _verdict(rows, FASTER),
        "speed": Spread.of(rows["ratio"]),
        "errors": Spread.of(measured((worst["tf32"] / worst["float32"]).dropna())),
    }


def _tf32_answer(values: dict) -> str:
    if values["errors"].low <= 1:
        return "accurate"
    return "neither" if values["slower"].k > values["faster"].k else "faster"


def _errors(evidence: MachineEvidence) -> dict:
    """Our largest error of each cell and tensor over that of plain PyTorch, by dtype."""
    frame = frame_of(evidence, kinds.STEM)
    kernel, columns = kinds.kernel_of(frame), tensors(frame)
    ours, plain = (worst_errors(frame, name)[columns] for name in (kernel, kinds.PLAIN))
    ratios = measured((ours / plain.where(plain > 0)).stack().dropna().rename("ratio"))
    by_dtype = kinds.parts(ratios.reset_index(), "dtype")
    spreads = {part["dtype"].iloc[0]: Spread.of(part["ratio"]) for part in by_dtype}
    return {
        **_kernel(frame),
        "numerics": [(kinds.numerics_words(d, kernel), spread) for d, spread in spreads.items()],
        "larger": Count(int((ratios > 1).sum()), len(ratios)),
    }


def _reach(evidence: MachineEvidence) -> dict:
    """The longest length at which every cell of one head ran, forward and backward."""
    frame = frame_of(evidence, kinds.STEM)
    frame = having(frame[kinds.single(frame)], phase="forward_backward")
    ran = gates.shown(frame).groupby([frame["implementation"], frame["seq_len"]]).all()
    ran = ran[ran].reset_index().groupby("implementation")["seq_len"].max()
    kernel = kinds.kernel_of(frame)
    if not {kernel, kinds.PLAIN} <= set(ran.index):
        raise NotMeasured
    ours, plain = ran[kernel], ran[kinds.PLAIN]
    lengths = {"ours": ours, "plain": plain, "grid": frame["seq_len"].max()}
    words = {name: _length(tokens) for name, tokens in lengths.items()}
    return {**_kernel(frame), **words, "further": ours - plain}


def _reach_answer(values: dict) -> str:
    if values["further"] == 0:
        return "same"
    return "further" if values["further"] > 0 else "shorter"


def _checks(evidence: MachineEvidence) -> dict:
    """Kernel tests that failed, by name, and red gates of timed rows."""
    tests, rows = frame_of(evidence, kinds.CHECK), frame_of(evidence, kinds.STEM)
    tests = measured(tests[tests["status"] != "unsupported"])
    failed, gate = row_names(tests[~gates.shown(tests)]), gates.summary(rows)
    more = [f"{len(failed) - NAMED_TESTS} more"] if len(failed) > NAMED_TESTS else []
    return {
        "tests": Count(len(tests) - len(failed), len(tests)),
        "lengths": tests["seq_len"].nunique(),
        "widths": tests["d_head"].nunique(),
        "failed": [*failed[:NAMED_TESTS], *more],
        "red": Count(len(gate.red), gate.gated),
    }


def _checks_answer(values: dict) -> str:
    if values["tests"].all:
        return "passed" if values["red"].none else "red"
    return "failed" if values["red"].none else "both"


_AT_THE_END = (
    " at {{ longest }} the speed-up is {{ forward | range('ratio') }} forward,"
    " {{ backward | range('ratio') }} backward (one head, {{ numerics | listed }})."
)
_GOES = (
    "The forward speed-up over plain PyTorch (one head, geometric means,"
    " {{ numerics | listed }}) goes from"
    " {{ end_ratios[0] | ratio }} at length {{ ends[0] }} to {{ end_ratios[1] | ratio }} at"
    " {{ ends[1] }}"
)
_BY_NUMERICS = (
    "{% for words, spread in numerics %} {{ spread | range('ratio') }} (median"
    " {{ spread.middle | ratio }}) in {{ words }}{{ ',' if not loop.last }}{% endfor %}."
)
_TESTS = (
    "{{ tests }} kernel tests pass ({{ lengths | count('length') }},"
    " {{ widths | count('width') }}); "
)
_NO_RED = "no gate of {{ red.n | count('timed row') }} is red."
_RED = "{{ red }} timed rows failed their gate."
_FAILED = " Failed tests: {{ failed | join('; ') }}."

FINDINGS = (
    Finding(
        name="flash_peers",
        question="How fast is our kernel against the best kernels there are?",
        values=_peers,
        answer=always,
        answers={
            "is": "{{ subject }} attention over {% for p in peers %}{{ p.name }}"
            " {{ p.forward | ratio }}{{ ' forward, ' if loop.first else '/' }}"
            "{{ p.backward | ratio }}{{ ' backward' if loop.first }}"
            "{{ '; ' if not loop.last }}{% endfor %} ({{ work }}, {{ numerics }}, geometric means)."
        },
        place=SHORT,
    ),
    Finding(
        name="flash_one_head",
        question="From which length on is our kernel faster than plain attention?",
        values=_one_head,
        answer=_one_head_answer,
        answers={
            "everywhere": "{{ subject }} is faster than plain PyTorch in every cell;" + _AT_THE_END,
            "from": "{{ subject }} is faster than plain PyTorch in every cell from length"
            " {{ first }} on, and slower in {{ slower }} comparisons below;" + _AT_THE_END,
            "not_at_the_end": "{{ subject }} is slower than plain PyTorch in {{ slower }}"
            " comparisons;" + _AT_THE_END,
        },
    ),
    Finding(
        name="flash_dips",
        question="Does the speed-up over plain attention grow with every length?",
        values=_dips,
        answer=lambda v: "falls" if v["falls"] else "rises",
        answers={
            "falls": _GOES + ", with a step down at {{ falls | listed }} (to"
            " {{ ratios | listed }}): there plain PyTorch takes {{ plain_growth | listed }} of"
            " its time at the length before, {{ kernel }} {{ our_growth | listed }}.",
            "rises": _GOES + ", with no step down of more than {{ least | percent(0) }}.",
        },
    ),
    Finding(
        name="flash_tf32",
        question="Does TF32 make our kernel faster than float32 from halves?",
        values=_tf32,
        answer=_tf32_answer,
        answers={
            "neither": "Our TF32 is slower than our float32 from float16 halves in {{ slower }}"
            " comparisons ({{ speed | range('ratio') }}, filled grid), and less accurate in all:"
            " its errors are {{ errors | range('rounded') }} times as large.",
            "faster": "Our TF32 is faster than our float32 from float16 halves in {{ faster }}"
            " comparisons ({{ speed | range('ratio') }}, filled grid); its errors are"
            " {{ errors | range('rounded') }} times as large.",
            "accurate": "Our TF32 over our float32 from float16 halves (filled grid):"
            " {{ speed | range('ratio') }}, with errors {{ errors | range('rounded') }} times as"
            " large.",
        },
    ),
    Finding(
        name="flash_errors",
        question="Is our kernel as accurate as plain attention?",
        values=_errors,
        answer=lambda v: "smaller" if v["larger"].none else "larger",
        answers={
            "smaller": "The errors of {{ kernel }} against float64 are below those of plain PyTorch"
            " in every cell and tensor:" + _BY_NUMERICS,
            "larger": "The errors of {{ kernel }} against float64 are above those of plain PyTorch"
            " in {{ larger }} comparisons, one a cell and tensor:" + _BY_NUMERICS,
        },
    ),
    Finding(
        name="flash_reach",
        question="How long a sequence can each do?",
        values=_reach,
        answer=_reach_answer,
        answers={
            "same": "{{ subject }} and plain PyTorch both run forward and backward up to length"
            " {{ ours }} with one head; the grid ends at {{ grid }}.",
            "further": "{{ subject }} runs forward and backward up to length {{ ours }} with one"
            " head, plain PyTorch up to {{ plain }}.",
            "shorter": "{{ subject }} runs forward and backward up to length {{ ours }} only with"
            " one head, plain PyTorch up to {{ plain }}.",
        },
        place=PAGE,
    ),
    Finding(
        name="flash_checks",
        question="Does the kernel pass its tests, and its timings their gates?",
        values=_checks,
        answer=_checks_answer,
        answers={
            "passed": _TESTS + _NO_RED,
            "failed": _TESTS + _NO_RED + _FAILED,
            "red": _TESTS + _RED,
            "both": _TESTS + _RED + _FAILED,
        },
        place=PAGE,
    ),
)
