"""Peak rates of NVIDIA devices from their data sheets: dense TFLOP/s, bandwidth and the source.

The peaks are the denominator of MFU (model FLOPs utilization) and an upper limit for measured
rates. They are dense rates (half of the figure with sparsity), with float32 accumulation, at the
boost clock: a device that runs at a higher clock can exceed them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# Bytes of a kernel's output that may still be in cache when the kernel ends: more than the L2 cache
# of any current device.
CACHE_BYTES = 128 * 2**20


@dataclass(frozen=True)
class DataSheet:
    """Peak rates of one NVIDIA device, from its data sheet.

    Attributes:
        tflops: numerics -> dense TFLOP/s. float32 is the rate without tensor cores; numerics that
            the device has no units for are absent.
        bandwidth_gbps: memory bandwidth, reads and writes together.
        clock_mhz: the boost clock at which the tensor cores reach these rates.
        source: the NVIDIA document that states these rates.
    """

    tflops: Mapping[str, float]
    bandwidth_gbps: float
    clock_mhz: float
    source: str


def _sheet(
    float32: float,
    tf32: float | None,
    half: float,
    bandwidth_gbps: float,
    clock_mhz: float,
    source: str,
    bfloat16: bool = True,
) -> DataSheet:
    rates = {"float32": float32, "tf32": tf32, "float16": half}
    rates["bfloat16"] = half if bfloat16 else None
    stated = {name: rate for name, rate in rates.items() if rate is not None}
    return DataSheet(stated, bandwidth_gbps, clock_mhz, source)


_H100 = "NVIDIA H100 Tensor Core GPU data sheet"
_H200 = "NVIDIA H200 Tensor Core GPU data sheet"
_GH200 = "NVIDIA GH200 Grace Hopper Superchip data sheet"
_A100 = "NVIDIA A100 Tensor Core GPU data sheet"
_V100 = "NVIDIA V100 Tensor Core GPU data sheet"
_B200 = "NVIDIA Blackwell data sheet, HGX B200, one GPU"
_ADA = "NVIDIA Ada GPU architecture white paper"
_GA102 = "NVIDIA Ampere GA102 GPU architecture white paper"
_V100_SXM2 = _sheet(15.7, None, 125, 900, 1530, _V100, bfloat16=False)
_V100_PCIE = _sheet(14, None, 112, 900, 1380, _V100, bfloat16=False)

# Exact NVML device name without "NVIDIA" -> data sheet. A MIG slice, or a variant with other clocks
# or memory, has another name and so no data sheet here.
SHEETS = {
    "B200": _sheet(75, 1100, 2250, 7700, 1860, _B200),
    "H200": _sheet(67, 494.7, 989.5, 4800, 1830, _H200),
    "H200 NVL": _sheet(60, 417.5, 835.5, 4800, 1545, _H200),
    "GH200 480GB": _sheet(67, 494.7, 989.5, 4000, 1830, _GH200),
    "GH200 144G HBM3e": _sheet(67, 494.7, 989.5, 4900, 1830, _GH200),
    "H100 80GB HBM3": _sheet(67, 494.7, 989.5, 3350, 1830, _H100),
    "H100 NVL": _sheet(60, 417.5, 835.5, 3900, 1545, _H100),
    "H100 PCIe": _sheet(51, 378, 756.5, 2000, 1620, _H100),
    "A100-SXM4-80GB": _sheet(19.5, 156, 312, 2039, 1410, _A100),
    "A100-SXM4-40GB": _sheet(19.5, 156, 312, 1555, 1410, _A100),
    "A100 80GB PCIe": _sheet(19.5, 156, 312, 1935, 1410, _A100),
    "A100-PCIE-40GB": _sheet(19.5, 156, 312, 1555, 1410, _A100),
    "L40S": _sheet(91.6, 183, 366.5, 864, 2520, "NVIDIA L40S data sheet"),
    "L4": _sheet(30.3, 60, 121, 300, 2040, "NVIDIA L4 Tensor Core GPU data sheet"),
    "GeForce RTX 4090": _sheet(82.6, 82.6, 165.2, 1008, 2520, _ADA),
    "GeForce RTX 3090": _sheet(35.6, 35.6, 71, 936, 1695, _GA102),
    **dict.fromkeys(("Tesla V100-SXM2-16GB", "Tesla V100-SXM2-32GB"), _V100_SXM2),
    **dict.fromkeys(("Tesla V100-PCIE-16GB", "Tesla V100-PCIE-32GB"), _V100_PCIE),
}


def sheet_of(device: str | None) -> DataSheet | None:
    """Return the data sheet of a device by its NVML name, or None if the table has no such device.

    A device without a data sheet can be measured as well.
    """
    return SHEETS.get((device or "").removeprefix("NVIDIA "))
