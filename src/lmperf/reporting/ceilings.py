"""Ceilings of a machine: the best rates measured on it, and those of its data sheet.

Kernels are compared with matmuls timed one by one (``BURST``); steps of a model, which keep the
device busy for long, with matmuls timed back to back (``SUSTAINED``).
"""

from __future__ import annotations

import pandas as pd

from lmperf.devices import DataSheet, sheet_of
from lmperf.dtypes import dtype_of
from lmperf.reporting import gates, machine
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.numbers import significant

STEM = "ceilings"
BURST, SUSTAINED = "burst", "sustained"
MATMUL, COPY, LAUNCH = "matmul", "copy", "launch"


def rows(evidence: MachineEvidence) -> pd.DataFrame | None:
    """Rows of the ceilings with ``rate`` (TFLOP/s of a matmul, GB/s of a copy) and ``load``.

    Rows measured before ``load`` existed lack it; their rates count for both loads.
    """
    frame = evidence.frame(STEM)
    if frame is None:
        return None
    load = frame["load"] if "load" in frame else pd.Series(None, frame.index, object)
    rate = frame["tflops"].where(frame["operation"] == MATMUL, frame["bandwidth_gbps"])
    return frame.assign(load=load, rate=rate)


def ceilings(evidence: MachineEvidence, load: str = BURST) -> dict[tuple[str, str], float]:
    """(operation, dtype) -> best rate over all shapes: TFLOP/s of a matmul, GB/s of a copy."""
    return evidence.once((STEM, load), lambda: _ceilings(evidence, load))


def _ceilings(evidence: MachineEvidence, load: str) -> dict[tuple[str, str], float]:
    frame = rows(evidence)
    if frame is None:
        return {}
    frame = frame[gates.shown(frame)]
    if frame["load"].notna().any():
        frame = having(frame, load=load)
    best = frame.groupby(["operation", "dtype"])["rate"].max().dropna()
    return {key: float(value) for key, value in best.items()}


def matmul_ceiling(evidence: MachineEvidence, dtype: str, load: str = BURST) -> float | None:
    """Best measured TFLOP/s of a matmul in the numerics of ``dtype``; None if not measured."""
    return ceilings(evidence, load).get((MATMUL, dtype_of(dtype).matmul))


def copy_ceiling(evidence: MachineEvidence) -> float | None:
    """Best measured GB/s of a copy, reads and writes together; None if not measured."""
    rates = [rate for (operation, _), rate in ceilings(evidence).items() if operation == COPY]
    return max(rates, default=None)


def peak_words(evidence: MachineEvidence, dtype: str) -> str:
    """The peak matmul that single kernels are compared with, with its rate and how it was timed."""
    rate = matmul_ceiling(evidence, dtype)
    return f"the peak matmul ({significant(rate)} TFLOP/s, single calls)" if rate else ""


def balance(evidence: MachineEvidence, dtype: str) -> float | None:
    """FLOPs per byte at which a matmul in ``dtype`` takes as long as a copy of its bytes.

    Work with more FLOPs per byte is compute-bound, work with fewer memory-bound. None if one of
    the two ceilings was not measured.
    """
    matmul, copy = matmul_ceiling(evidence, dtype), copy_ceiling(evidence)
    return 1e3 * matmul / copy if matmul and copy else None


def data_sheet(evidence: MachineEvidence) -> DataSheet | None:
    """The data sheet of the device; None for a CPU or a device without a known data sheet."""
    return sheet_of(machine.newest(evidence).get("device"))


def sheet_ceiling(evidence: MachineEvidence, dtype: str) -> float | None:
    """TFLOP/s of a matmul in the numerics of ``dtype`` by the data sheet; None if it has none."""
    sheet = data_sheet(evidence)
    return sheet.tflops.get(dtype_of(dtype).matmul) if sheet else None


def achieved_tflops(frame: pd.DataFrame) -> pd.Series:
    """TFLOP/s of each row: FLOPs, counted in closed form, over the median time."""
    return frame["flops"] / frame["median_ms"] / 1e9


def matmul_share(evidence: MachineEvidence, frame: pd.DataFrame, load: str = BURST) -> pd.Series:
    """Achieved TFLOP/s of each row as a fraction of the matmul ceiling of its numerics."""
    return _share(frame, {d: matmul_ceiling(evidence, d, load) for d in frame["dtype"].unique()})


def sheet_share(evidence: MachineEvidence, frame: pd.DataFrame) -> pd.Series:
    """Achieved TFLOP/s of each row as a fraction of the data sheet's peak.

    NaN for rows of an environment that machine.json does not record.
    """
    share = _share(frame, {d: sheet_ceiling(evidence, d) for d in frame["dtype"].unique()})
    return share.where(machine.recorded(evidence, frame))


def _share(frame: pd.DataFrame, rates: dict[str, float | None]) -> pd.Series:
    known = {dtype: rate or float("nan") for dtype, rate in rates.items()}
    return achieved_tflops(frame) / frame["dtype"].map(known).astype(float)
