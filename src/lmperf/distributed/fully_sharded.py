"""Fully sharded data parallel training by hooks: weights are gathered for use and freed after it.

Sources: ZeRO stage 3 (Rajbhandari et al. 2020, arXiv 1910.02054); flat parameters and prefetching:
Zhao et al. 2023 (arXiv 2304.11277).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from lmperf.distributed.communication import broadcast_state, weak_hook
from lmperf.distributed.data_parallel import reducer_of
from lmperf.distributed.flat_shard import FlatShard, Slot
from lmperf.distributed.rank_footprint import HELD_UNITS, REDUCED_UNITS

_SMALL_BUCKET_MB = 25.0


class FullySharded(nn.Module):
    """Wraps a module whose weights, gradients and optimizer state are sharded over the ranks.

    Units are the elements of `ModuleList`s, such as blocks, and each other module with a matrix of
    its own. The weights of a unit are gathered while the two units before it run, in the forward
    and in the backward pass, and freed after use; gradients are averaged by reduce-scatters that
    overlap with the backward pass. Vectors of modules without a matrix, such as norms, are
    replicated. Give `parameters()` to an optimizer after wrapping: it yields float32 shards and the
    replicated parameters. Call `finish_gradient_synchronization` before the optimizer's step.

    Args:
        module: the model; the constructor changes it in place.
        compute_dtype: of gathered weights, but for embeddings; autocast must cast the inputs to it.
            None: as stored.

    Raises:
        ValueError: two units share a parameter.
    """

    def __init__(self, module: nn.Module, compute_dtype: torch.dtype | None = None):
        super().__init__()
        broadcast_state(module)
        self.names = [name for name, _ in module.named_parameters()]
        self._sharded_names: list[list[str]] = []
        units = self._sharded_units(module, compute_dtype)
        for unit in units:
            unit.register(self)
        self.module = module
        self._order = self._units = units
        self._shards = [shard for unit in units for shard in unit.shards]
        self.masters = nn.ParameterList(shard.master for shard in self._shards)
        replicated = list(module.named_parameters())
        self._replicated_names = [name for name, _ in replicated]
        self._replicated = [parameter for _, parameter in replicated]
        self._reducer = reducer_of(self._replicated, _SMALL_BUCKET_MB)
        self._seen: list[_Unit] = []
        self._in_backward = False
        self._reducing: deque[FlatShard] = deque()

    def _sharded_units(self, module: nn.Module, compute_dtype: torch.dtype | None) -> list[_Unit]:
        """The units of a module, whose parameters are freed as soon as they are sharded."""
        names = {id(parameter): name for name, parameter in module.named_parameters()}
        pending = list(_units_of(module))
        places = [id(parameter) for _, slots in pending for _, _, parameter in slots]
        if len(places) != len(set(places)):
            raise ValueError("two units share a parameter, which is not supported")
        units = []
        while pending:
            module_of_unit, slots = pending.pop(0)
            unit = _Unit(module_of_unit, slots)
            units.append(unit)
            for dtype, alike in _by_dtype(slots, compute_dtype).items():
                self._sharded_names.append([names[id(parameter)] for _, _, parameter in alike])
                unit.shards.append(FlatShard(alike, dtype, self._reduce))
        return units

    def forward(self, *inputs, **named):
        self._in_backward = False
        if len(self._seen) == len(self._units) and set(self._seen) == set(self._units):
            self._order = self._seen
        self._seen = []
        for unit in self._units:
            unit.free()
        return self.module(*inputs, **named)

    def before_forward(self, unit: _Unit) -> None:
        """Have the weights of a unit, and start to gather those of the next units."""
        first = self._order.index(unit)
        if not self._in_backward:  # else a checkpoint runs the unit again
            self._seen.append(unit)
            for following in self._order[first : first + HELD_UNITS]:
                following.gather()
        unit.wait()

    def after_forward(self, unit: _Unit, outputs: Any) -> None:
        """Free the weights of a unit, unless its backward pass comes next."""
        if self._in_backward:
            return
        tracked = [leaf for leaf in tree_leaves(outputs) if _needs_gradient(leaf)]
        for output in tracked:
            output.register_hook(weak_hook(self._before_backward, unit))
        if not tracked or unit is not self._order[-1]:
            unit.free()

    def _before_backward(self, unit: _Unit) -> None:
        self._in_backward = True
        first = self._order.index(unit)
        for previous in self._order[max(0, first + 1 - HELD_UNITS) : first + 1][::-1]:
            if previous.backward_reads_weights:
                previous.gather()
        if unit.backward_reads_weights:
            unit.wait()

    def _reduce(self, shard: FlatShard) -> None:
        """Average the gradients of a shard, after the reductions before the last few have ended."""
        while len(self._reducing) >= REDUCED_UNITS:
            self._reducing.popleft().finish()
        shard.reduce()
        self._reducing.append(shard)

    def finish_gradient_synchronization(self) -> None:
        """Wait until every gradient of `parameters()` is the average over the ranks."""
        for shard in self._shards[::-1]:
            if shard.is_incomplete:  # weights without a gradient on this rank
                self._reduce(shard)
        while self._reducing:
            self._reducing.popleft().finish()
        for shard in self._shards:
            shard.expect()
        self._reducer.finish()
        self._in_backward = False

    def full_tensors(self, gradients: bool = False) -> Iterator[tuple[str, Tensor]]:
        """Gather (name, whole float32 weight, or gradient) of the module's parameters, in parts.

        Every rank must take all of them.
        """
        for shard, names in zip(self._shards, self._sharded_names, strict=True):
            kept = shard.master.grad if gradients else shard.master
            yield from zip(names, shard.full(kept), strict=True)
        for name, parameter in zip(self._replicated_names, self._replicated, strict=True):
            yield name, parameter.grad if gradients else parameter.detach()

    def gather_full_params(self) -> dict[str, Tensor]:
        """Name -> whole float32 weight of each of the module's parameters, in their order."""
        tensors = {name: tensor.clone() for name, tensor in self.full_tensors()}
        return {name: tensors[name] for name in self.names}


