"""Counts the bytes of live tensors, which operators request from an allocator, on any device.

It misses scratch space inside an operator, and compiled code, which bypasses the dispatcher.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable
from types import FunctionType, ModuleType

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

Resident = Tensor | nn.Module | torch.optim.Optimizer
# Packages whose objects hold caches of compiled code, and no state of an optimizer.
_OPAQUE = {"torch", "triton"}


class LiveTensors(TorchDispatchMode):
    """Dispatch mode that counts the bytes of the tensors that operators return.

    Each storage counts once, however many views it has, until it is freed. The mode sees operators
    of forward, backward and optimizer. Tensors that existed before the mode was entered count if
    they are registered. A subclass learns of storages by `born` and `died`.

    Args:
        resizes: whether storages are resized in place, as those of sharded weights are: their sizes
            are read again before each operator.

    Attributes:
        live_bytes: bytes of the storages that are alive now.
        peak_bytes: largest value of `live_bytes` so far.
    """

    def __init__(self, resizes: bool = False) -> None:
        super().__init__()
        self._resizes = resizes
        self.live_bytes = 0
        self.peak_bytes = 0
        # Address of a storage -> a reference to it, and its bytes.
        self._storages: dict[int, tuple[weakref.ref, int]] = {}

    def register(self, subjects: Iterable[Resident]) -> None:
        """Count existing tensors, modules (parameters, buffers, gradients) and optimizer states."""
        for subject in subjects:
            for tensor in _tensors_of(subject):
                self.count(tensor)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if self._resizes:
            self.refresh()
        result = func(*args, **(kwargs or {}))
        for leaf in tree_iter(result):
            if isinstance(leaf, Tensor):
                self.count(leaf)
        return result

    def count(self, tensor: Tensor) -> int:
        """Count a tensor, and return the address of its storage."""
        local = local_part(tensor)
        if local.layout is not torch.strided:
            raise TypeError(f"a {local.layout} tensor has no single storage to count")
        storage = local.untyped_storage()
        address, size = storage._cdata, storage.nbytes()
        if address not in self._storages:
            reference = weakref.ref(storage, lambda dead: self._forget(address, dead))
            self._storages[address] = (reference, 0)
            self._resize(address, size)
            self.born(address, local)
        else:  # a resized storage keeps its address
            self._resize(address, size)
        return address

    def refresh(self) -> None:
        """Read the sizes of all storages again."""
        for address, (reference, _) in list(self._storages.items()):
            if (storage := reference()) is not None:
                self._resize(address, storage.nbytes())

    def _resize(self, address: int, size: int) -> None:
        reference, before = self._storages[address]
        if size != before:
            self._storages[address] = (reference, size)
            self.live_bytes += size - before
            self.peak_bytes = max(self.peak_bytes, self.live_bytes)

    def _forget(self, address: int, dead: weakref.ref) -> None:
        reference, size = self._storages.get(address, (None, 0))
        if reference is dead:
            self.live_bytes -= size
            del self._storages[address]
            self.died(address)

    def born(self, address: int, tensor: Tensor) -> None:
        """Called when a storage is counted for the first time, with a tensor that lies in it."""

    def died(self, address: int) -> None:
        """Called when a counted storage is freed."""


def local_part(tensor: Tensor) -> Tensor:
    """Return the plain tensor that holds this rank's part of one that is distributed over ranks."""
    return getattr(tensor, "_local_tensor", tensor)


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
        holder = left.pop()
        if isinstance(holder, Tensor):
            tensors.append(holder)
            continue
        if isinstance(holder, torch.optim.Optimizer):
            parameters |= {id(p) for group in holder.param_groups for p in group["params"]}
        elif (
            isinstance(holder, type | ModuleType | FunctionType | nn.Module)
            or type(holder).__module__.partition(".")[0] in _OPAQUE
        ):
            continue
        held = {id(each): each for each in gc.get_referents(holder) if id(each) not in seen}
        seen |= held.keys()
        left += held.values()
    return [tensor for tensor in tensors if id(tensor) not in parameters]
