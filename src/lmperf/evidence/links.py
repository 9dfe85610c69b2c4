"""How the GPUs of a machine are connected, from NVML: by NVLink, or through the host."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

# Levels of `nvmlDeviceGetTopologyCommonAncestor`, named as by `nvidia-smi topo -m`.
_LEVELS = {0: "internal", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
_MOST_LINKS = 18
# Remote devices of an NVLink: a GPU, or an NVSwitch, through which all GPUs are reached.
_GPU, _SWITCH = 0, 2


def links_between(nvml: Any, handles: Sequence[Any]) -> dict[str, str]:
    """Return the connection of each pair of devices, such as `{"0-1": "NV18"}`.

    `NV` and a number: as many NVLinks. Otherwise the path through the host: PIX, PXB, PHB, NODE or
    SYS; `unknown` if NVML does not tell.

    handles: NVML handles of the devices, in order.
    """
    pairs = itertools.combinations(range(len(handles)), 2)
    return {f"{a}-{b}": _link(nvml, handles[a], handles[b]) for a, b in pairs}


def _link(nvml: Any, one: Any, other: Any) -> str:
    counts = [_nvlinks(nvml, one, other), _nvlinks(nvml, other, one)]
    if min(counts):
        return f"NV{min(counts)}"
    try:
        return _LEVELS.get(nvml.nvmlDeviceGetTopologyCommonAncestor(one, other), "unknown")
    except nvml.NVMLError:
        return "unknown"


def _nvlinks(nvml: Any, one: Any, other: Any) -> int:
    """Return the number of active NVLinks of a device that lead to another one or to a switch."""
    found = 0
    for link in range(_MOST_LINKS):
        try:
            if not nvml.nvmlDeviceGetNvLinkState(one, link):
                continue
            found += _leads_to(nvml, one, link, other)
        except nvml.NVMLError:  # the device has no such link
            continue
    return found


def _leads_to(nvml: Any, one: Any, link: int, other: Any) -> bool:
    kind = nvml.nvmlDeviceGetNvLinkRemoteDeviceType(one, link)
    if kind != _GPU:
        return kind == _SWITCH
    remote = nvml.nvmlDeviceGetNvLinkRemotePciInfo(one, link)
    return remote.busId == nvml.nvmlDeviceGetPciInfo(other).busId
