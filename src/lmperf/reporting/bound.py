"""What bounds a row: its FLOPs, its bytes or, if its time contains the host, the host.

A call needs at least the time of its FLOPs at the rate of the peak matmul and the time of its bytes
at the speed of a copy, both as measured on the machine in single calls. The longer one bounds it.
If the two together are less than ``EXPLAINED`` of the time, neither does. The host bounds
host-bound steps and kernels that it queued late. It does not bound other kernels, however long it
takes to launch them: events on the device time these.
"""

from __future__ import annotations

import pandas as pd

from lmperf.benchmarks import load
from lmperf.reporting import marks
from lmperf.reporting.ceilings import copy_ceiling, matmul_ceiling
from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.host_bound import host_bound

COMPUTE, MEMORY, HOST, NEITHER = "compute", "memory", "host", "neither"
EXPLAINED = 0.5


def bound(compute_ms: float, memory_ms: float, median_ms: float) -> str:
    """What bounds a call, from the least times of its FLOPs and bytes; NaN times count as zero."""
    compute_ms, memory_ms = (0.0 if each != each else each for each in (compute_ms, memory_ms))
    if compute_ms + memory_ms < EXPLAINED * median_ms:
        return NEITHER
    return COMPUTE if compute_ms > memory_ms else MEMORY


def bounds_of(evidence: MachineEvidence, stem: str, rows: pd.DataFrame) -> pd.Series:
    """What bounds each timed row of a benchmark; None where FLOPs, bytes or ceilings are unknown.

    rows: their ``bytes`` are those that a call must move at least.
    """
    numerics = rows["dtype"] if "dtype" in rows else pd.Series("", rows.index)
    rates = {d: matmul_ceiling(evidence, d) if d else None for d in numerics.unique()}
    rates = numerics.map(rates).astype(float)
    copy = copy_ceiling(evidence) or float("nan")
    compute, memory = rows["flops"] / rates / 1e9, rows["bytes"] / copy / 1e6
    known = compute.notna() | memory.notna()
    are_steps = getattr(load(stem), "clock", None) == "step"
    late = marks.marks_of(rows).map(lambda names: "host_bound" in names).astype(bool)
    late |= host_bound(rows) if are_steps else False
    parts = zip(known, late, compute, memory, rows["median_ms"], strict=True)
    found = [
        HOST if is_late else bound(*times) if is_known else None
        for is_known, is_late, *times in parts
    ]
    return pd.Series(found, rows.index, dtype=object)
