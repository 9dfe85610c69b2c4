"""How the advantage over plain attention depends on direction, length and width."""

from __future__ import annotations

import itertools

import pandas as pd

from lmperf.reporting import gates
from lmperf.reporting.claims import Claim, NotMeasured, frame_of
from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.numbers import implementation_words
from lmperf.reporting.scaling import POINTS, exponents
from lmperf.reporting.sections.flash_attention.kinds import single
from lmperf.reporting.sections.flash_attention.tables import REFERENCE, kernel_of
from lmperf.reporting.speedup import compared_rows

STEM = "flash_attention"


def _rows(evidence: MachineEvidence, phase: str) -> pd.DataFrame:
    kernel = kernel_of(frame_of(evidence, STEM))
    rows = compared_rows(evidence, STEM, "implementation", REFERENCE)
    rows = rows[single(rows) & (rows["implementation"] == kernel) & (rows["phase"] == phase)]
    if rows.empty:
        raise NotMeasured(f"no {phase.replace('_', ' ')} of {kernel} timed with {REFERENCE}")
    names = {"kernel": implementation_words(kernel), "reference": implementation_words(REFERENCE)}
    return rows.assign(**names)


def _words(rows: pd.DataFrame) -> dict:
    return {"kernel": rows["kernel"].iloc[0], "reference": rows["reference"].iloc[0]}


def _directions(evidence: MachineEvidence) -> dict:
    both = _rows(evidence, "forward_backward")
    longest = both["seq_len"].max()
    at = {
        phase: (found := _rows(evidence, phase))[found["seq_len"] == longest]["ratio"].median()
        for phase in ("forward", "backward", "forward_backward")
    }
    if any(value != value for value in at.values()):
        raise NotMeasured(f"not every direction at length {longest:g}")
    return {**_words(both), **at, "length": longest}


def _by_length(evidence: MachineEvidence) -> dict:
    rows = _rows(evidence, "forward")
    middle = rows.groupby("seq_len")["ratio"].median()
    if len(middle) < 2:
        raise NotMeasured("a single length")
    return {
        **_words(rows),
        "short": middle.index[0],
        "long": middle.index[-1],
        "short_ratio": middle.iloc[0],
        "long_ratio": middle.iloc[-1],
        "falls": [length for length, change in middle.diff().items() if change < 0],
    }


def _by_width(evidence: MachineEvidence) -> dict:
    rows = _rows(evidence, "forward")
    rows = rows[rows["seq_len"] == rows["seq_len"].max()]
    middle = rows.groupby("d_head")["ratio"].median()
    if len(middle) < 2:
        raise NotMeasured("a single d_head at the longest length")
    return {
        **_words(rows),
        "length": rows["seq_len"].iloc[0],
        "widths": list(middle.items()),
    }


def _exponent(evidence: MachineEvidence) -> dict:
    frame = frame_of(evidence, STEM)
    kernel = kernel_of(frame)
    frame = frame[single(frame) & (frame["implementation"] == kernel) & gates.shown(frame)]
    frame = frame[frame["phase"] == "forward_backward"]
    frame = frame.drop_duplicates(["seq_len", "d_head", "dtype"], keep="last")
    found = exponents(frame, "seq_len", "median_ms", ["d_head", "dtype"])
    if found.empty:
        raise NotMeasured(f"no d_head has {POINTS} lengths")
    memory = frame.dropna(subset=["peak_mib"])
    grown = exponents(memory, "seq_len", "peak_mib", ["d_head", "dtype"])
    if grown.empty:
        raise NotMeasured("no peak memory of the kernel")
    return {
        "kernel": implementation_words(kernel),
        "time": found.median(),
        "time_low": found.min(),
        "time_high": found.max(),
        "memory": grown.median(),
        "memory_low": grown.min(),
        "memory_high": grown.max(),
        "fits": len(found),
    }


CLAIMS = (
    Claim(
        name="directions",
        text="At length {{ length }} the speed-up of {{ kernel }} over {{ reference }} is"
        " {{ forward | ratio }} in the forward, {{ backward | ratio }} in the backward and"
        " {{ forward_backward | ratio }} in both together, in the middle of widths and dtypes: the"
        " backward gains less, and the whole lies between.",
        values=_directions,
        holds=lambda v: v["backward"] <= v["forward_backward"] <= v["forward"],
        about="the speed-up by direction at the longest sequence",
        instead="The whole does not lie between a smaller gain backward and a larger one forward.",
    ),
    Claim(
        name="speedup_by_length",
        text="The longer the sequence, the more {{ kernel }} gains in the forward over"
        " {{ reference }}: {{ short_ratio | ratio }} at length {{ short }},"
        " {{ long_ratio | ratio }} at {{ long }}, in the middle of widths and dtypes"
        "{% if falls %}, with a step down at {{ falls | listed }}{% endif %}.",
        values=_by_length,
        holds=lambda v: v["long_ratio"] > v["short_ratio"],
        about="the speed-up by length",
        instead="It gains no more at the longest than at the shortest.",
        summary=True,
    ),
    Claim(
        name="speedup_by_width",
        text="The wider the head, the less {{ kernel }} gains in the forward over {{ reference }}"
        " (length {{ length }}): {% for width, ratio in widths %}{{ ratio | ratio }} at d_head"
        " {{ width }}{{ ', ' if not loop.last }}{% endfor %}.",
        values=_by_width,
        holds=lambda v: all(a[1] > b[1] for a, b in itertools.pairwise(v["widths"])),
        about="the speed-up by d_head",
        instead="It does not fall with every step.",
    ),
    Claim(
        name="kernel_exponents",
        text="{{ kernel }} takes time with about the square of the length (exponent"
        " {{ time | sig }}, {{ time_low | sig }} to {{ time_high | sig }} over {{ fits }} fits) and"
        " memory no faster than in proportion to it (exponent {{ memory | sig }},"
        " {{ memory_low | sig }} to {{ memory_high | sig }}).",
        values=_exponent,
        holds=lambda v: 1.7 <= v["time"] <= 2.3 and v["memory_high"] <= 1.3,
        about="how time and memory of the kernel grow with the length",
        instead="The one is not near two, or the other is above one.",
        summary=True,
    ),
)
