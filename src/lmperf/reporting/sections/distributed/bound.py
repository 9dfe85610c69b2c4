"""Table D14: when data, sharded and tensor parallel training are bound by communication.

No step is needed: the measured rates of matmuls and of collectives decide it, by the closed forms
of `lmperf.distributed.roofline`, in the notation of the course.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from lmperf.distributed import roofline
from lmperf.distributed.roofline import Widths
from lmperf.dtypes import dtype_of
from lmperf.names import dtype_words, in_order
from lmperf.reporting import ceilings
from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.findings import SECTION, Finding, NotMeasured, always
from lmperf.reporting.numbers import significant
from lmperf.reporting.sections.distributed import links
from lmperf.reporting.sections.distributed.links import ALL_REDUCE, lines_of
from lmperf.reporting.sections.distributed.model import STEM, model_size
from lmperf.reporting.side_by_side import each
from lmperf.reporting.tables import Owed, TableGroup, from_frame, number_cell
from lmperf.results import NO_ROW, Cell, Table
from lmperf.transformer.memory import FLOAT32

# What D14 is for: float32 weights and gradients.
DTYPES = ("float32", "autocast_bfloat16")
# Devices; the batch of the course, 4 sequences of 512 tokens, and a large one, in tokens.
DEVICES, COURSE_TOKENS, MANY_TOKENS = 8, 4 * 512, 10**6
# Sizes of the course, for a machine on which none was trained on several ranks.
COURSE_SIZES = ("large", "2.0B", "3.4B")
KINDS = {
    roofline.DATA: "data",
    roofline.FULLY_SHARDED: "fully sharded",
    roofline.TENSOR: "tensor",
    roofline.BOTH_OVERLAPPED: "sharded x tensor, links of their own",
    roofline.BOTH_SHARED: "sharded x tensor, shared links",
}


@dataclass(frozen=True)
class Rates:
    """What decides when training of a dtype is bound by communication.

    Attributes:
        compute: FLOP/s of a device, C.
        link: bytes/s that a device sends, W, of the operation that a kind of parallelism needs.
        ranks: number of ranks over which W was measured.
    """

    compute: float
    link: dict[str, float]
    ranks: int

    def ratio(self, kind: str) -> float:
        """C/W in FLOP per byte."""
        return self.compute / self.link[kind]


def _rates(evidence: MachineEvidence, dtype: str, trusted: bool) -> Rates | None:
    """C: the best sustained matmul. W: fitted bus bandwidth over the most ranks measured."""
    matmul = ceilings.matmul_ceiling(evidence, dtype, ceilings.SUSTAINED)
    lines = lines_of(evidence, trusted)
    ranks = max((ranks for _, _, ranks in lines), default=0)
    needed = [(name, "float32", ranks) for name in (ALL_REDUCE, "all_gather", "reduce_scatter")]
    if matmul is None or not {*needed} <= lines.keys():
        return None
    reduce, gather, scatter = (lines[key].rate.value for key in needed)
    shared = dict.fromkeys(roofline.KINDS, min(gather, scatter))
    return Rates(1e12 * matmul, {**shared, roofline.DATA: reduce}, ranks)


def _widths(dtype: str, d_ff: int) -> Widths:
    """What training with float32 master weights sends: gradients in float32, others as operands."""
    stored = dtype_of(dtype)
    operand = dtype_of(stored.autocast).bytes if stored.autocast else FLOAT32
    return Widths(d_ff, operand, FLOAT32, operand)


def limits(evidence: MachineEvidence) -> list[Table]:
    """Tables D14, one for each dtype: least batch and most devices of each kind of parallelism."""
    return each(*(_limits(evidence, dtype) for dtype in DTYPES))


def _limits(evidence: MachineEvidence, dtype: str) -> Table | None:
    found = _rates(evidence, dtype, trusted=False)
    if found is None:
        return None
    lines = [
        _limit(kind, name, dtype, found) for name in _sizes(evidence) for kind in roofline.KINDS
    ]
    link = found.link
    note = (
        f"C: {significant(found.compute / 1e12)} TFLOP/s, sustained matmul. W: fitted bus bandwidth"
        f" over {found.ranks} ranks, taken for any number of them: of all-reduces for data"
        f" parallelism, {significant(link[roofline.DATA] / 1e9)} GB/s, else of gathers and"
        f" scatters, {significant(link[roofline.TENSOR] / 1e9)} GB/s. B: tokens of"
        " all devices, without effect on tensor parallelism. Any, none: hidden at any batch, at no"
        " batch. Feed-forward layers, SwiGLU, gradients in float32."
    )
    headers = {
        "d_ff": "D_FF",
        "parallelism": "parallelism",
        "intensity": "C/W (FLOP/B)",
        **{f"tokens_{n}": f"least B/N, N = {n}" for n in _numbers(found)},
        "devices": f"most N, B = {COURSE_TOKENS:,}",
        "million": f"most N, B = {MANY_TOKENS:,}",
    }
    caption = f"Limits of hidden communication, {dtype_words(dtype)}"
    return from_frame(caption, pd.DataFrame(lines), note, headers=headers)


def _sizes(evidence: MachineEvidence) -> list[str]:
    """The sizes that were trained on several ranks; else the course's."""
    frame = evidence.frame(STEM)
    trained = [] if frame is None else in_order("size", frame["size"])
    return trained or [*COURSE_SIZES]


