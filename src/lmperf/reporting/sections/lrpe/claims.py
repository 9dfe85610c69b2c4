"""What the evidence on md_lrpe_cosine says."""

from __future__ import annotations

import numpy as np
import pandas as pd

from lmperf.reporting.claims import Claim, NotMeasured, frame_of, rows_of
from lmperf.reporting.evidence import MachineEvidence, row_names
from lmperf.reporting.numbers import implementation_words, phase_words
from lmperf.reporting.sections.kernel_gates import kernel_tests, worst_gate
from lmperf.reporting.sections.lrpe.shapes import COPY, KERNELS, STEM, shaped
from lmperf.reporting.sections.lrpe.tables import predicted
from lmperf.reporting.speedup import compared_rows

KERNEL, CACHED = KERNELS
LARGE_BYTES = 512e6
COPY_SHARE = 0.90
OVER_COMPILED = {"forward": 3.0, "backward": 1.7}
NEVER_SLOWER = 1.0
FEW_TOKENS = 256
# The input once, the output twice as large, and both products at twice the bytes of an element.
UNFUSED_PEAK = 7.0
PEAK_ROUNDING = 0.1
MEMORY_DIFFERENCE = 0.05


def _ratios(evidence: MachineEvidence, name: str, reference: str, phase: str) -> pd.DataFrame:
    """The rows of one implementation and phase with their ratio to the reference's time."""
    frame_of(evidence, STEM)
    rows = compared_rows(evidence, STEM, "implementation", reference)
    rows = rows[(rows["implementation"] == name) & (rows["phase"] == phase)]
    if rows.empty:
        words = f"{implementation_words(name)} and {implementation_words(reference)}"
        raise NotMeasured(f"no {phase_words(phase)} of {words} that were timed in turn")
    return rows


def _large(rows: pd.DataFrame) -> pd.DataFrame:
    large = rows[rows["bytes"] >= LARGE_BYTES]
    if large.empty:
        raise NotMeasured(f"no cell moves {LARGE_BYTES / 1e6:g} MB or more")
    return large


def _range(rows: pd.DataFrame, expected: float) -> dict:
    least = rows.loc[rows["ratio"].idxmin()]
    return {
        "lowest": rows["ratio"].min(),
        "highest": rows["ratio"].max(),
        "middle": rows["ratio"].median(),
        "mean": np.exp(np.log(rows["ratio"]).mean()),
        "cells": len(rows),
        "expected": expected,
        "above": int((rows["ratio"] >= expected).sum()),
        "shape": least["shape"],
        "extra": least["extra_tokens"],
        "bytes_mb": rows["bytes"].min() / 1e6,
        "kernel": implementation_words(least["implementation"]),
    }


def _copy_share(evidence: MachineEvidence, phase: str) -> dict:
    return _range(_large(_ratios(evidence, KERNEL, COPY, phase)), COPY_SHARE)


def _over_compiled(evidence: MachineEvidence, phase: str) -> dict:
    rows = _large(_ratios(evidence, KERNEL, "compiled", phase))
    return _range(rows, OVER_COMPILED[phase])


def _small(evidence: MachineEvidence, few: bool) -> dict:
    """The kernel against the compiled version below LARGE_BYTES; few: below FEW_TOKENS tokens."""
    parts = [_ratios(evidence, KERNEL, "compiled", phase) for phase in OVER_COMPILED]
    rows = shaped(pd.concat(parts))
    rows = rows[(rows["bytes"] < LARGE_BYTES) & ((rows["positions"] < FEW_TOKENS) == few)]
    if rows.empty:
        side = "below" if few else "from"
        raise NotMeasured(f"no cell of less than {LARGE_BYTES / 1e6:g} MB {side} {FEW_TOKENS}")
    least = rows.loc[rows["ratio"].idxmin()]
    phase = phase_words(least["phase"])
    return {**_range(rows, NEVER_SLOWER), "phase": phase, "tokens": FEW_TOKENS}


def _unfused(evidence: MachineEvidence) -> dict:
    rows = rows_of(evidence, STEM, phase="forward", implementation="compiled", extra_tokens=0)
    rows = shaped(rows).dropna(subset=["peak_mib"])
    rows = rows[rows["axes"] >= 3]
    if rows.empty:
        raise NotMeasured("no compiled forward of three axes or more with its peak")
    times = rows["peak_mib"] * 2**20 / (rows["bytes"] / 3)
    return {
        "cells": len(rows),
        "least": times.min(),
        "times": times.max(),
        "expected": UNFUSED_PEAK,
        "allowed": PEAK_ROUNDING,
    }


