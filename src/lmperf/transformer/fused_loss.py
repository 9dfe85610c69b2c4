"""Fused head and cross entropy, a chunk of tokens at a time: logits [T, V] are never stored.

The forward pass computes the loss of a chunk and, from the same logits, the gradients with respect
to its hidden states and the head's weight; the backward pass only scales them. As without fusion,
logits have the dtype of the matmul and the loss is float32.

Sources: Liger Kernel (Hsu et al. 2024, arXiv 2410.10989), "fused linear cross entropy". Cut Your
Losses (Wijmans et al. 2024, arXiv 2411.09009) stores only the logits of a tile.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

# Tokens of a chunk: enough for a matmul to fill the device.
CHUNK = 2048


def linear_cross_entropy(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Mean negative log-likelihood of targets under the logits hidden @ weight.T, in float32.

    hidden: [batch, seq_len, d]; weight: [vocab_size, d]; targets: [batch, seq_len] int64, without
    ignored positions. Matmuls run in the autocast dtype if autocast is on, else in the dtype of the
    weight. Differentiable once.
    """
    device = hidden.device.type
    low = torch.is_autocast_enabled(device)
    dtype = torch.get_autocast_dtype(device) if low else weight.dtype
    with torch.autocast(device, enabled=False):
        return _LinearCrossEntropy.apply(hidden.flatten(0, -2), weight, targets.flatten(), dtype)


class _LinearCrossEntropy(torch.autograd.Function):
    """`apply(hidden [T, d], weight [V, d], targets [T], matmul dtype)` -> loss, a scalar."""

    @staticmethod
    def forward(ctx, hidden, weight, targets, dtype):
        operand, factor = hidden.to(dtype), weight.to(dtype)
        grad_hidden = torch.empty_like(operand)
        # Chunks accumulate in float32, whatever the matmul dtype.
        grad_weight = torch.zeros_like(weight, dtype=torch.promote_types(dtype, torch.float32))
        loss = grad_weight.new_zeros(())
        for first in range(0, len(operand), CHUNK):
            part = slice(first, first + CHUNK)
            logits = operand[part] @ factor.T
            losses, grad_logits = _loss_and_gradient()(logits, targets[part], 1 / len(operand))
            loss += losses
            torch.mm(grad_logits, factor, out=grad_hidden[part])
            _add_product(grad_weight, grad_logits.T, operand[part])
        ctx.save_for_backward(grad_hidden, grad_weight)
        ctx.dtypes = hidden.dtype, weight.dtype
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_loss):
        grad_hidden, grad_weight = ctx.saved_tensors
        of_hidden, of_weight = ctx.dtypes
        return (
            (grad_hidden * grad_loss).to(of_hidden),
            (grad_weight * grad_loss).to(of_weight),
            None,
            None,
        )


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Add left @ right to a total of the same or a higher precision."""
    if left.is_cuda and left.dtype != total.dtype:
        # The matmul adds to it; a product of its own would be rounded, and be read once more.
        torch.addmm(total, left, right, out_dtype=total.dtype, out=total)
    else:
        total += left @ right


@cache
def _loss_and_gradient():
    return torch.compile(_softmax_loss, dynamic=False, fullgraph=True)


def _softmax_loss(logits: Tensor, targets: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """`share` times the summed loss of a chunk, and its gradient with respect to the logits.

    logits: [tokens, V]; targets: [tokens]. The gradient has the shape and dtype of the logits.
    """
    exact = logits.to(torch.promote_types(logits.dtype, torch.float32))
    log_sums = exact.logsumexp(-1, keepdim=True)
    losses = log_sums - exact.gather(-1, targets[:, None])
    is_target = torch.arange(logits.shape[-1], device=logits.device) == targets[:, None]
    gradient = ((exact - log_sums).exp() - is_target.to(exact.dtype)) * share
    return losses.sum() * share, gradient.to(logits.dtype)
