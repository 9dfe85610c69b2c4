"""FLOPs of any model, counted while it runs."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode


def forward_flops(model: nn.Module, tokens: Tensor) -> int:
    """FLOPs of a forward pass on tokens [batch, seq_len], counted by `FlopCounterMode`.

    The function runs the model on the first sequence and multiplies its FLOPs by the batch size.
    Custom kernels, which PyTorch does not know, are not counted.
    """
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        model(tokens[:1])
    return len(tokens) * counter.get_total_flops()
