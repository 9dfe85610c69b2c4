"""What is read of GPUs while they measure."""

import sys
from types import SimpleNamespace

import pytest

from lmperf.measuring.sensors import Gpus

IDLE, POWER_CAP = 0x1, 0x4


def gpus(monkeypatch, **readings):
    """The sensors of GPUs with these readings: UUID -> clock (MHz), power (W), reasons."""
    fake = SimpleNamespace(
        NVML_CLOCK_SM=1,
        NVMLError=RuntimeError,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetMaxClockInfo=lambda handle, kind: 1980,
        nvmlDeviceGetClockInfo=lambda handle, kind: readings[handle][0],
        nvmlDeviceGetPowerUsage=lambda handle: readings[handle][1] * 1e3,
        nvmlDeviceGetCurrentClocksEventReasons=lambda handle: readings[handle][2],
    )
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return Gpus([*readings])


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        ((345, 80, IDLE), {"clock_mhz": 1900, "power_w": 500}),
        ((1950, 600, 0), {"clock_mhz": 1900, "power_w": 600}),
        ((1600, 700, POWER_CAP), {"clock_mhz": 1600, "power_w": 700, "marks": "capped"}),
    ],
    ids=["idle", "faster", "capped"],
)
def test_slowest_gpu_that_works_counts(monkeypatch, second, expected):
    sensors = gpus(monkeypatch, first=(1900, 500, 0), second=second)
    sensors.sample("row")
    assert sensors.columns("row") == expected
    assert sensors.columns("row") == {}


def test_idle_gpus_are_read_if_none_works(monkeypatch):
    sensors = gpus(monkeypatch, first=(345, 80, IDLE), second=(300, 70, IDLE))
    sensors.sample("row")
    assert sensors.columns("row") == {"clock_mhz": 300, "power_w": 80}
