"""Recognises out-of-memory errors, and parses the sizes in their messages."""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class OutOfMemory:
    """The sizes in an out-of-memory error; None if the error does not state them."""

    requested_bytes: int | None
    free_bytes: int | None


def available_host_bytes() -> int | None:
    """Return the bytes of memory available on this host; None without /proc/meminfo."""
    try:
        with open("/proc/meminfo") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        return None
    return None


_UNITS = {"bytes": 1, "B": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SIZE = r"(\d+(?:\.\d+)?) (bytes|[KMGT]i?B)"
_REQUESTED = re.compile(rf"[Tt]ried to allocate {_SIZE}")
_FREE = re.compile(rf"{_SIZE}(?: is)? free")
# The MPS allocator reports used and allowed memory, not free memory.
_ON_DEVICE = re.compile(
    r"CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED|MPS backend out of memory"
)
_ON_HOST = re.compile(r"DefaultCPUAllocator: (?:can't allocate memory|not enough memory)")


def out_of_memory(error: BaseException) -> OutOfMemory | None:
    """Return the requested and free bytes of an out-of-memory error; None for any other error.

    Recognises torch.OutOfMemoryError, MemoryError, and the RuntimeError of the CPU allocator, CUDA,
    cuBLAS and MPS. Sizes in messages have binary units and two decimals.
    """
    try:
        message = str(error)
    except Exception:  # foreign exceptions may fail in __str__
        return None
    if isinstance(error, torch.OutOfMemoryError):
        return OutOfMemory(_size(_REQUESTED, message), _size(_FREE, message))
    if isinstance(error, MemoryError):
        return OutOfMemory(None, available_host_bytes())
    if not isinstance(error, RuntimeError):
        return None
    if _ON_HOST.search(message):
        return OutOfMemory(_size(_REQUESTED, message), available_host_bytes())
    if _ON_DEVICE.search(message):
        return OutOfMemory(_size(_REQUESTED, message), _size(_FREE, message))
    return None


def _size(pattern: re.Pattern, message: str) -> int | None:
    match = pattern.search(message)
    if match is None:
        return None
    number, unit = match.groups()
    return round(float(number) * _UNITS[unit if unit == "bytes" else unit[0]])
