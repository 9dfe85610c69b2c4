"""Names the GPUs of this machine, as locks and CUDA_VISIBLE_DEVICES do: by UUID.

Imports no torch: a name is needed before the process that uses the GPU starts.

For tests, `LMPERF_PRETENDED_GPUS=2` names two GPUs that do not exist: jobs then lock them and run
side by side on the CPU. Nothing measured that way is worth anything.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

VISIBLE = "CUDA_VISIBLE_DEVICES"
PRETENDED = "LMPERF_PRETENDED_GPUS"


def all_gpus() -> list[str]:
    """Return the UUIDs of all NVIDIA GPUs of this machine, in NVML's order; empty without any."""
    if pretended := os.environ.get(PRETENDED):
        return [f"pretended-{number}" for number in range(int(pretended))]
    import pynvml as nvml

    try:
        nvml.nvmlInit()
        handles = map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))
        return [nvml.nvmlDeviceGetUUID(handle) for handle in handles]
    except nvml.NVMLError:
        return []


def visible_gpus(of: Sequence[str]) -> list[str]:
    """Return those of the GPUs `of` that CUDA_VISIBLE_DEVICES lets this process use, in its order.

    The variable holds indices or (beginnings of) UUIDs; CUDA ignores what follows an invalid one.
    """
    visible = os.environ.get(VISIBLE)
    if visible is None or (of and of[0].startswith("pretended-")):
        return list(of)
    found: list[str] = []
    for name in map(str.strip, visible.split(",")):
        named = [
            one for i, one in enumerate(of) if str(i) == name or (name and one.startswith(name))
        ]
        if len(named) != 1:
            break
        found += named
    return found
