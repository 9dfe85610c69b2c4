"""What a model computes, for the gate: eagerly, in float64 and in the numerics that are timed."""

from __future__ import annotations

import copy
from collections.abc import Collection
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lmperf.precision import precision
from lmperf.transformer.model import TransformerLM, cross_entropy
from lmperf.transformer.training import autocast

# Of the memory that is free, how much the gradients of a reference may keep.
_SHARE_KEPT = 1 / 4


def checkpointed(model: nn.Module, tokens: Tensor) -> Tensor:
    """The model's logits; its backward computes each block anew instead of saving activations.

    The same operations on the same values as without, in less memory and a third more time: it
    fits wherever what is timed fits. A model of the user's own is called as it is.
    """
    if not isinstance(model, TransformerLM):
        return model(tokens)
    x = model.embedding(tokens)
    for block in model.blocks:
        x = checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)
    return model.head(model.norm(x))


def float64_reference(model: nn.Module, tokens: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """Logits, loss and the gradient of every parameter, computed in float64.

    Logits and gradients are stored in float32: that rounds each element by at most 2^-24 of itself,
    a 30th or less of any error of float32 that is measured against it, and adds in quadrature. The
    loss, one number, stays in float64. They stay on the device where that has much room: their way
    to the host and back, for each comparison, takes longer than all else. Elsewhere a gradient
    leaves the device as soon as it is complete. The peak is a float64 copy of the weights, what
    stays, and the activations of one block.
    """
    size = 4 * sum(parameter.numel() for parameter in model.parameters())
    place = tokens.device if _has_room(tokens.device, size) else torch.device("cpu")
    twin = copy.deepcopy(model).double()
    found: dict[str, Tensor] = {}

    def take(name: str, parameter: nn.Parameter) -> None:
        found[name] = parameter.grad.float().to(place)
        parameter.grad = None

    for name, parameter in twin.named_parameters():
        parameter.register_post_accumulate_grad_hook(partial(take, name))
    logits = checkpointed(twin, tokens)
    loss = cross_entropy(logits, targets)
    loss.backward()
    return {"logits": logits.detach().float().to(place), "loss": loss.detach().to(place), **found}


def _has_room(device: torch.device, size: int) -> bool:
    """Whether so many bytes are a small part of what a CUDA device has left."""
    if device.type != "cuda":
        return device.type == "cpu"
    free, _ = torch.cuda.mem_get_info(device)
    reserve = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return size <= _SHARE_KEPT * (free + reserve)


def eager(
    model: nn.Module, tokens: Tensor, targets: Tensor, dtype: str, wanted: Collection[str]
) -> dict[str, Tensor]:
    """Logits, loss and the wanted parameters' gradients in the numerics of a dtype axis value.

    `.grad` of the parameters is left as it is.
    """
    with precision(dtype):
        with autocast(dtype, tokens.device):
            logits = checkpointed(model, tokens)
            loss = cross_entropy(logits, targets)
        parameters = [model.get_parameter(name) for name in wanted]
        gradients = torch.autograd.grad(loss, parameters) if parameters else ()
    named = dict(zip(wanted, gradients, strict=True))
    return {"logits": logits.detach(), "loss": loss.detach(), **named}
