"""How far a model's logits, loss and gradients are from float64, and how far they may be.

A tensor is held to PyTorch's own error: that of the eager model in the same numerics, with the same
weights and tokens. The bound of every implementation, eager too, is

    min(FACTOR * max(error of eager, u), what rounding explains)

with u the unit roundoff of the numerics. The first term follows the model: an error grows with
width and depth in a way that no short formula has. The second does not depend on any run, so that
an eager model with a wrong operator is red as well, and with it all that agree with it.

The worst row of a gradient finds what is wrong in one place. What is a little wrong everywhere, a
scale that is 1 % off say, hides in bf16 below rounding errors of 5 to 10 % a row. But rounding has
no direction, so that along the reference its errors cancel: the gains see one part in a hundred.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from lmperf.attention.accuracy import BLOCK, CHUNK_ELEMENTS, UNIT_ROUNDOFF, blockwise_error
from lmperf.gate import Gate
from lmperf.transformer.rounding import FACTOR

# Errors of rounding over u sqrt(2 layers), largest seen: 1.9 in logits, 5.1 in gradients.
_LOGITS_ALLOWED, _GRADIENTS_ALLOWED = 4.0, 12.0
# A loss has the error of a float32 sum and of its rounding, however exact the logits are.
_LOSS_FLOOR = 2 * UNIT_ROUNDOFF["float32"]


def compared(
    got: Mapping[str, Tensor], reference: Mapping[str, Tensor]
) -> tuple[dict[str, float], dict[str, float]]:
    """Of "logits", "loss" and gradients (by name of the parameter) the errors, and the gains.

    The error is `blockwise_error`. The gain, of gradients alone, is by how much they are too long
    along the reference, in the worst block B of rows: |<got_B, ref_B> / <ref_B, ref_B> - 1|.

    got: on the device, of any dtype. reference: the same tensors and more, anywhere; each is moved
    to the device of its counterpart for as long as it is needed.
    """
    errors, gains = {}, {}
    for name, value in got.items():
        rows, exact = _rows(value), _rows(reference[name].to(value.device))
        errors[name] = blockwise_error(rows, exact)
        if name not in ("logits", "loss"):
            gains[name] = _gain(rows, exact)
    return errors, gains


def _rows(tensor: Tensor) -> Tensor:
    """As [..., rows, columns]: a vector in rows of a block, so that a fault in a few is seen."""
    if tensor.ndim >= 2:
        return tensor
    return tensor.reshape(-1, math.gcd(tensor.numel(), BLOCK))


@torch.no_grad()
def _gain(got: Tensor, reference: Tensor) -> float:
    chunk = max(BLOCK, CHUNK_ELEMENTS // got.shape[-1] // BLOCK * BLOCK)
    worst = 0.0
    for part, exact in zip(got.split(chunk), reference.double().split(chunk), strict=True):
        along, squares = (torch.linalg.vecdot(value.double(), exact) for value in (part, exact))
        blocks = [
            torch.nn.functional.pad(rows, (0, -len(rows) % BLOCK)).view(-1, BLOCK).sum(-1)
            for rows in (along, squares)
        ]
        # Tokens that do not occur have no gradient in an embedding: 0 / 0.
        off = torch.where(blocks[1] == 0, blocks[0], blocks[0] / blocks[1] - 1).abs()
        worst = max(worst, float(off.nan_to_num(nan=math.inf, posinf=math.inf).max()))
    return worst


def own_errors(got: Mapping[str, Tensor], reference: Mapping[str, Tensor]) -> dict[str, float]:
    """PyTorch's own error of each tensor, where `got` is of the eager model in some numerics.

    A loss is one number, whose error may be nil by chance: it counts as no less than its scatter,
    see `_loss_scatter`. "gain" is the worst of all gradients: some have a few blocks only.
    """
    own, along = compared(got, reference)
    own["loss"] = max(own["loss"], _loss_scatter(own["logits"], reference))
    return {**own, "gain": max(along.values())}


def bounds(
    own: Mapping[str, float],
    dtype: str,
    model: nn.Module,
    layers: int,
    reference: Mapping[str, Tensor],
) -> dict[str, float]:
    """The largest error of each tensor, given `own_errors` in the numerics of `dtype`."""
    explained = explained_by_rounding(dtype, model, layers, reference)
    # Of loss and gain rounding leaves less than one unit.
    least = dict.fromkeys(own, UNIT_ROUNDOFF[dtype]) | {"loss": 0.0, "gain": 0.0}
    found = {name: FACTOR * max(error, least[name]) for name, error in own.items()}
    return {
        name: min(bound, explained.get(name, explained["gradient"]))
        for name, bound in found.items()
    }


def explained_by_rounding(
    dtype: str, model: nn.Module, layers: int, reference: Mapping[str, Tensor]
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
    walk = unit * math.sqrt(2 * layers)
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


def gate_of(
    got: Mapping[str, Tensor],
    reference: Mapping[str, Tensor],
    allowed: Mapping[str, float],
    own: Mapping[str, float],
) -> Gate:
    """A gate of logits, loss, and of all gradients the worst error and the worst gain.

    got, reference: as for `compared`. allowed, own: of every tensor, by the names of `own_errors`.
    """
    found, along = compared(got, reference)
    named = {name: name for name in ("logits", "loss") if name in found}
    shown = {name: found.pop(name) for name in named}
    where = {}
    if found:
        where = {"gradient": Gate(found, allowed).worst, "gain": max(along, key=along.__getitem__)}
        named |= {"gradient": where["gradient"], "gain": "gain"}
        shown |= {"gradient": found[where["gradient"]], "gain": along[where["gain"]]}
    limits, pytorch = (
        {column: values[name] for column, name in named.items()} for values in (allowed, own)
    )
    return Gate(shown, limits, lambda: pytorch, where)
