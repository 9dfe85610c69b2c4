"""Tests of the data sheets: found by exact device name, dense rates, a source for each."""

from lmperf.machine.data_sheets import sheet_of


def test_data_sheet_is_found_only_by_exact_device_name():
    assert sheet_of("NVIDIA H200").tflops["bfloat16"] == 989.5
    assert sheet_of("NVIDIA L40S") != sheet_of("NVIDIA L4")
    assert sheet_of("NVIDIA H100 PCIe").bandwidth_gbps < sheet_of("NVIDIA H100 NVL").bandwidth_gbps
    for other in ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA GeForce RTX 4090 D", "", None):
        assert sheet_of(other) is None