def _caching(evidence: MachineEvidence) -> dict:
    forward = _large(_ratios(evidence, CACHED, KERNEL, "forward"))
    backward = _large(_ratios(evidence, CACHED, KERNEL, "backward"))
    totals = rows_of(evidence, STEM).groupby(["shape", "extra_tokens", "implementation"])
    totals = totals["median_ms"].agg(["sum", "size"]).unstack("implementation")
    whole = totals["size"][[KERNEL, CACHED]].eq(len(OVER_COMPILED)).all(axis=1)
    both = (totals["sum"][CACHED] / totals["sum"][KERNEL])[whole]
    both = both[both.index.isin(forward.set_index(["shape", "extra_tokens"]).index)]
    if both.empty:
        raise NotMeasured("no cell has both directions of both")
    return {
        "cached": implementation_words(CACHED),
        "forward": forward["ratio"].median(),
        "backward": backward["ratio"].median(),
        "lowest": both.min(),
        "highest": both.max(),
        "cells": len(both),
    }


def _prediction(evidence: MachineEvidence) -> dict:
    frame = rows_of(evidence, STEM)
    frame = frame[frame["peak_mib"].notna() & predicted(frame).notna()]
    if frame.empty:
        raise NotMeasured("no row has a measured and a predicted peak")
    difference = frame["peak_mib"] / predicted(frame) - 1
    worst = frame.loc[[difference.abs().idxmax()]]
    return {
        "cells": len(frame),
        "inside": int((difference.abs() <= MEMORY_DIFFERENCE).sum()),
        "allowed": MEMORY_DIFFERENCE,
        "worst": difference[worst.index[0]],
        "name": row_names(worst)[0],
    }


def _peaks(evidence: MachineEvidence) -> dict:
    rows = rows_of(evidence, STEM, phase="forward").dropna(subset=["peak_mib"])
    peaks = rows.pivot_table("peak_mib", ["shape", "extra_tokens"], "implementation")
    if not {KERNEL, "eager"} <= set(peaks.columns):
        raise NotMeasured("no forward of both with its peak")
    peaks = peaks.dropna(subset=[KERNEL, "eager"])
    largest = peaks[KERNEL].idxmax()
    input_mib = rows.loc[rows["implementation"] == KERNEL, ["shape", "extra_tokens", "bytes"]]
    input_mib = input_mib.set_index(["shape", "extra_tokens"])["bytes"] / 3 / 2**20
    return {
        "kernel": implementation_words(KERNEL),
        "eager": implementation_words("eager"),
        "shape": largest[0],
        "ours": peaks.loc[largest, KERNEL],
        "theirs": peaks.loc[largest, "eager"],
        "times": (peaks[KERNEL] / input_mib.reindex(peaks.index)).max(),
    }


def _kernel_tests(evidence: MachineEvidence) -> dict:
    shapes = frame_of(evidence, "lrpe_check")["shape"].unique()
    return {**kernel_tests(evidence, "lrpe_check"), "shapes": list(shapes)}


_WHERE = " ({{ cells }} cells; the least: shape {{ shape }}, {{ extra }} extra tokens)"


def _copy_claim(phase: str) -> Claim:
    words = phase_words(phase)
    return Claim(
        name=f"copy_share_{phase}",
        text="Where {{ bytes_mb | sig }} MB and more have to move, the "
        + words
        + " of {{ kernel }} runs at {{ lowest | percent }} to {{ highest | percent }} of the speed"
        " of PyTorch's copy of as many bytes" + _WHERE + ".",
        values=lambda evidence: _copy_share(evidence, phase),
        holds=lambda v: v["lowest"] >= v["expected"],
        about=f"the {words} of md_lrpe_cosine against a copy",
        instead="This report expects at least {{ expected | percent }} of it.",
        summary=True,
    )


def _compiled_claim(phase: str) -> Claim:
    words = phase_words(phase)
    return Claim(
        name=f"over_compiled_{phase}",
        text="At these sizes the "
        + words
        + " of {{ kernel }} has a speed-up of at least {{ expected | ratio }} over the compiled"
        " version in every cell: {{ mean | ratio }} in the geometric mean, {{ lowest | ratio }} to"
        " {{ highest | ratio }}" + _WHERE + ".",
        values=lambda evidence: _over_compiled(evidence, phase),
        holds=lambda v: v["lowest"] >= v["expected"],
        about=f"the {words} of md_lrpe_cosine against the compiled version",
        instead="It has it in {{ above }} of them.",
    )


