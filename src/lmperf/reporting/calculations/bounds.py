"""What bounds a time: FLOPs at the peak matmul, or bytes at the speed of a copy."""

from __future__ import annotations

import numpy as np
import pandas as pd

from lmperf.reporting.evidence import Evidence

COMPUTE, MEMORY, NEITHER = "compute", "memory", "neither"
# A kernel takes longer to launch than to run. The median over sizes counts: launching takes as long
# at each, and single rows have the noise of the CPU.
LAUNCH_BOUND = "median_ms < host_ms.median()"
EXPLAINED = 0.5  # of a time, by the least times of its FLOPs and bytes


def bounds(evidence: Evidence, rows: pd.DataFrame, moved: pd.Series) -> pd.DataFrame:
    """Of each row compute_ms and memory_ms, the least times of its FLOPs and bytes, and `bound`.

    moved: bytes. Least times are at the best rates of a machine; NaN without a rate.
    """
    dtypes = rows.get("dtype", pd.Series("", rows.index))
    peaks = dtypes.map({dtype: evidence.peak(dtype) for dtype in dtypes.unique()}).astype(float)
    compute, memory = rows["flops"] / peaks / 1e9, moved / evidence.copy_gbps() / 1e6
    longest = np.where(compute.fillna(0) > memory.fillna(0), COMPUTE, MEMORY)
    explained = compute.fillna(0) + memory.fillna(0) >= EXPLAINED * rows["ms"]
    columns = {"compute_ms": compute, "memory_ms": memory}
    return pd.DataFrame(columns | {"bound": np.where(explained, longest, NEITHER)}, rows.index)
