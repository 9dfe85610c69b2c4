"""How far a model's logits, loss and gradients are from float64, and how far they may be.

A tensor is held to PyTorch's own error: that of the eager model in the same numerics, with the same
weights and tokens. The bound of every implementation, eager too, is

    min(FACTOR * max(error of eager, u), what rounding explains)

with u the unit roundoff of the numerics. The first term follows the model: an error grows with
width and depth in a way that no short formula has. The second does not depend on any run, so that
an eager model with a wrong operator is red as well, and with it all that agree with it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from lmperf.attention.accuracy import BLOCK, UNIT_ROUNDOFF, blockwise_error
from lmperf.transformer.model import TransformerLM
from lmperf.transformer.rounding import FACTOR

# Errors of rounding over u sqrt(2 layers), largest seen: 1.9 in logits, 5.1 in gradients.
_LOGITS_ALLOWED, _GRADIENTS_ALLOWED = 4.0, 12.0
# A loss has the error of a float32 sum and of its rounding, however exact the logits are.
_LOSS_FLOOR = 2 * UNIT_ROUNDOFF["float32"]


def errors(got: Mapping[str, Tensor], reference: Mapping[str, Tensor]) -> dict[str, float]:
    """`blockwise_error` of "logits", "loss" and gradients (by name of the parameter).

    got: on the device, of any dtype. reference: the same tensors and more, anywhere; each is moved
    to the device of its counterpart for as long as it is needed.
    """
    return {
        name: blockwise_error(_rows(value), _rows(reference[name].to(value.device)))
        for name, value in got.items()
    }


def _rows(tensor: Tensor) -> Tensor:
    """As [..., rows, columns]: a vector in rows of a block, so that a fault in a few is seen."""
    if tensor.ndim >= 2:
        return tensor
    return tensor.reshape(-1, math.gcd(tensor.numel(), BLOCK))


def own_errors(eager: Mapping[str, float], reference: Mapping[str, Tensor]) -> dict[str, float]:
    """PyTorch's own error of each tensor, from `errors` of the eager model in some numerics.

    A loss is one number, whose error may be nil by chance: it counts as no less than its scatter,
    see `_loss_scatter`.
    """
    return {**eager, "loss": max(eager["loss"], _loss_scatter(eager["logits"], reference))}


def bounds(
    own: Mapping[str, float], dtype: str, model: TransformerLM, reference: Mapping[str, Tensor]
) -> dict[str, float]:
    """The largest error of each tensor, given `own_errors` in the numerics of `dtype`."""
    explained = explained_by_rounding(dtype, model, reference)
    least = UNIT_ROUNDOFF[dtype]
    found = {name: FACTOR * max(error, least) for name, error in own.items() if name != "loss"}
    found["loss"] = FACTOR * own["loss"]
    return {
        name: min(bound, explained.get(name, explained["gradient"]))
        for name, bound in found.items()
    }


def explained_by_rounding(
    dtype: str, model: TransformerLM, reference: Mapping[str, Tensor]
) -> dict[str, float]:
    """The error of "logits", "loss" and "gradient" (each parameter's) that rounding explains.

    Each of a block's two additions to the residual stream brings its own rounding: some six
    operands and results of 0.41 u each (in the root mean square over mantissas), 1.0 u together.
    It also passes on the error e of the stream: a product of two factors that have e each, as in
    SwiGLU, has sqrt(2) e. With 2 L additions of equal size, e^2 grows by 1 part in k at addition k
    for what is passed on, and by 1 / k u^2 for what is new: e is at most u sqrt(2 L). The worst of
    some thousand rows, and attention, whose scores turn a relative error e into one of e |s|, make
    it up to twice that: 1.9 u sqrt(2 L) is the largest seen, and 4 are allowed.

    A gradient has the errors of the activations as well as those of the backward pass, and is a sum
    over tokens that cancels in part: 5.1 u sqrt(2 L) is the largest seen, and 12 are allowed.

    float32 has no wider accumulator: a running sum of K terms of either sign has the error
    0.41 u sqrt(K / 2) = 0.29 u sqrt(K), which adds to u. K is the longest sum of the model: over
    the inputs of a layer in the forward pass, over its outputs or the tokens in the backward pass.
    """
    unit = UNIT_ROUNDOFF[dtype]
    if dtype == "float32":
        widths = [width for parameter in model.parameters() for width in parameter.shape]
        tokens = reference["logits"].shape[:-1].numel()
        unit *= 1 + 0.29 * math.sqrt(max(*widths, tokens))
    walk = unit * math.sqrt(2 * len(model.blocks))
    logits = _LOGITS_ALLOWED * walk
    return {
        "logits": logits,
        "loss": FACTOR * _loss_scatter(logits, reference),
        "gradient": _GRADIENTS_ALLOWED * walk,
    }


def _loss_scatter(logits_error: float, reference: Mapping[str, Tensor]) -> float:
    """The relative error of the loss that comes from an error of the logits.

    The loss is the mean over T tokens of logsumexp - logit of the target. The error of the
    logsumexp is a mean over the vocabulary and vanishes beside that of one logit, which is
    e times the RMS of the logits. The tokens share the rounded weights, so their errors are not
    independent: four tokens count as one. (Measured: at most 1.2 of this.)
    """
    logits = reference["logits"]
    rms = float(torch.linalg.vector_norm(logits)) / math.sqrt(logits.numel())
    tokens = logits.shape[:-1].numel()
    scatter = 2 * logits_error * rms / math.sqrt(tokens) / abs(float(reference["loss"]))
    return max(scatter, _LOSS_FLOOR)
