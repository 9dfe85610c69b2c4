"""What this machine can do: copy bandwidth and matmul rate per dtype."""

from __future__ import annotations

from lmperf.reporting.ceilings import ceilings
from lmperf.reporting.claims import Claim, NotMeasured
from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.numbers import dtype_words
from lmperf.reporting.tables import markdown, status_words, timing_cells, value_cells

COPY_TOLERANCE = 0.1


def tables(evidence: MachineEvidence) -> dict[str, str]:
    """``ceilings``: one line per operation and dtype."""
    frame = evidence.frame("ceilings")
    table = frame[["operation"]].assign(
        numerics=frame["dtype"].map(dtype_words),
        time=timing_cells(frame),
        rate=value_cells(frame, frame["tflops"]),
        bandwidth=value_cells(frame, frame["bandwidth_gbps"]),
        status=status_words(frame),
    )
    headers = {
        "time": "time (ms, mean ± std)",
        "rate": "matmul rate (TFLOP/s)",
        "bandwidth": "bandwidth, read + write (GB/s)",
    }
    caption = "Ceilings: what this machine reached with nothing else to do"
    return {"ceilings": markdown(table.rename(columns=headers), caption, left=["numerics"])}


def _rates(evidence: MachineEvidence) -> dict:
    found = ceilings(evidence)
    single, half = found.get(("matmul", "float32")), found.get(("matmul", "bfloat16"))
    if single is None or half is None:
        raise NotMeasured("the matmul ceilings of float32 and bfloat16 are not both there")
    return {"single": single, "half": half}


def _bandwidth(evidence: MachineEvidence) -> dict:
    rates = [rate for (operation, _), rate in ceilings(evidence).items() if operation == "copy"]
    if not rates:
        raise NotMeasured("no copy bandwidth is there")
    return {"lowest": min(rates), "best": max(rates), "tolerance": COPY_TOLERANCE}


CLAIMS = (
    Claim(
        name="lower_precision",
        text="A large matrix product runs at {{ half | sig }} TFLOP/s in bf16 and at"
        " {{ single | sig }} TFLOP/s in float32 IEEE: fewer bits are faster here.",
        values=_rates,
        holds=lambda v: v["half"] > v["single"],
        about="the matmul rate in bf16 and in float32 IEEE",
        instead="bf16 is the slower one on this machine.",
    ),
    Claim(
        name="bandwidth",
        text="Copying moves {{ best | sig }} GB/s at best, and the dtype of the copy makes no more"
        " difference than {{ tolerance | percent }}.",
        values=_bandwidth,
        holds=lambda v: v["lowest"] >= (1 - COPY_TOLERANCE) * v["best"],
        about="the copy bandwidth",
        instead="The slowest dtype reaches {{ lowest | sig }} GB/s.",
    ),
)
