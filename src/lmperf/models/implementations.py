"""Ways to run a model: each takes a TransformerLM and returns what is called with its tokens."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lmperf.models.transformer import TransformerLM


def eager(model: TransformerLM) -> Callable[[Tensor], Tensor]:
    """As it is written, one kernel an operator."""
    return model


def compiled(model: TransformerLM) -> Callable[[Tensor], Tensor]:
    """The whole model as one graph; compiling takes longer with every layer."""
    return torch.compile(model, dynamic=False, fullgraph=True)


def compiled_blocks(model: TransformerLM) -> Callable[[Tensor], Tensor]:
    """One block compiled, and reused by every layer: the graph does not grow with depth."""
    blocks = [torch.compile(block, dynamic=False, fullgraph=True) for block in model.blocks]

    def forward(tokens: Tensor) -> Tensor:
        x = model.embedding(tokens)
        for block in blocks:
            x = block(x)
        return model.head(model.norm(x))

    return forward
