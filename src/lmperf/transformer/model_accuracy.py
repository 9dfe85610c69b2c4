"""Errors of logits, loss and gradients against float64, and bounds of these errors.

The bound of a tensor follows from PyTorch's own error: that of the eager model in the same dtype,
with the same weights and tokens. For every implementation, eager included, it is

    min(FACTOR * max(error of eager, u), error that rounding explains) + error of a written-out loss

with u the unit roundoff. The first term follows the model, because errors grow with width and depth
in a way that no short formula describes. The second does not depend on a run, so that an eager
model with a wrong operator fails too. The third (`_of_written_out_loss`) concerns the weights of
the output layer only.

Two measures detect two kinds of fault. The blockwise error finds a fault in one place. A small
fault everywhere, such as a scale that is 1 % off, disappears in bf16 below rounding errors of 5 to
10 % per row. The gain (see `compared`) detects it, because rounding errors have no preferred
direction and cancel along the reference.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from lmperf.attention.accuracy import BLOCK, CHUNK_ELEMENTS, UNIT_ROUNDOFF, blockwise_error
from lmperf.gate import Gate
from lmperf.transformer.rounding import FACTOR

# Limits in units of u sqrt(2 layers). Largest rounding errors measured: 1.9 (logits), 5.1
# (gradients).
_LOGITS_ALLOWED, _GRADIENTS_ALLOWED = 4.0, 12.0
# With float8 operands: the factor of errors of whole tensors, which scatter less than those of the
# worst rows, and the largest error, well below that of zeros.
_COARSE_FACTOR, _COARSE_ALLOWED = 2.0, 0.8
# The loss is a float32 sum: it has this error even with exact logits.
_LOSS_FLOOR = 2 * UNIT_ROUNDOFF["float32"]
# Roundings that a log-softmax leaves at the largest logit: see `_of_written_out_loss`.
_ROUNDINGS = 4


def compared(
    got: Mapping[str, Tensor], reference: Mapping[str, Tensor], coarse: bool = False
) -> tuple[dict[str, float], dict[str, float]]:
    """The errors of all tensors, and the gains of the gradients, by name.

    Names are "logits", "loss" and those of parameters (for their gradients). An error is a
    `blockwise_error`. A gain is the relative error of the length along the reference, in the worst
    block B of rows: |<got_B, ref_B> / <ref_B, ref_B> - 1|.

    got: tensors of any dtype. reference: at least the same names, on any device; each tensor is
    moved to the device of its counterpart while it is compared. coarse: each tensor is one block
    and one row, since with float8 operands the rounding of a block can exceed what it holds.
    """
    errors, gains = {}, {}
    for name, value in got.items():
        rows, exact = _rows(value), _rows(reference[name].to(value.device))
        errors[name] = _whole_error(rows, exact) if coarse else blockwise_error(rows, exact)
        if name not in ("logits", "loss"):
            gains[name] = _gain(rows, exact, len(rows) if coarse else BLOCK)
    return errors, gains


def _whole_error(got: Tensor, reference: Tensor) -> float:
    """||got - reference|| / ||reference||, in float64; inf if `got` is not finite."""
    difference = torch.linalg.vector_norm(got.double() - reference.double())
    error = difference / torch.linalg.vector_norm(reference, dtype=torch.float64)
    return float(error.nan_to_num(nan=math.inf, posinf=math.inf))


def _rows(tensor: Tensor) -> Tensor:
    """Reshape a tensor to [..., rows, columns].

    A vector is split into rows of up to BLOCK elements, so that a fault in a few of them is seen.
    """
    if tensor.ndim >= 2:
        return tensor
    return tensor.reshape(-1, math.gcd(tensor.numel(), BLOCK))


@torch.no_grad()
def _gain(got: Tensor, reference: Tensor, block: int) -> float:
    """The gain of a gradient [rows, columns], as `compared` defines it; block: its rows."""
    chunk = max(block, CHUNK_ELEMENTS // got.shape[-1] // block * block)
    worst = 0.0
    for part, exact in zip(got.split(chunk), reference.double().split(chunk), strict=True):
        along, squares = (torch.linalg.vecdot(value.double(), exact) for value in (part, exact))
        blocks = [
            torch.nn.functional.pad(rows, (0, -len(rows) % block)).view(-1, block).sum(-1)
            for rows in (along, squares)
        ]
        # A token that does not occur has no gradient in the embedding: 0 / 0.
        off = torch.where(blocks[1] == 0, blocks[0], blocks[0] / blocks[1] - 1).abs()
        worst = max(worst, float(off.nan_to_num(nan=math.inf, posinf=math.inf).max()))
    return worst


def pytorch_errors(
    got: Mapping[str, Tensor], reference: Mapping[str, Tensor], coarse: bool = False
) -> dict[str, float]:
    """Each tensor's error in eager PyTorch and, as "gain", the largest gain of its gradients.

    got: results of the eager model. The loss is a single number whose error may be zero by chance,
    so its error is at least its scatter (`_loss_scatter`). Gains are not per tensor, because some
    gradients have only a few blocks. coarse: as for `compared`.
    """
    errors, gains = compared(got, reference, coarse)
    errors["loss"] = max(errors["loss"], _loss_scatter(errors["logits"], reference))
    return {**errors, "gain": max(gains.values())}


def bounds(
    pytorch: Mapping[str, float],
    dtype: str,
    model: nn.Module,
    layers: int,
    reference: Mapping[str, Tensor],
) -> dict[str, float]:
    """The largest error that each tensor may have, given `pytorch_errors` in the same dtype."""
    explained = explained_by_rounding(dtype, model, layers, reference)
    # Rounding changes loss and gain by less than one unit.
    least = dict.fromkeys(pytorch, UNIT_ROUNDOFF[dtype]) | {"loss": 0.0, "gain": 0.0}
    allowed = {name: FACTOR * max(error, least[name]) for name, error in pytorch.items()}
    of_loss = _of_written_out_loss(reference)
    return {
        name: min(bound, explained.get(name, explained["gradient"])) + of_loss.get(name, 0.0)
        for name, bound in allowed.items()
    }


@torch.no_grad()
def _of_written_out_loss(reference: Mapping[str, Tensor]) -> dict[str, float]:
    """What a log-softmax written out in float32 adds to errors: of the output layer, and "gain".

    log_softmax(x) = y - log(sum(exp(y))) with y = x - max(x). The gradient of the maximum is minus
    the sum of the gradients of y over the vocabulary, (p - [target]) / T for T tokens: zero but for
    the rounding of sum(exp(y)), of its reciprocal, of 1 / T and of the sum itself, each at most
    u / T. Autograd adds it to the gradient of the largest logit, which is often not much larger
    than 1 / (V T) for a vocabulary of V. (torch's cross entropy, and one by logsumexp, do not.)

    So row j of the output layer's gradient, a sum over tokens t of gradients times hidden states
    h_t, has the error 4 u |h| sqrt(n_j) / T, where n_j tokens have their largest logit at j. The
    row of a target has the norm |h| / T or more. Errors are relative to a row and its block, as in
    `blockwise_error`: only blocks without a target show it, with 1e-5 to 7e-5 for the smallest
    model. Of this error a share of sqrt(1/T + 1/d) lies along the gradient of a width d: h_t is one
    of T states in that sum, and random to the others. FACTOR times as much is allowed, as always.
    """
    errors: dict[str, float] = {}
    largest = reference["logits"].argmax(-1).flatten()
    vocab = reference["logits"].shape[-1]
    for name, gradient in reference.items():
        if name in ("logits", "loss") or gradient.ndim != 2 or len(gradient) != vocab:
            continue
        squares = gradient.double().square().sum(-1)
        if not bool(squares.all()):  # an embedding, some of whose tokens do not occur
            continue
        counts = torch.bincount(largest, minlength=vocab).to(squares)
        error = FACTOR * _ROUNDINGS * UNIT_ROUNDOFF["float32"] * squares.max().sqrt()
        blocks = torch.arange(vocab, device=squares.device) // BLOCK
        of_block, tokens = (
            torch.zeros_like(squares).index_add(0, blocks, values) for values in (squares, counts)
        )
        scale = torch.maximum(squares, (of_block / BLOCK)[blocks])
        errors[name] = float((error * (counts / scale).sqrt()).max())
        along = math.sqrt(1 / len(largest) + 1 / gradient.shape[-1])
        gain = along * float((error * (tokens / of_block).nan_to_num().sqrt()).max())
        errors["gain"] = max(gain, errors.get("gain", 0.0))
    return errors


def coarse_bounds(pytorch: Mapping[str, float]) -> dict[str, float]:
    """As `bounds`, for matmuls with float8 operands, whose rounding explains errors of up to 1.

    So the second term is a constant: a gradient of zeros, with an error of 1, fails. pytorch: of
    whole tensors; see `compared`. Gains and the loss are of a few numbers, and scatter more.
    """
    factors = {"gain": FACTOR, "loss": FACTOR}
    return {
        name: min(factors.get(name, _COARSE_FACTOR) * error, _COARSE_ALLOWED)
        for name, error in pytorch.items()
    }


def explained_by_rounding(
    dtype: str, model: nn.Module, layers: int, reference: Mapping[str, Tensor]
) -> dict[str, float]:
    """The errors of "logits", "loss" and "gradient" (of any parameter) that rounding can cause.

    Logits. Each of a block's two additions to the residual stream adds rounding errors: about six
    operands and results with 0.41 u each (root mean square over mantissas), 1.0 u together. It also
    propagates the error e of the stream: a product of two factors with error e, as in SwiGLU, has
    sqrt(2) e. With 2 L additions of equal size, addition k increases e^2 by one part in k
    (propagated) and by u^2 / k (new), so e is at most u sqrt(2 L). Two effects together at most
    double it: the error is the worst of some thousand rows, and attention turns a relative error e
    of the scores s into e |s|. The largest error seen is 1.9 u sqrt(2 L), the limit is 4.

    Gradients. They have the errors of the activations and of the backward pass, and are sums over
    tokens that partly cancel: the largest error seen is 5.1 u sqrt(2 L), the limit is 12.

    float32 has no wider accumulator: a running sum of K terms of random sign has the error
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
    """The relative error of the loss that an error e of the logits causes.

    The loss is the mean over T tokens of logsumexp - logit of the target. The error of the
    logsumexp is a mean over the vocabulary and negligible compared with that of one logit, which is
    e times the RMS of the logits. The tokens share the rounded weights, so their errors are
    correlated: four tokens count as one independent sample. Measured losses differ by at most 1.2
    times this.
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
    pytorch: Mapping[str, float],
    coarse: bool = False,
) -> Gate:
    """The gate (verdict on correctness) of logits, loss, worst gradient and worst gain.

    got, reference, coarse: as for `compared`. allowed: bounds; pytorch: PyTorch's errors; both by
    the names of `pytorch_errors`.
    """
    gradients, gains = compared(got, reference, coarse)
    keys = {name: name for name in ("logits", "loss") if name in gradients}
    errors = {name: gradients.pop(name) for name in keys}
    where = {}
    if gradients:
        worst = Gate(gradients, allowed).worst
        where = {"gradient": worst, "gain": max(gains, key=gains.__getitem__)}
        keys |= {"gradient": worst, "gain": "gain"}
        errors |= {"gradient": gradients[worst], "gain": gains[where["gain"]]}
    limits, eager = (
        {name: errors_of[key] for name, key in keys.items()} for errors_of in (allowed, pytorch)
    )
    return Gate(errors, limits, lambda: eager, where)
