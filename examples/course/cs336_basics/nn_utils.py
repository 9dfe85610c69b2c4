"""Softmax, cross entropy and gradient clipping, written out."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn


def softmax(x: Tensor, dim: int = -1) -> Tensor:
    powers = torch.exp(x - x.amax(dim, keepdim=True))
    return powers / powers.sum(dim, keepdim=True)


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean of logsumexp(logits) - logits[target]; logits: [..., vocab_size]."""
    shifted = logits - logits.amax(-1, keepdim=True)
    chosen = shifted.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    return (shifted.exp().sum(-1).log() - chosen).mean()


def clip_gradient(parameters: Iterable[nn.Parameter], max_norm: float) -> None:
    """Scale all gradients, in place, so that their norm is at most `max_norm`."""
    gradients = [one.grad for one in parameters if one.grad is not None]
    norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
    for gradient in gradients:
        gradient *= torch.clamp(max_norm / (norm + 1e-6), max=1.0)
