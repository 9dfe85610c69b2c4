"""What this machine can do: copy bandwidth and matmul rate per dtype."""

from __future__ import annotations

from lmperf.reporting.ceilings import ceilings
from lmperf.reporting.claims import Claim, NotMeasured
from lmperf.reporting.evidence import MachineEvidence, in_order
from lmperf.reporting.numbers import dtype_words
from lmperf.reporting.tables import markdown, status_words, timing_cells, value_cells


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


def _balance(evidence: MachineEvidence) -> dict:
    found = ceilings(evidence)
    rates = {dtype: rate for (operation, dtype), rate in found.items() if operation == "matmul"}
    copies = [rate for (operation, _), rate in found.items() if operation == "copy"]
    if not copies or not rates:
        raise NotMeasured("the copy bandwidth and a matmul rate are not both there")
    bandwidth = max(copies)
    needed = [(dtype_words(d), 1e3 * rates[d] / bandwidth) for d in in_order("dtype", list(rates))]
    return {"bandwidth": bandwidth, "needed": needed, "least": min(n for _, n in needed)}


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
        name="balance",
        text="Copying moves {{ bandwidth | sig }} GB/s, so that work is bound by memory, not by"
        " arithmetic, unless it does more FLOPs for each byte it moves than"
        " {% for dtype, flops in needed %}{{ flops | sig }} ({{ dtype }})"
        "{{ ', ' if not loop.last }}{% endfor %}.",
        values=_balance,
        holds=lambda v: v["least"] > 1,
        about="the balance of arithmetic and memory",
        instead="Memory is no limit where a byte can be moved for each FLOP.",
    ),
)
