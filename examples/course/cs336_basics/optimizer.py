"""AdamW, written out."""

from collections.abc import Iterable

import torch
from torch import nn


class AdamW(torch.optim.Optimizer):
    def __init__(
        self,
        params: Iterable[nn.Parameter],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, **{k: v for k, v in group.items() if k != "params"})

    def _update(self, parameter: nn.Parameter, lr, betas, eps, weight_decay) -> None:
        state = self.state[parameter]
        if not state:
            state["t"] = 0
            state["m"], state["v"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        state["t"] += 1
        state["m"].lerp_(parameter.grad, 1 - betas[0])
        state["v"].lerp_(parameter.grad.square(), 1 - betas[1])
        first = state["m"] / (1 - betas[0] ** state["t"])
        second = state["v"] / (1 - betas[1] ** state["t"])
        parameter *= 1 - lr * weight_decay
        parameter -= lr * first / (second.sqrt() + eps)
