"""What the machine at hand can do at most, as it was measured there."""

from __future__ import annotations

import pandas as pd

from lmperf.reporting import gates
from lmperf.reporting.evidence import MachineEvidence

SAME_NUMERICS = {"autocast_bfloat16": "bfloat16", "autocast_float16": "float16"}


def ceilings(evidence: MachineEvidence) -> dict[tuple[str, str], float]:
    """(operation, dtype) -> best rate: TFLOP/s for ``matmul``, GB/s for ``copy``."""
    frame = evidence.frame("ceilings")
    if frame is None:
        return {}
    frame = frame[gates.shown(frame)]
    matmul = frame["operation"] == "matmul"
    rate = frame["tflops"].where(matmul, frame["bandwidth_gbps"])
    best = rate.groupby([frame["operation"], frame["dtype"]]).max().dropna()
    return {key: float(value) for key, value in best.items()}


def matmul_ceiling(evidence: MachineEvidence, dtype: str) -> float | None:
    """TFLOP/s of a matmul in the numerics of ``dtype``; None where it was not measured."""
    return ceilings(evidence).get(("matmul", SAME_NUMERICS.get(dtype, dtype)))


def achieved_tflops(frame: pd.DataFrame) -> pd.Series:
    """TFLOP/s of each row: FLOPs of the closed form over the median time."""
    return frame["flops"] / frame["median_ms"] / 1e9


def matmul_share(evidence: MachineEvidence, frame: pd.DataFrame) -> pd.Series:
    """Achieved TFLOP/s of each row as a fraction of the matmul ceiling of its numerics (MFU)."""
    rates = {
        dtype: matmul_ceiling(evidence, dtype) or float("nan") for dtype in frame["dtype"].unique()
    }
    return achieved_tflops(frame) / frame["dtype"].map(rates).astype(float)