CLAIMS = (
    _copy_claim("forward"),
    _copy_claim("backward"),
    _compiled_claim("forward"),
    _compiled_claim("backward"),
    Claim(
        name="small_sizes",
        text="At smaller sizes down to {{ tokens }} tokens, in either direction, {{ kernel }} has"
        " {{ lowest | ratio }} to {{ highest | ratio }} of the speed of the compiled version,"
        " {{ middle | ratio }} in the middle ({{ cells }} rows; the least: {{ phase }}, shape"
        " {{ shape }}, {{ extra }} extra tokens).",
        values=lambda evidence: _small(evidence, few=False),
        holds=lambda v: v["lowest"] >= v["expected"],
        about="md_lrpe_cosine against the compiled version at small sizes",
        instead="This report expects it to be slower nowhere.",
    ),
    Claim(
        name="smallest_sizes",
        text="Below {{ tokens }} tokens too {{ kernel }} is nowhere slower than the compiled"
        " version: {{ lowest | ratio }} to {{ highest | ratio }} of its speed ({{ cells }} rows;"
        " the least: {{ phase }}, shape {{ shape }}, {{ extra }} extra tokens).",
        values=lambda evidence: _small(evidence, few=True),
        holds=lambda v: v["lowest"] >= v["expected"],
        about="md_lrpe_cosine against the compiled version at the smallest sizes",
        instead="It is slower there.",
    ),
    Claim(
        name="caching",
        text="Keeping the angles for the backward does not pay at large sizes: {{ cached }} has"
        " {{ forward | ratio }} of the speed in the forward and {{ backward | ratio }} in the"
        " backward, and both together take {{ lowest | ratio }} to {{ highest | ratio }} of the"
        " time ({{ cells }} cells).",
        values=_caching,
        holds=lambda v: v["lowest"] >= 1,
        about="whether cached angles pay",
        instead="In at least one cell it does pay.",
    ),
    Claim(
        name="prediction",
        text="All {{ cells }} measured peaks lie within {{ allowed | percent }} of the closed form;"
        " the furthest, {{ worst | signed_percent }}, is {{ name }}.",
        values=_prediction,
        holds=lambda v: v["inside"] == v["cells"],
        about="the predicted peak memory of md_lrpe_cosine",
        instead="{{ inside }} do.",
    ),
    Claim(
        name="unfused",
        text="For three axes without extra tokens the compiled forward peaks at {{ least | ratio }}"
        " to {{ times | ratio }} the size of the input ({{ cells }} cells), as much as the input,"
        " the output and both products in float32 at once would take.",
        values=_unfused,
        holds=lambda v: (
            v["expected"] <= v["least"] * (1 + v["allowed"])
            and v["times"] <= v["expected"] * (1 + v["allowed"])
        ),
        about="why the compiled forward takes more memory than predicted",
        instead="Those would be {{ expected | ratio }}.",
    ),
    Claim(
        name="peaks",
        text="The forward of {{ kernel }} peaks at {{ times | sig }} times its input at most, which"
        " is resident once: at shape {{ shape }} {{ ours | sig }} MiB, where {{ eager }} takes"
        " {{ theirs | sig }} MiB.",
        values=_peaks,
        holds=lambda v: v["times"] <= 3 * (1 + MEMORY_DIFFERENCE) and v["ours"] < v["theirs"],
        about="the peak memory of the forward",
        instead="That is more than the input and the output, or more than PyTorch takes.",
    ),
    Claim(
        name="worst_gate",
        text="Of {{ rows }} gated rows of md_lrpe_cosine, the one closest to its bound has an error"
        " of {{ error | error }} where {{ bound | error }} is allowed, {{ share | percent }} of it:"
        " {{ name }}.",
        values=lambda evidence: worst_gate(evidence, STEM),
        holds=lambda v: v["red"] == 0 and v["share"] <= 1,
        about="the gates of md_lrpe_cosine",
        instead="{{ red }} of the rows are over their bound.",
        summary=True,
    ),
    Claim(
        name="kernel_tests",
        text="All {{ cases }} cases of the tests of the Triton md_lrpe_cosine pass (shapes"
        " {{ shapes | listed }}; {{ dtypes | listed }}).",
        values=_kernel_tests,
        holds=lambda v: v["passed"] == v["cases"],
        about="the tests of the Triton kernel of md_lrpe_cosine",
        instead="{{ passed }} pass; the first that does not: {{ failed }}.",
        summary=True,
    ),
)
