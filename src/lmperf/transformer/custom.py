"""What a user has of their own: a model class with the constructor of the common course model, a
train step, or a way to run the project's model."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from lmperf.benchmark import Unsupported
from lmperf.transformer.model import twin_of
from lmperf.transformer.sizes import ROPE_THETA, VOCAB_SIZE, ModelSize


def is_model(given: Any) -> bool:
    """Whether it is a model class of the user's own, and not a way to run the project's model."""
    return isinstance(given, type) and issubclass(given, nn.Module)


def is_step(given: Any) -> bool:
    """Whether it is a train step: a function of (model, optimizer, tokens, targets)."""
    try:
        parameters = inspect.signature(given).parameters.values()
    except (TypeError, ValueError):  # some functions in C say nothing
        return False
    if isinstance(given, type):
        return False
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    needed = [p for p in parameters if p.default is p.empty]
    return len([p for p in needed if p.kind in kinds]) == 4


def built(given: type[nn.Module], size: ModelSize, context_length: int) -> nn.Module:
    """The model of a size; where tensors go is for the caller to say, by `torch.device`.

    Raises:
        Unsupported: the constructor needs more than the widths that a size has.
    """
    known = {
        "vocab_size": VOCAB_SIZE,
        "context_length": context_length,
        "d_model": size.d_model,
        "num_layers": size.num_layers,
        "num_heads": size.num_heads,
        "d_ff": size.d_ff,
        "rope_theta": ROPE_THETA,
    }
    parameters = inspect.signature(given).parameters.values()
    by_name = {p.name: p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    needed = [name for name, p in by_name.items() if p.default is p.empty and name not in known]
    if needed:
        raise Unsupported(
            f"the constructor of {given.__name__} needs {', '.join(needed)}; what a size has is"
            f" {', '.join(known)}"
        )
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return given(**known)
    return given(**{name: value for name, value in known.items() if name in by_name})


def forward_flops(model: nn.Module, tokens: Tensor) -> int:
    """FLOPs of the matmuls of a forward pass on tokens [batch, seq_len], as PyTorch counts them.

    One sequence is sent through. What runs in kernels that PyTorch does not know is not counted.
    """
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        model(tokens[:1])
    return len(tokens) * counter.get_total_flops()


def called(given: Any, model: nn.Module) -> Callable[[Tensor], Tensor]:
    """What is called with tokens: a user's model as it is, else what a way to run gives.

    Parameters and buffers are those of `model`; its modules stay as they are.

    Raises:
        Unsupported: it is a train step, which is called otherwise.
    """
    if is_step(given):
        raise Unsupported("a train step is timed end to end, and nowhere else")
    return twin_of(model) if is_model(given) else given(twin_of(model))
