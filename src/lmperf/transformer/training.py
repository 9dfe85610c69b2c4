"""Random tokens, and a training step, whose order of allocations `transformer.footprint` models."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lmperf.dtypes import dtype_of
from lmperf.transformer.model import cross_entropy
from lmperf.transformer.sizes import VOCAB_SIZE

# Groups of a model's parameters as `torch.optim.Optimizer` takes them; None: one group of all.
ParameterGroups = Iterable[dict[str, Any]] | None


# Called with the name of a part of a step (forward, loss, backward, optimizer) when it has been run
# or, on CUDA, queued.
Mark = Callable[[str], None]


def unmarked(part: str) -> None:
    """A `Mark` that does nothing."""


@dataclass(frozen=True)
class WithLoss:
    """A model that is run with its own loss, for example compiled or without logits in memory.

    Attributes:
        logits: tokens [batch, seq_len] -> logits [batch, seq_len, vocab_size].
        loss: (tokens, targets) -> mean negative log-likelihood, a differentiable float32 scalar,
            which needs no logits of all tokens; None: `criterion` of the logits.
        criterion: (logits, targets) -> that loss.
    """

    logits: Callable[[Tensor], Tensor]
    loss: Callable[[Tensor, Tensor], Tensor] | None = None
    criterion: Callable[[Tensor, Tensor], Tensor] = cross_entropy

    def __call__(self, tokens: Tensor) -> Tensor:
        return self.logits(tokens)


def loss_of(
    model: Callable[[Tensor], Tensor], tokens: Tensor, targets: Tensor, mark: Mark = unmarked
) -> Tensor:
    """The training loss: of a `WithLoss` its own loss, else the cross entropy of the logits.

    A loss without logits of all tokens is part of the forward pass.
    """
    one = model if isinstance(model, WithLoss) else WithLoss(model)
    if one.loss:
        loss = one.loss(tokens, targets)
        mark("forward")
        return loss
    # The logits have no name here, so that the criterion can free them.
    loss = one.criterion(_marked(one.logits(tokens), mark), targets)
    mark("loss")
    return loss


def _marked(logits: Tensor, mark: Mark) -> Tensor:
    mark("forward")
    return logits


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


def adamw(
    model: nn.Module,
    learning_rate: float = 1e-4,
    groups: ParameterGroups = None,
    max_norm: float | None = None,
) -> torch.optim.AdamW:
    """Fused AdamW (Loshchilov and Hutter 2019), capturable in a CUDA graph.

    It allocates only its state, in the dtype of the parameters.

    groups: see `ParameterGroups`. max_norm: each step first scales the gradients down to this
        global norm, in place, if theirs is larger.
    """
    capturable = all(parameter.is_cuda for parameter in model.parameters())
    parameters = groups or list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=learning_rate, fused=True, capturable=capturable)
    if max_norm is not None:
        optimizer.max_norm, device = max_norm, next(model.parameters()).device
        optimizer.gradient_norm = torch.zeros((), device=device)
        optimizer.register_step_pre_hook(_clip)
    return optimizer


def _clip(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    norm = torch.nn.utils.clip_grad_norm_(parameters, optimizer.max_norm)
    optimizer.gradient_norm.copy_(norm)


def decay_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Two groups of parameters: matrices of linear layers decay, norms and embeddings do not."""
    embeddings = {m.weight for m in model.modules() if isinstance(m, nn.Embedding)}
    parameters = list(model.parameters())
    decaying = {p for p in parameters if p.ndim >= 2} - embeddings
    return [
        {"params": [p for p in parameters if p in decaying], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p not in decaying], "weight_decay": 0.0},
    ]


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
    mark: Mark = unmarked,
) -> Tensor:
    """Clear gradients, forward, backward, optimizer step; returns the loss, a detached scalar.

    tokens, targets: as `gradients`.
    """
    loss = gradients(model, optimizer, tokens, targets, dtype, mark)
    optimizer.step()
    mark("optimizer")
    return loss


def gradients(
    model: Callable[[Tensor], Tensor],
    optimizer: torch.optim.Optimizer,
    tokens: Tensor,
    targets: Tensor,
    dtype: str,
    mark: Mark = unmarked,
) -> Tensor:
    """Clear gradients, forward, backward; returns the loss, a detached scalar.

    tokens, targets: [batch, seq_len] int64, or [micro_batches, batch, seq_len]: then the gradients
    of all micro-batches are added up on the parameters, in the dtype `grad_dtype` of each (see
    `sum_in_float32`), and they are those of the mean loss, which is returned. The logits are not
    kept and the backward pass runs outside autocast, so that the logits and autocast's cached
    weight casts are freed early.
    """
    optimizer.zero_grad(set_to_none=True)
    shape = tokens.shape[-2:]
    parts = list(zip(tokens.view(-1, *shape), targets.view(-1, *shape), strict=True))
    losses = []
    for part in parts:
        with autocast(dtype, tokens.device):
            loss = loss_of(model, *part, mark)
        if len(parts) > 1:
            loss = loss / len(parts)
        loss.backward()
        mark("backward")
        losses.append(loss.detach())
    return torch.stack(losses).sum() if len(losses) > 1 else losses[0]


def sum_in_float32(model: nn.Module) -> None:
    """Let float32 gradients build up on parameters of any dtype, as micro-batches need it.

    In bfloat16 a sum would lose the small gradients of later micro-batches. Call it before the
    first backward pass.
    """
    for parameter in model.parameters():
        parameter.grad, parameter.grad_dtype = None, torch.float32
