"""One training step, in the order of allocations that `lmperf.transformer.memory` counts."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from lmperf.transformer.model import cross_entropy

PLAIN_DTYPES = ("float32", "tf32", "float16", "bfloat16")


def autocast(dtype: str, device: torch.device | str) -> AbstractContextManager:
    """The context of a value of the dtype axis: autocast, or nothing for a plain dtype.

    That the matmuls of "tf32" use TF32 is a setting of the process and not of this context. Raises
    ValueError for any other name.
    """
    if dtype == "autocast_bfloat16":
        return torch.autocast(torch.device(device).type, dtype=torch.bfloat16)
    if dtype in PLAIN_DTYPES:
        return nullcontext()
    raise ValueError(f"dtype {dtype!r} is none of {', '.join(PLAIN_DTYPES)}, autocast_bfloat16")


def adamw(model: nn.Module, learning_rate: float = 1e-4) -> torch.optim.AdamW:
    """AdamW (Loshchilov and Hutter 2019), fused: it allocates nothing but its state."""
    return torch.optim.AdamW(model.parameters(), lr=learning_rate, fused=True)


def train_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    tokens: Tensor,
    targets: Tensor,
    dtype: str = "float32",
) -> Tensor:
    """Clear gradients, forward, backward, optimizer step; returns the loss, a detached scalar.

    tokens, targets: [batch, seq_len] int64. The logits are not kept, and the backward runs outside
    autocast, so that neither they nor the cached casts of the weights outlive their use.
    """
    optimizer.zero_grad(set_to_none=True)
    with autocast(dtype, tokens.device):
        loss = cross_entropy(model(tokens), targets)
    loss.backward()
    optimizer.step()
    return loss.detach()
