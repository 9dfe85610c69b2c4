"""What the evidence says of lower precision: where it starts to pay, and where it does not."""

from __future__ import annotations

from lmperf.reporting.claims import Claim, NotMeasured, frame_of
from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.sections.end_to_end.compiling import LAST, started
from lmperf.reporting.sections.end_to_end.variants import STEM, Variant, timed

DTYPE = "autocast_bfloat16"


def _rows(evidence: MachineEvidence, implementation: str):
    frame_of(evidence, STEM)
    base = Variant(implementation, "float32")
    return timed(evidence, Variant(implementation, DTYPE), base)


def _smallest(evidence: MachineEvidence) -> dict:
    rows = _rows(evidence, "eager").dropna(subset=["flops"])
    if rows.empty:
        raise NotMeasured("no two train steps that were timed in turn")
    ordered = rows.sort_values("flops", kind="stable")
    small, large = ordered.iloc[0], ordered.iloc[-1]
    return {
        "size": small["size"],
        "context": small["context_length"],
        "ours": small["median_ms"],
        "theirs": small["base_ms"],
        "ratio": small["ratio"],
        "faster": small["verdict"] == "faster",
        "large_size": large["size"],
        "large_context": large["context_length"],
        "large_ratio": large["ratio"],
    }


CLAIMS = (
    Claim(
        name="mixed_precision_starts",
        text="In order of work, bf16 autocast vs float32 IEEE (eager train step) pays from size"
        " {{ size }}, context {{ context }} on ({{ work | sig }} TFLOP a step): it is faster in all"
        " {{ after }} cells from there, {{ lowest | ratio }} to {{ highest | ratio }}, and in"
        " {{ faster_before }} of the {{ before }} smaller ones" + LAST + ".",
        values=lambda evidence: started(_rows(evidence, "eager")),
        holds=lambda v: v["pays"],
        about="where bf16 autocast starts to pay",
        instead="It is not faster even in the cell with the most work.",
    ),
    Claim(
        name="mixed_precision_smallest",
        text="In the cell with the least work (size {{ size }}, context {{ context }}) bf16"
        " autocast vs float32 IEEE does not pay: {{ ours | sig }} ms against {{ theirs | sig }} ms,"
        " {{ ratio | ratio }}; in the one with the most (size {{ large_size }}, context"
        " {{ large_context }}) it has {{ large_ratio | ratio }} of the speed.",
        values=_smallest,
        holds=lambda v: not v["faster"] and v["large_ratio"] > 1,
        about="bf16 autocast in the smallest and in the largest cell",
        instead="It pays in the smallest too, or does not in the largest.",
    ),
    Claim(
        name="mixed_precision_compiled",
        text="Compiled by block, bf16 autocast vs float32 IEEE (train step) pays from size"
        " {{ size }}, context {{ context }} on: it is faster in all {{ after }} cells from there,"
        " {{ lowest | ratio }} to {{ highest | ratio }}, and in {{ faster_before }} of the"
        " {{ before }} with less work" + LAST + ".",
        values=lambda evidence: started(_rows(evidence, "compiled_blocks")),
        holds=lambda v: v["pays"],
        about="bf16 autocast of a compiled model",
        instead="It is not faster even in the cell with the most work.",
    ),
)
