"""Tests of the data sheets: found by exact device name, dense rates, a source for each."""

import pytest

from lmperf.devices import SHEETS, sheet_of
from lmperf.dtypes import MATMULS


def test_data_sheet_is_found_only_by_exact_device_name():
    assert sheet_of("NVIDIA H200").tflops["bfloat16"] == 989.5
    assert sheet_of("NVIDIA L40S") != sheet_of("NVIDIA L4")
    assert sheet_of("NVIDIA H100 PCIe").bandwidth_gbps < sheet_of("NVIDIA H100 NVL").bandwidth_gbps
    for other in ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA GeForce RTX 4090 D", "", None):
        assert sheet_of(other) is None


@pytest.mark.parametrize("name", SHEETS)
def test_rates_are_dense_and_have_a_source(name):
    sheet = SHEETS[name]
    assert sheet.source.startswith("NVIDIA")
    assert set(sheet.tflops) <= set(MATMULS) and "float32" in sheet.tflops
    half, tf32 = sheet.tflops["float16"], sheet.tflops.get("tf32")
    assert sheet.tflops.get("bfloat16", half) == half
    # A TF32 rate with sparsity would equal the dense float16 rate.
    assert tf32 is None or half / tf32 == pytest.approx(2, rel=0.05)
