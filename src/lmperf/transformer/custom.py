"""Custom implementations: a model class, a train step, or a function that runs a given model.

A model class has the constructor of the courses' model (see `build`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from lmperf.benchmark import Unsupported
from lmperf.signatures import MODEL_ALIASES, MODEL_ARGUMENTS, is_step
from lmperf.transformer.model import twin_of
from lmperf.transformer.sizes import ROPE_THETA, VOCAB_SIZE, ModelSize


def is_model(implementation: Any) -> bool:
    """Whether a custom implementation is a model class, not a function that runs a given model."""
    return isinstance(implementation, type) and issubclass(implementation, nn.Module)


def build(model_class: type[nn.Module], size: ModelSize, context_length: int) -> nn.Module:
    """Build a model of the given class and size, on the default device (see `torch.device`).

    Of vocab_size, context_length, d_model, num_layers, num_heads, d_ff and rope_theta, the
    constructor receives the arguments that it takes, also by the names of `MODEL_ALIASES`.
    """
    widths = size.d_model, size.num_layers, size.num_heads, size.d_ff
    values = VOCAB_SIZE, context_length, *widths, ROPE_THETA
    known = dict(zip(MODEL_ARGUMENTS, values, strict=True))
    parameters = inspect.signature(model_class).parameters.values()
    by_name = {p.name: p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return model_class(**known)
    known |= {alias: known[name] for alias, name in MODEL_ALIASES.items()}
    return model_class(**{name: value for name, value in known.items() if name in by_name})


def forward_flops(model: nn.Module, tokens: Tensor) -> int:
    """FLOPs of a forward pass on tokens [batch, seq_len], counted by `FlopCounterMode`.

    The function runs the model on the first sequence and multiplies its FLOPs by the batch size.
    Custom kernels, which PyTorch does not know, are not counted.
    """
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        model(tokens[:1])
    return len(tokens) * counter.get_total_flops()


def runnable(implementation: Any, model: nn.Module) -> Callable[[Tensor], Tensor]:
    """A callable from tokens to logits: the custom model, or what a custom function returns.

    A custom function takes a twin of `model`. The callable shares parameters and buffers with
    `model`, whose modules do not change.

    Raises:
        Unsupported: `implementation` is a train step.
    """
    if is_step(implementation):
        raise Unsupported("a train step is timed in the benchmark end_to_end only")
    return twin_of(model) if is_model(implementation) else implementation(twin_of(model))
