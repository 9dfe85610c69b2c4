"""Undoes what a bad implementation did to the model that the cases of a group share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from lmperf.measuring.live_tensors import local_part, state_of


class Weights:
    """Copies of models' weights on the host.

    The learning rate of every step is zero, so weights must stay. But one step with a gradient that
    is not finite leaves weights and moments that are not finite to all cases after it.
    """

    def __init__(self) -> None:
        # Address -> a tensor and its copy: several modules may share it.
        self._copies: dict[int, tuple[Tensor, Tensor]] = {}
        self._norms = torch.empty(0)
        self._modules: dict[int, torch.nn.Module] = {}
        self._optimizers: dict[int, torch.optim.Optimizer] = {}

    def keep(self, resident: Sequence[Any]) -> None:
        """Copy the weights of those modules of a workload that no earlier workload had."""
        before = len(self._copies)
        for subject in resident:
            if isinstance(subject, torch.optim.Optimizer):
                self._optimizers[id(subject)] = subject
            if isinstance(subject, torch.nn.Module) and id(subject) not in self._modules:
                self._modules[id(subject)] = subject
                for tensor in _plain((*subject.parameters(), *subject.buffers())):
                    if tensor.data_ptr() not in self._copies:
                        self._copies[tensor.data_ptr()] = tensor, tensor.to("cpu", copy=True)
        if len(self._copies) > before:
            self._norms = self._norms_now()

    def _norms_now(self) -> Tensor:
        return _norms([tensor for tensor, _ in self._copies.values()])

    @torch.no_grad()
    def restore(self) -> bool:
        """Put the weights back if one has changed, clear moments and gradients if not finite.

        Returns whether there was anything to undo.
        """
        changed = not torch.equal(self._norms_now(), self._norms)
        if changed:
            for tensor, copy in self._copies.values():
                tensor.copy_(copy)
        moments = [
            tensor for optimizer in self._optimizers.values() for tensor in state_of(optimizer)
        ]
        parameters = (p for module in self._modules.values() for p in module.parameters())
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        others = _plain((*moments, *gradients))
        for tensor, is_finite in zip(others, _norms(others).isfinite().tolist(), strict=True):
            if not is_finite:
                tensor.zero_()  # in place, for the sake of CUDA graphs
                changed = True
        return changed


def _plain(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Those with values that training changes; of one sharded over ranks, this rank's part."""
    local = (local_part(tensor).detach() for tensor in tensors)
    return [t for t in local if t.is_floating_point() and t.ndim and t.itemsize > 1 and t.numel()]


def _norms(tensors: Sequence[Tensor]) -> Tensor:
    """The norm of each tensor: not that of its copy if a value has changed, or is NaN."""
    if not tensors:
        return torch.empty(0)
    return torch.stack([norm.double() for norm in torch._foreach_norm(tensors)]).cpu()
