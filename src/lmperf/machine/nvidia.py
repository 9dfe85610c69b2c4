"""The NVIDIA GPUs of the machine at hand, and how they are linked, as NVML knows them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from functools import cache
from typing import Any

from lmperf.measuring.gpus import visible_gpus

_MOST_LINKS = 18
# Remote devices of an NVLink: a GPU, or an NVSwitch, through which all GPUs are reached.
_GPU, _SWITCH = 0, 2


@cache
def nvidia_facts() -> dict[str, Any]:
    """Return the facts of the visible NVIDIA devices; empty if there is none.

    All facts are those of the first device, apart from `devices` (their number) and `links`, which
    a machine with one visible device lacks.
    """
    import pynvml as nvml

    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    # A slice of a GPU (MIG) is none of the GPUs, but NVML finds it; CUDA uses only the first one.
    slices = [visible.split(",")[0].strip()] if visible.startswith("MIG-") else []
    if not (uuids := visible_gpus() or slices):
        return {}
    try:
        handle, *others = handles = [nvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in uuids]
        driver = nvml.nvmlSystemGetDriverVersion()
        facts = {
            "device": nvml.nvmlDeviceGetName(handle),
            "driver": driver,
            "driver_branch": driver.partition(".")[0],
            "device_memory_gib": nvml.nvmlDeviceGetMemoryInfo(handle).total / 2**30,
            "clock_sm_mhz": nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM),
            "clock_memory_mhz": nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_MEM),
        }
    except nvml.NVMLError:
        return {}
    try:
        facts["power_limit_w"] = nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000
    except nvml.NVMLError:
        facts["power_limit_w"] = None
    if others:
        facts |= {"devices": len(handles), "links": _links(nvml, handles)}
    return facts


def _links(nvml: Any, handles: Sequence[Any]) -> dict[str, str]:
    """Return the connection of each pair of devices, such as `{"0-1": "NV18"}`.

    `NV` and a number: as many NVLinks. `host`: a path through the host.
    """
    pairs = itertools.combinations(range(len(handles)), 2)
    return {f"{a}-{b}": _link(nvml, handles[a], handles[b]) for a, b in pairs}


def _link(nvml: Any, gpu: Any, other: Any) -> str:
    count = min(_nvlinks(nvml, gpu, other), _nvlinks(nvml, other, gpu))
    return f"NV{count}" if count else "host"


def _nvlinks(nvml: Any, gpu: Any, other: Any) -> int:
    """Return the number of active NVLinks of a device that lead to another one or to a switch."""
    links = 0
    for link in range(_MOST_LINKS):
        try:
            if nvml.nvmlDeviceGetNvLinkState(gpu, link):
                kind = nvml.nvmlDeviceGetNvLinkRemoteDeviceType(gpu, link)
                remote = nvml.nvmlDeviceGetNvLinkRemotePciInfo(gpu, link) if kind == _GPU else None
                is_other = remote and remote.busId == nvml.nvmlDeviceGetPciInfo(other).busId
                links += kind == _SWITCH or bool(is_other)
        except nvml.NVMLError:  # the device has no such link
            continue
    return links
