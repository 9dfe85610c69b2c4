"""An optimizer whose state is sharded over the ranks, as in ZeRO stage 1 (arXiv 1910.02054)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer

from lmperf.distributed.communication import alike_groups, all_gather_flat, offsets_of

_MB = 10**6


class ShardedOptimizer(Optimizer):
    """Runs an optimizer on 1/ranks of each flat chunk of the parameters, then gathers the chunk.

    The gathers of a chunk overlap with the updates of the next. The constructor moves the
    parameters into flat chunks; their gradients must be averages over the ranks, and stay where
    they are. Changes of hyperparameters in `param_groups` take effect at the next step.

    Args:
        params: parameters or groups of them, as of any optimizer.
        optimizer_cls: an optimizer that treats each element by itself, such as AdamW or SGD: shards
            do not end where tensors end.
        chunk_mb: MB (10^6 bytes) of parameters that are gathered at once.
        kwargs: arguments of `optimizer_cls`.
    """

    def __init__(
        self,
        params: Iterable[Any],
        optimizer_cls: type[Optimizer],
        chunk_mb: float = 500.0,
        **kwargs: Any,
    ):
        self._make, self._chunk_bytes = (optimizer_cls, kwargs), chunk_mb * _MB
        self._chunks: list[tuple[int, _Chunk]] = []
        super().__init__(params, dict(kwargs))

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group, whose parameters are moved into further chunks."""
        super().add_param_group(param_group)
        group, number = self.param_groups[-1], len(self.param_groups) - 1
        options = {name: value for name, value in group.items() if name != "params"}
        optimizer_cls, kwargs = self._make
        for parameters in alike_groups(group["params"], self._chunk_bytes):
            chunk = _Chunk(parameters, optimizer_cls, {**kwargs, **options})
            self._chunks.append((number, chunk))
            for name, value in chunk.options.items():
                group.setdefault(name, value)

    @property
    def optimizers(self) -> list[Optimizer]:
        """The optimizers that hold this rank's state, one for each chunk."""
        return [chunk.optimizer for _, chunk in self._chunks if chunk.optimizer is not None]

    @torch.no_grad()
    def step(self) -> None:
        """Update this rank's shards, then gather those of the other ranks."""
        gathers = []
        for number, chunk in self._chunks:
            chunk.update(self.param_groups[number])
            gathers.append(chunk.gather())
        for work in gathers:
            work.wait()


class _Chunk:
    """Parameters of one dtype and device in a flat buffer, and the optimizer of this rank's part.

    The part is a list of pieces: what lies of each parameter in it. Their gradients are views of
    the parameters' gradients, so that nothing is copied.
    """

    def __init__(self, parameters: list[nn.Parameter], optimizer_cls, options: dict[str, Any]):
        ranks, rank = dist.get_world_size(), dist.get_rank()
        offsets, length = offsets_of([parameter.numel() for parameter in parameters], ranks)
        first = parameters[0]
        self.flat = torch.zeros(length, dtype=first.dtype, device=first.device)
        self.part = self.flat.view(ranks, -1)[rank]
        begin, end = rank * len(self.part), (rank + 1) * len(self.part)
        self.pieces: list[tuple[nn.Parameter, nn.Parameter, slice]] = []
        for offset, parameter in zip(offsets, parameters, strict=True):
            numel = parameter.numel()
            home = self.flat[offset : offset + numel]
            home.copy_(parameter.detach().reshape(-1))
            parameter.data = home.view(parameter.shape)
            inside = slice(max(begin - offset, 0), min(end - offset, numel))
            if inside.start < inside.stop:
                self.pieces.append((nn.Parameter(home[inside]), parameter, inside))
        mine = [piece for piece, _, _ in self.pieces]
        self.optimizer = optimizer_cls(mine, **options) if mine else None
        self.options = self._group() if mine else {}

    def _group(self) -> dict[str, Any]:
        group = self.optimizer.param_groups[0]
        return {name: value for name, value in group.items() if name != "params"}

    def update(self, group: dict[str, Any]) -> None:
        """Update this rank's part with the hyperparameters of a group."""
        if self.optimizer is None:
            return
        for piece, parameter, inside in self.pieces:
            gradient = parameter.grad
            piece.grad = None if gradient is None else gradient.reshape(-1)[inside]
        inner = self.optimizer.param_groups[0]
        inner.update({name: value for name, value in group.items() if name != "params"})
        self.optimizer.step()
        for piece, _, _ in self.pieces:
            piece.grad = None

    def gather(self) -> dist.Work:
        """Start to gather the parts of all ranks, in place."""
        return all_gather_flat(self.flat, self.part, async_op=True)
