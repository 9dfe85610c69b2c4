"""Reference results for the gate (correctness check): float64, and eager in the timed dtype."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lmperf.benchmark import WrongResult
from lmperf.precision import precision
from lmperf.transformer.copied_linear import operand_of
from lmperf.transformer.model import TransformerLM, cross_entropy
from lmperf.transformer.training import autocast

# The share of the device's memory that results of the reference may take.
_SHARE_KEPT = 1 / 16


def checkpointed(model: nn.Module, tokens: Tensor) -> Tensor:
    """The model's logits, with activation checkpointing of each block.

    It executes the same operations on the same values, in less memory and a third more time: the
    reference fits wherever the timed step fits. A custom model is called without checkpointing.

    Raises:
        WrongResult: the model returns something else than a tensor.
    """
    if not isinstance(model, TransformerLM):
        logits = model(tokens)
        if not isinstance(logits, Tensor):
            kind = type(logits).__name__
            raise WrongResult(f"the model returns a {kind}; it must return the logits alone")
        return logits
    x = model.embedding(tokens)
    for block in model.blocks:
        x = checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)
    return model.head(model.norm(x))


def float64_reference(model: nn.Module, tokens: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """Logits, loss and the gradient of every parameter, computed in float64.

    Logits and gradients are stored in float32: the relative rounding error of 2^-24 is at most 1/30
    of any float32 error measured against them, and adds in quadrature. The loss stays in float64.
    The results stay on the device if they are small beside its memory, because copying them for
    each comparison takes longer than everything else; otherwise each gradient moves to the host as
    soon as it is complete: the timed step may need the device's whole memory. Peak memory: a
    float64 copy of the weights, the results that stay on the device, and the activations of one
    block.

    Raises:
        WrongResult: the loss has no gradient for some parameter.
    """
    size = 4 * sum(parameter.numel() for parameter in model.parameters())
    place = tokens.device if _has_room(tokens.device, size) else torch.device("cpu")
    twin = copy.deepcopy(model).double()
    gradients: dict[str, Tensor] = {}

    def take(name: str, parameter: nn.Parameter) -> None:
        gradients[name] = parameter.grad.float().to(place)
        parameter.grad = None

    for name, parameter in twin.named_parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(partial(take, name))
    logits = checkpointed(twin, tokens)
    loss = cross_entropy(logits, targets)
    loss.backward()
    if fault := unused_in(name for name, _ in twin.named_parameters() if name not in gradients):
        raise WrongResult(fault)
    return {
        "logits": logits.detach().float().to(place),
        "loss": loss.detach().to(place),
        **gradients,
    }


def unused_in(names: Iterable[str]) -> str:
    """Return that the loss does not depend on parameters of these names; "" if there are none."""
    names = [*names]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    shown = ", ".join(names[:3]) + more
    return f"the loss does not depend on {shown}; leave these parameters out" if names else ""


def _has_room(device: torch.device, size: int) -> bool:
    """Whether `size` bytes are at most the share of memory that the reference may take."""
    if device.type != "cuda":
        return device.type == "cpu"
    return size <= _SHARE_KEPT * torch.cuda.get_device_properties(device).total_memory


def eager(
    model: nn.Module, tokens: Tensor, targets: Tensor, dtype: str, wanted: Collection[str]
) -> dict[str, Tensor]:
    """Logits, loss and the gradients of the parameters in `wanted`, computed in eager mode.

    dtype: a value of the dtype axis. wanted: names of parameters; their `.grad` is not changed.
    """
    with precision(dtype):
        with autocast(dtype, tokens.device):
            logits = checkpointed(model, tokens)
            loss = cross_entropy(logits, targets)
            operands = [operand_of(model, name) for name in wanted]
        gradients = torch.autograd.grad(loss, operands) if operands else ()
    named = dict(zip(wanted, gradients, strict=True))
    return {"logits": logits.detach(), "loss": loss.detach(), **named}
