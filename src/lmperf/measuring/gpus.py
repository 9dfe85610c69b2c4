"""Names the GPUs of this machine, as locks and CUDA_VISIBLE_DEVICES do: by UUID.

Imports no torch: a name is needed before the process that uses the GPU starts.
"""

from __future__ import annotations

import os
from contextlib import suppress


def all_gpus() -> list[str]:
    """Return the UUIDs of the NVIDIA GPUs that this process may open, in NVML's order.

    NVML also counts GPUs that are lost, or that belong to another job of the machine.
    """
    import pynvml as nvml

    uuids: list[str] = []
    with suppress(nvml.NVMLError):
        nvml.nvmlInit()
        for index in range(nvml.nvmlDeviceGetCount()):
            with suppress(nvml.NVMLError):
                uuids.append(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(index)))
    return uuids


def visible_gpus() -> list[str]:
    """Return the UUIDs of the GPUs that CUDA_VISIBLE_DEVICES lets this process use, in its order.

    The variable holds indices or (beginnings of) UUIDs; CUDA ignores what follows an invalid one.
    """
    uuids, visible = all_gpus(), os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return uuids
    visible_uuids: list[str] = []
    for name in map(str.strip, visible.split(",")):
        matching = [
            uuid
            for i, uuid in enumerate(uuids)
            if str(i) == name or (name and uuid.startswith(name))
        ]
        if len(matching) != 1:
            break
        visible_uuids += matching
    return visible_uuids