def _limit(kind: str, name: str, dtype: str, rates: Rates) -> dict:
    size = model_size(name)
    widths, ratio = _widths(dtype, size.d_ff), rates.ratio(kind)
    return {
        "size": name,
        "d_ff": size.d_ff,
        "parallelism": KINDS[kind],
        "intensity": number_cell(ratio),
        **{
            f"tokens_{n}": _tokens(roofline.tokens_per_device(kind, widths, ratio, n))
            for n in _numbers(rates)
        },
        "devices": _devices(roofline.most_devices(kind, widths, ratio, COURSE_TOKENS)),
        "million": _devices(roofline.most_devices(kind, widths, ratio, MANY_TOKENS)),
    }


def _numbers(rates: Rates) -> list[int]:
    """The numbers of devices whose least batch is shown: as many as measured, and DEVICES."""
    return sorted({rates.ranks, DEVICES})


def _tokens(least: float) -> Cell:
    if least == 0:
        return Cell("any", 0.0)
    return Cell("none", state=NO_ROW) if least == float("inf") else number_cell(least)


def _devices(most: float) -> Cell:
    return Cell(f"{max(1, int(most)):,}", float(max(1, int(most))))


def _bound(evidence: MachineEvidence) -> dict:
    """The least batch per device of data and fully sharded training, for the last dtype known."""
    for dtype in reversed(DTYPES):
        if found := _rates(evidence, dtype, trusted=True):
            break
    else:
        raise NotMeasured
    widths = _widths(dtype, model_size(_sizes(evidence)[-1]).d_ff)
    least, of_many = (
        [
            roofline.tokens_per_device(kind, widths, found.ratio(kind), devices)
            for kind in (roofline.DATA, roofline.FULLY_SHARDED)
        ]
        for devices in (found.ranks, DEVICES)
    )
    tensor = roofline.most_devices(roofline.TENSOR, widths, found.ratio(roofline.TENSOR), 0)
    return {
        "dtype": dtype_words(dtype),
        "ranks": found.ranks,
        "least": least,
        "devices": DEVICES if found.ranks != DEVICES else 0,
        "of_many": of_many,
        "tensor": max(1, int(tensor)),
        "size": _sizes(evidence)[-1],
    }


def _limits_of_due(evidence: MachineEvidence) -> tuple[int, int]:
    known = evidence.frame(links.STEM) is not None or links.STEM in evidence.lacking
    return len(limits(evidence)), len(DTYPES) * known


FINDINGS = (
    Finding(
        name="distributed_bound",
        question="From which batch on is communication hidden?",
        values=_bound,
        answer=always,
        answers={
            "is": "In closed form (D14, {{ dtype }}), a layer on {{ ranks }} devices hides its"
            " communication from {{ least[0] | rounded }} tokens a device on (fully sharded"
            " {{ least[1] | rounded }}).{% if devices %} On {{ devices }} devices with the same"
            " rate that is {{ of_many[0] | rounded }} ({{ of_many[1] | rounded }}).{% endif %}"
            " Tensor parallelism hides it on up to {{ tensor | count('device') }} ({{ size }})."
        },
        place=SECTION,
    ),
)
TABLES = (
    TableGroup(
        "D14",
        "When training is bound by communication",
        limits,
        Owed(stem=links.STEM, counted=_limits_of_due),
    ),
)
