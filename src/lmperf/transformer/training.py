"""Random tokens, and a training step, whose order of allocations `transformer.memory` models."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lmperf.dtypes import dtype_of
from lmperf.transformer.model import cross_entropy
from lmperf.transformer.sizes import VOCAB_SIZE


@dataclass(frozen=True)
class WithLoss:
    """A model that is run with its own loss, for example compiled or without logits in memory.

    Attributes:
        logits: tokens [batch, seq_len] -> logits [batch, seq_len, vocab_size].
        loss: (tokens, targets) -> mean negative log-likelihood, a differentiable float32 scalar.
    """

    logits: Callable[[Tensor], Tensor]
    loss: Callable[[Tensor, Tensor], Tensor]

    def __call__(self, tokens: Tensor) -> Tensor:
        return self.logits(tokens)


def loss_of(model: Callable[[Tensor], Tensor], tokens: Tensor, targets: Tensor) -> Tensor:
    """The training loss: of a `WithLoss` its own loss, else the cross entropy of the logits."""
    if isinstance(model, WithLoss):
        return model.loss(tokens, targets)
    return cross_entropy(model(tokens), targets)


def autocast(dtype: str, device: torch.device | str) -> AbstractContextManager:
    """The autocast context of a value of the dtype axis; a null context for a plain dtype.

    The matmul mode of "tf32" is a setting of the process; see `lmperf.precision`.

    Raises:
        ValueError: the dtype is unknown.
    """
    name = dtype_of(dtype).autocast
    if name is None:
        return nullcontext()
    return torch.autocast(torch.device(device).type, dtype=getattr(torch, name))


def adamw(model: nn.Module, learning_rate: float = 1e-4) -> torch.optim.AdamW:
    """Fused AdamW (Loshchilov and Hutter 2019), capturable in a CUDA graph.

    It allocates only its state, in the dtype of the parameters.
    """
    parameters = list(model.parameters())
    capturable = all(parameter.is_cuda for parameter in parameters)
    return torch.optim.AdamW(parameters, lr=learning_rate, fused=True, capturable=capturable)


def draw(seed: int, *out: Tensor, vocab: int = VOCAB_SIZE) -> None:
    """Overwrite tensors of one device by random tokens of a seed."""
    generator = torch.Generator(out[0].device).manual_seed(seed)
    for tokens in out:
        tokens.random_(vocab, generator=generator)


def train_step(
    model: Callable[[Tensor], Tensor],
    optimizer: torch.optim.Optimizer,
    tokens: Tensor,
    targets: Tensor,
    dtype: str = "float32",
) -> Tensor:
    """Clear gradients, forward, backward, optimizer step; returns the loss, a detached scalar.

    tokens, targets: [batch, seq_len] int64. The logits are not kept and the backward pass runs
    outside autocast, so that the logits and autocast's cached weight casts are freed early.
    """
    optimizer.zero_grad(set_to_none=True)
    with autocast(dtype, tokens.device):
        loss = loss_of(model, tokens, targets)
    loss.backward()
    optimizer.step()
    return loss.detach()
