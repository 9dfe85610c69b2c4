"""The sequence length at which plain attention runs out of memory: predicted, and tried."""

from __future__ import annotations

from typing import Any

import torch

from lmperf.attention.reference import BYTES_PER_ELEMENT, attention
from lmperf.measuring.out_of_memory import available_host_bytes, out_of_memory
from lmperf.precision import storage_dtype

_MIB = 2**20


def tensors(batch: int, n: int, d: int, dtype: str) -> dict[str, int]:
    """Bytes of each tensor of an unmasked forward pass [batch, n, d], in order of allocation.

    Inputs q, k, v; the scores [batch, n, n]; the scaled scores; the softmax; the output. While a
    tensor of the size of the scores is computed, the one that it is computed from is alive.
    """
    element = BYTES_PER_ELEMENT[dtype]
    scores, rows = batch * n * n * element, batch * n * d * element
    return {
        "inputs": 3 * rows,
        "scores": scores,
        "scaled": scores,
        "softmax": scores,
        "output": rows,
    }


def peak_bytes(batch: int, n: int, d: int, dtype: str) -> int:
    """Peak memory in bytes: the inputs and two tensors of the size of the scores."""
    sizes = tensors(batch, n, d, dtype)
    return sizes["inputs"] + 2 * sizes["scores"]


def first_too_long(batch: int, d: int, dtype: str, free: int) -> int:
    """The smallest power of two n for which attention on n tokens needs more than `free` bytes."""
    n = 1
    while peak_bytes(batch, n, d, dtype) <= free:
        n *= 2
    return n


def free_bytes(device: str) -> int:
    """Bytes that can be allocated now; raises RuntimeError if the system does not report them."""
    if device == "cuda":
        free, _ = torch.cuda.mem_get_info()
        return free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    available = available_host_bytes()
    if available is None:
        raise RuntimeError("this system does not report how much memory is available")
    return available


def run_out(batch: int, n: int, d: int, dtype: str, device: str) -> dict[str, Any]:
    """Run plain attention once and return whether it fits in memory.

    Returns outcome "fits", or "out of memory" with the requested and free MiB that the allocator
    reports. Raises any other error of the call.
    """
    q, k, v = torch.randn(3, batch, n, d, device=device).to(storage_dtype(dtype)).unbind(0)
    try:
        attention(q, k, v)
    except RuntimeError as error:
        memory = out_of_memory(error)
        if memory is None:
            raise
        return {
            "outcome": "out of memory",
            "requested_mib": memory.requested_bytes / _MIB,
            "free_mib": memory.free_bytes / _MIB,
        }
    return {"outcome": "fits"}
