"""Tests of the visible GPUs and of their links."""

import sys
from types import SimpleNamespace

import pytest

from lmperf.machine import nvidia


class NVMLError(Exception):
    """What NVML raises for a link that a device does not have."""


def nvml(remote, links=4):
    """A library of NVML with so many active links a device, each to a `remote` device."""

    def state(handle, link):
        if link >= links:
            raise NVMLError
        return link > 0  # the first one is inactive

    return SimpleNamespace(
        NVMLError=NVMLError,
        nvmlDeviceGetNvLinkState=state,
        nvmlDeviceGetNvLinkRemoteDeviceType=lambda handle, link: 2 if remote == "switch" else 0,
        nvmlDeviceGetNvLinkRemotePciInfo=lambda handle, link: SimpleNamespace(busId=remote),
        nvmlDeviceGetPciInfo=lambda handle: SimpleNamespace(busId=handle),
    )


@pytest.mark.parametrize(
    ("library", "link"),
    [
        (nvml("switch"), "NV3"),
        (nvml("elsewhere"), "host"),
        (nvml("switch", links=0), "host"),
    ],
)
def test_links_of_gpus_are_nvlinks_or_the_way_through_the_host(library, link):
    assert nvidia._links(library, ["a", "b"]) == {"0-1": link}
    assert nvidia._links(library, ["a"]) == {}


@pytest.mark.parametrize(
    ("visible", "device"),
    [(None, "GPU-b"), ("1", "GPU-c"), ("GPU-b", "GPU-b"), ("MIG-d", "MIG-d"), ("2", None)],
)
def test_visible_gpus_do_not_depend_on_those_that_cannot_be_opened(monkeypatch, visible, device):
    def opened(number):
        if number == 0:  # lost, or given to another job of the machine
            raise NVMLError
        return ["GPU-a", "GPU-b", "GPU-c"][number]

    library = SimpleNamespace(
        NVMLError=NVMLError,
        NVML_CLOCK_SM=0,
        NVML_CLOCK_MEM=1,
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 3,
        nvmlDeviceGetHandleByIndex=opened,
        nvmlDeviceGetUUID=lambda handle: handle,
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetName=lambda handle: handle,
        nvmlSystemGetDriverVersion=lambda: "570.1",
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(total=2**30),
        nvmlDeviceGetMaxClockInfo=lambda handle, which: 1980,
        nvmlDeviceGetEnforcedPowerLimit=lambda handle: 700_000,
        nvmlDeviceGetNvLinkState=lambda handle, link: False,
    )
    monkeypatch.setitem(sys.modules, "pynvml", library)
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    found = nvidia.nvidia_facts.__wrapped__()
    assert found.get("device") == device
    assert found.get("devices") == (2 if visible is None else None)
