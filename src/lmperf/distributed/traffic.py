"""Counts the collectives of a call and the bytes that a rank sends in them, as they run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import torch.distributed as dist
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# Operator of torch.distributed -> name, index of the argument that has all ranks' bytes, and how
# often a ring algorithm sends (ranks - 1) / ranks of them from each rank.
_OPERATORS = {
    "allreduce_": ("all_reduce", 0, 2),
    "allreduce_coalesced_": ("all_reduce", 0, 2),
    "broadcast_": ("broadcast", 0, 1),
    "allgather_": ("all_gather", 0, 1),
    "_allgather_base_": ("all_gather", 0, 1),
    "allgather_into_tensor_coalesced_": ("all_gather", 0, 1),
    "reduce_scatter_": ("reduce_scatter", 1, 1),
    "_reduce_scatter_base_": ("reduce_scatter", 1, 1),
    "reduce_scatter_tensor_coalesced_": ("reduce_scatter", 1, 1),
}
_SENDING_NOTHING = frozenset({"barrier", "monitored_barrier_"})


@dataclass
class Traffic:
    """What a rank has sent.

    Attributes:
        calls: name of a collective (a key of `memory.sent_bytes`) -> calls.
        sent: name of a collective -> bytes, if each runs as a ring.
        unknown: operators of torch.distributed that cannot be counted.
    """

    calls: Counter[str] = field(default_factory=Counter)
    sent: Counter[str] = field(default_factory=Counter)
    unknown: set[str] = field(default_factory=set)

    @property
    def columns(self) -> dict[str, int]:
        """Columns of a row: `calls` and `sent_bytes`; without the bytes if some are unknown."""
        columns = {"calls": self.calls.total()}
        return columns if self.unknown else {**columns, "sent_bytes": self.sent.total()}


class CountTraffic(TorchDispatchMode):
    """While active, counts this rank's collectives, also those that C++ code starts.

    Compiled code is not seen by a dispatch mode: run it under `torch.compiler.set_stance`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.traffic = Traffic()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "c10d":
            self._count(func._opname, args)
        return func(*args, **(kwargs or {}))

    def _count(self, operator: str, args: tuple) -> None:
        if operator in _SENDING_NOTHING:
            return
        if operator not in _OPERATORS:
            self.traffic.unknown.add(operator)
            return
        name, place, times = _OPERATORS[operator]
        tensors = [leaf for leaf in tree_leaves(args[place]) if isinstance(leaf, Tensor)]
        ranks = dist.get_world_size()
        self.traffic.calls[name] += 1
        self.traffic.sent[name] += sum(t.nbytes for t in tensors) * times * (ranks - 1) // ranks
