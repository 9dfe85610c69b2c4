"""Measures the peak memory of a call, and parses the sizes in out-of-memory errors.

On CUDA the caching allocator reports the memory. Elsewhere `LiveTensors` sums the bytes of live
tensors, which operators request from an allocator; it misses scratch space inside an operator.
"""

import gc
import re
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from lmperf.benchmark import Phase, Workload

CACHING_ALLOCATOR = "caching allocator"
LIVE_TENSORS = "live tensors"

Resident = Tensor | nn.Module | torch.optim.Optimizer
# Packages whose objects hold caches of compiled code, and no state of an optimizer.
_OPAQUE = {"torch", "triton"}


class LiveTensors(TorchDispatchMode):
    """Dispatch mode that counts the bytes of the tensors that operators return.

    Each storage counts once, however many views it has, until it is freed. The mode sees operators
    of forward, backward and optimizer, but not compiled code, which bypasses the dispatcher.
    Tensors that existed before the mode was entered count if they are registered.

    Attributes:
        live_bytes: bytes of the storages that are alive now.
        peak_bytes: largest value of `live_bytes` so far.
    """

    def __init__(self) -> None:
        super().__init__()
        self.live_bytes = 0
        self.peak_bytes = 0
        self._storages: dict[int, tuple[weakref.ref, int]] = {}

    def register(self, subjects: Iterable[Resident]) -> None:
        """Count existing tensors, modules (parameters, buffers, gradients) and optimizer states."""
        for subject in subjects:
            for tensor in _tensors_of(subject):
                self._count(tensor)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for leaf in tree_iter(result):
            if isinstance(leaf, Tensor):
                self._count(leaf)
        return result

    def _count(self, tensor: Tensor) -> None:
        # A tensor that is distributed over ranks holds this rank's part in a plain one.
        tensor = getattr(tensor, "_local_tensor", tensor)
        if tensor.layout is not torch.strided:
            raise TypeError(f"a {tensor.layout} tensor has no single storage to count")
        storage = tensor.untyped_storage()
        address, size = storage._cdata, storage.nbytes()
        known = self._storages.get(address)
        # A resized storage keeps its address and counts with its new size.
        if known is not None and known[1] == size:
            return
        if known is not None:
            self.live_bytes -= known[1]
        reference = weakref.ref(storage, lambda dead: self._forget(address, dead))
        self._storages[address] = (reference, size)
        self.live_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)

    def _forget(self, address: int, dead: weakref.ref) -> None:
        known = self._storages.get(address)
        if known is not None and known[0] is dead:
            self.live_bytes -= known[1]
            del self._storages[address]


def _tensors_of(subject: Resident) -> list[Tensor]:
    if isinstance(subject, nn.Module):
        gradients = [p.grad for p in subject.parameters() if p.grad is not None]
        return [*subject.parameters(), *subject.buffers(), *gradients]
    if isinstance(subject, torch.optim.Optimizer):
        return state_of(subject)
    if isinstance(subject, Tensor):
        return [subject] if subject.grad is None else [subject, subject.grad]
    raise TypeError(f"cannot count {type(subject).__name__}: give a tensor, module or optimizer")


def state_of(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """The tensors other than parameters that an optimizer, or an object within it, holds.

    An optimizer that shards its state keeps it in an inner one, under a name that its author chose.
    """
    tensors: list[Tensor] = []
    parameters, seen, left = set(), {id(optimizer)}, [optimizer]
    while left:
        one = left.pop()
        if isinstance(one, Tensor):
            tensors.append(one)
            continue
        if isinstance(one, torch.optim.Optimizer):
            parameters |= {id(of) for group in one.param_groups for of in group["params"]}
        elif (
            isinstance(one, type | ModuleType | FunctionType | nn.Module)
            or type(one).__module__.partition(".")[0] in _OPAQUE
        ):
            continue
        found = [of for of in gc.get_referents(one) if id(of) not in seen]
        seen |= {id(of) for of in found}
        left += {id(of): of for of in found}.values()
    return [tensor for tensor in tensors if id(tensor) not in parameters]


def peak_memory(
    run: Callable[[], object], device: torch.device | str, resident: Iterable[Resident] = ()
) -> int:
    """Call `run` once, and return the most bytes that were allocated during the call.

    Exceptions of `run` propagate.

    Args:
        device: the device that `run` uses.
        resident: existing tensors, modules and optimizers to count. Ignored on CUDA, where the
            allocator counts all live memory of the process.
    """
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        run()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device)
    live = LiveTensors()
    live.register(resident)
    with live:
        run()
    return live.peak_bytes


@cache
def import_dispatch() -> None:
    """Use a dispatch mode for the first time, which imports for a second, and keep what it imports
    out of later collections of garbage."""
    with LiveTensors():
        torch.zeros(1)
    gc.collect()
    gc.freeze()


def phase_memory(
    work: Workload, prepare: Callable[[], tuple[Phase, Any]], device: str
) -> dict[str, float]:
    """Return the memory of one call of a phase: `resident_mib`, `saved_mib` and `peak_mib`.

    Resident are the tensors that the workload keeps; saved is what is alive when the call begins
    (for a backward: after the forward pass). They count tensors of this workload only. Empty for
    MPS, and on a CPU for a compiled workload, which `LiveTensors` cannot see.

    prepare: prepares a call; returns its phase, and what its `run` takes.
    """
    if device == "cpu":
        import_dispatch()
    live = LiveTensors()
    live.register(work.resident)
    resident = live.live_bytes
    if device == "cuda":
        torch.cuda.synchronize()
        others = torch.cuda.memory_allocated() - resident  # of other workloads
        phase, state = prepare()
        torch.cuda.synchronize()
        saved = torch.cuda.memory_allocated() - others
        peak = peak_memory(lambda: phase.run(state), device) - others
    elif device == "cpu" and not work.compiles:
        with live:
            phase, state = prepare()
            saved = live.peak_bytes = live.live_bytes
            phase.run(state)
        peak = live.peak_bytes
    else:
        return {}
    sizes = {"resident_mib": resident, "saved_mib": saved, "peak_mib": peak}
    return {name: size / 2**20 for name, size in sizes.items()}


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
    found = pattern.search(message)
    if found is None:
        return None
    number, unit = found.groups()
    return round(float(number) * _UNITS[unit if unit == "bytes" else unit[0]])
