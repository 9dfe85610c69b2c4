"""Activation checkpointing: a segment of layers keeps its input and is run again in the backward.

Sources: Chen et al. 2016 (arXiv 1604.06174) for segments and for nested checkpoints; Korthikanti et
al. 2022 (arXiv 2205.05198) for the selective form, which keeps the results that take long to
recompute and recomputes those that only take memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from torch import Tensor, nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from lmperf.transformer.implementations import compile_static
from lmperf.transformer.model import TransformerLM

# What a compiled block keeps for its backward pass: `INPUT` its input alone; `ATTENTION` the
# output of the attention as well; `MATMULS` the results of its matmuls and of the attention.
INPUT, ATTENTION, MATMULS = KEPT = ("input", "attention", "matmuls")


class Segments:
    """Runs a model in eager mode with checkpoints of `layers` blocks each; 0: no checkpoints.

    nested: every block of a segment is a checkpoint as well, so that the backward of a segment
    first recomputes the inputs of its blocks, and then each block once more.

    Raises:
        ValueError: checkpoints cannot be nested without segments.
    """

    def __init__(self, model: TransformerLM, layers: int, nested: bool = False):
        if layers < 0 or (nested and not layers):
            raise ValueError(f"segments of {layers} layers, nested: {nested}")
        self._model, self._nested = model, nested
        blocks = list(model.blocks)
        self._each = bool(layers)
        size = layers or len(blocks)
        self._segments = [blocks[first : first + size] for first in range(0, len(blocks), size)]

    def __call__(self, tokens: Tensor) -> Tensor:
        """tokens [batch, seq_len] int64 -> logits [batch, seq_len, vocab_size]."""
        x = self._model.embedding(tokens)
        for segment in self._segments:
            run = partial(_run, segment, self._nested)
            x = _checkpointed(run, x) if self._each else run(x)
        return self._model.head(self._model.norm(x))


def _run(blocks: Sequence[nn.Module], nested: bool, x: Tensor) -> Tensor:
    for block in blocks:
        x = _checkpointed(block, x) if nested else block(x)
    return x


def _checkpointed(run: Callable[[Tensor], Tensor], x: Tensor, **selective: Callable) -> Tensor:
    return checkpoint(run, x, use_reentrant=False, preserve_rng_state=False, **selective)


class SelectiveBlock(nn.Module):
    """A block that keeps some results of its forward pass and recomputes the others.

    Compiled, the recomputation is a part of the backward graph, which leaves out what the backward
    pass does not need, such as the matmul of the down projection.

    kept: one of `KEPT`.
    """

    def __init__(self, block: nn.Module, kept: str):
        super().__init__()
        self.block = block
        self.context = _CONTEXTS[kept]

    def forward(self, x: Tensor) -> Tensor:
        selective = {"context_fn": self.context} if self.context else {}
        return _checkpointed(self.block, x, **selective)


def _policy(kept: Sequence[str], _, operator: object, *args, **kwargs) -> CheckpointPolicy:
    keep = str(operator) in kept
    return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE


def _contexts(*kept: str):
    return partial(create_selective_checkpoint_contexts, partial(_policy, kept))


_ATTENTION = ("lmperf.flash_attention_forward.default",)
_CONTEXTS = {
    INPUT: None,
    ATTENTION: _contexts(*_ATTENTION),
    MATMULS: _contexts(*_ATTENTION, "aten.mm.default"),
}


def selective_blocks(model: TransformerLM, kept: Sequence[str]) -> Callable[[Tensor], Tensor]:
    """Compile the blocks, each with what it keeps; returns tokens -> hidden states.

    kept: for each block one of `KEPT`. Blocks that keep the same share one graph.
    """
    blocks = [_compiled(*pair) for pair in zip(model.blocks, kept, strict=True)]

    def hidden(tokens: Tensor) -> Tensor:
        x = model.embedding(tokens)
        for block in blocks:
            x = block(x)
        return x

    return hidden


def _compiled(block: nn.Module, kept: str) -> Callable[[Tensor], Tensor]:
    selective = SelectiveBlock(block, kept)
    # Without a policy torch 2.11 compiles a checkpoint that keeps the attention: the operator is
    # called in an autograd function, whose operators are not marked to be recomputed.
    selective.context = selective.context or _contexts()
    return compile_static(selective)