class _Unit:
    """Modules whose weights are gathered and freed together."""

    def __init__(self, module: nn.Module, slots: list[Slot]):
        self.module = module
        self.shards: list[FlatShard] = []
        # The gradient of a table needs indices only.
        self.backward_reads_weights = not all(_is_embedding(owner) for owner, _, _ in slots)

    def register(self, root: FullySharded) -> None:
        """Have the root told of every forward pass of the unit."""
        self.module.register_forward_pre_hook(weak_hook(root.before_forward, self))
        self.module.register_forward_hook(weak_hook(root.after_forward, self, outputs=True))

    def gather(self) -> None:
        for shard in self.shards:
            shard.gather()

    def wait(self) -> None:
        for shard in self.shards:
            shard.gather()
            shard.wait()

    def free(self) -> None:
        for shard in self.shards:
            shard.free()


def _units_of(module: nn.Module) -> Iterator[tuple[nn.Module, list[Slot]]]:
    """The units of a module, in the order of their registration, with their matrices."""
    own = _own_slots(module)
    if own:
        yield module, own
    for child in module.children():
        if not isinstance(child, nn.ModuleList):
            yield from _units_of(child)
            continue
        for element in child:
            slots = [slot for inner in element.modules() for slot in _own_slots(inner)]
            if slots:
                yield element, slots


def _own_slots(module: nn.Module) -> list[Slot]:
    """A module's own parameters if one of them is a matrix; parameters without a gradient never."""
    own = [
        (module, name, parameter)
        for name, parameter in module.named_parameters(recurse=False)
        if parameter.requires_grad
    ]
    return own if any(parameter.ndim >= 2 for _, _, parameter in own) else []


def _by_dtype(
    slots: list[Slot], compute_dtype: torch.dtype | None
) -> dict[torch.dtype, list[Slot]]:
    """Slots by the dtype in which their weights are gathered."""
    slots_by_dtype: dict[torch.dtype, list[Slot]] = {}
    for slot in slots:
        keeps = compute_dtype is None or _is_embedding(slot[0])
        slots_by_dtype.setdefault(slot[2].dtype if keeps else compute_dtype, []).append(slot)
    return slots_by_dtype


def _is_embedding(module: nn.Module) -> bool:
    """Whether a module looks up rows of a table; by its name, since courses write their own."""
    return "Embedding" in type(module).__name__


def _needs_gradient(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.requires_grad
