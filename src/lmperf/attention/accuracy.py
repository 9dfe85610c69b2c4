"""Errors of attention against a float64 reference, and the largest errors that rounding can cause.

A norm over a whole tensor hides a local fault: one key tile dropped for one query tile at n = 65536
changes one row in a thousand. So the error is taken per row, relative to the rows around it, and
the worst row counts.
"""

import math

import torch
from torch import Tensor

from lmperf.attention.rounding import (
    BLOCK,
    ROUNDOFFS_ALLOWED,
    ROUNDOFFS_OF_ROUNDED_SCORES,
    UNIT_ROUNDOFF,
)
from lmperf.benchmark import STRICT

CHUNK_ELEMENTS = 1 << 24
TOLERANCES = (STRICT, "rounded_scores")


@torch.no_grad()
def blockwise_error(
    got: Tensor, reference: Tensor, block: int = BLOCK, floor: float = 0.0
) -> float:
    """Largest row error, relative to the norm of the reference in the row's block of tokens.

    max over blocks B and rows i in B of
        ||got_i - ref_i|| / max(||ref_i||, sqrt(mean_B ||ref_j||^2), floor)

    A row with a small norm is measured against the RMS of its block; a row with a large one (one
    dominant key, the first rows of a causal mask) against itself. An incomplete last block is
    merged with the one before it: a block of one row would be measured against that row alone, and
    if dP and delta of its only query nearly cancel, no digit of its dK is left in float32. A
    sequence shorter than a block is one block.

    got, reference: [..., n, d] of any dtype on one device; tokens are the second to last dimension,
    and blocks never span two sequences. Pass a logsumexp [..., n] as [..., n, 1].
    floor: the smallest scale that an error is divided by, for results that are zero by definition.
    Returns inf if any element of `got` is not finite. Works in float64 on chunks of 2^24 elements.
    Raises ValueError if the shapes differ or the reference is not finite.
    """
    if got.shape != reference.shape or got.ndim < 2:
        raise ValueError(
            f"blockwise_error needs two tensors of the same shape [..., n, d], "
            f"got {tuple(got.shape)} and {tuple(reference.shape)}"
        )
    n, d = got.shape[-2:]
    got, reference = got.reshape(-1, n, d), reference.reshape(-1, n, d)
    rows = max(block, CHUNK_ELEMENTS // d // block * block)
    starts = range(0, max(n // block, 1) * block, rows)
    worst = 0.0
    for sequence in range(got.shape[0]):
        for start in starts:
            part = slice(start, n if start == starts[-1] else start + rows)
            error = _worst_row(got[sequence, part], reference[sequence, part], block, floor)
            if not math.isfinite(error):
                return math.inf
            worst = max(worst, error)
    return worst


def _worst_row(got: Tensor, reference: Tensor, block: int, floor: float) -> float:
    """`blockwise_error` of one chunk [rows, d] that starts at a block boundary."""
    reference = reference.double()
    if not bool(torch.isfinite(reference).all()):
        raise ValueError("the reference contains values that are not finite")
    difference = torch.linalg.vector_norm(got.double() - reference, dim=-1)
    norms = torch.linalg.vector_norm(reference, dim=-1)
    count = max(len(norms) // block, 1)
    blocks = (torch.arange(len(norms), device=norms.device) // block).clamp_max(count - 1)
    sums = torch.zeros(count, dtype=norms.dtype, device=norms.device)
    counts = torch.bincount(blocks).to(norms.dtype)
    scale = (sums.index_add(0, blocks, norms.square()) / counts).sqrt().clamp_min(floor)[blocks]
    ratio = torch.where(difference == 0, 0.0, difference / torch.maximum(scale, norms))
    return float(ratio.nan_to_num(nan=math.inf, posinf=math.inf).max())


def attention_errors(got: dict[str, Tensor], reference: dict[str, Tensor]) -> dict[str, float]:
    """`blockwise_error` of every tensor in `got`, by name.

    got, reference: "out", "dq", "dk", "dv" [..., n, d] and "lse" [..., n]. `got` may lack some:
    not every implementation returns the logsumexp.

    An error of the logsumexp is a relative error of every probability in its row, so it is divided
    by max(RMS, 1). With a single key the softmax is constant and dq and dk are zero: only the
    rounding of do . v remains, so they are divided by the size of do . v, sqrt(d) for unit inputs.
    """
    errors = {}
    for name, value in got.items():
        expected = reference[name]
        if name == "lse":
            errors[name] = blockwise_error(value[..., None], expected[..., None], floor=1.0)
            continue
        one_key = name in ("dq", "dk") and reference["dk"].shape[-2] == 1
        floor = math.sqrt(value.shape[-1]) if one_key else 0.0
        errors[name] = blockwise_error(value, expected, floor=floor)
    return errors


def large_score_errors(got: dict[str, Tensor], reference: dict[str, Tensor]) -> dict[str, float]:
    """The errors of `attention_errors` on the inputs with large scores (`FreshInputs.freshen`).

    Many rows of the gradients are nearly zero there, so a row is measured against the typical row
    at least. The first channel of dq and dk is left out: it holds sums that cancel.
    """
    errors = {}
    for name, value in got.items():
        expected = reference[name]
        if name in ("dq", "dk"):
            value, expected = value[..., 1:], expected[..., 1:]
        floor = float(expected.double().square().sum(dim=-1).mean().sqrt())
        errors[name] = blockwise_error(value, expected, floor=floor)
    return errors


def error_bound(
    tensor: str, dtype: str, tolerance: str = STRICT, largest_score: float = 0.0
) -> float:
    """The largest `blockwise_error` that rounding alone causes for standard normal inputs.

    tensor: out, lse, dq, dk or dv. dtype: a value of the dtype axis. tolerance: what the
    implementation declares. `strict` keeps the scores in float32, as every flash attention does;
    `rounded_scores` stores them in `dtype` before the softmax, as plain PyTorch does.

    out_i = sum_j p_ij v_j. Rounding each p_ij to the storage dtype (unit roundoff u; RMS error
    0.41 u over mantissas) changes out_i by 0.41 u sqrt(sum_j p_ij^2) |v|, and |out_i| is itself
    sqrt(sum_j p_ij^2) |v|: the relative error is 0.41 u at every length. Rounding the result adds
    as much, so a typical row has 0.6 u and the worst of many rows 1 u. dq, dk and dv also contain
    the rounding of ds and of o in delta, and their terms partly cancel: 2.5 u. In the first rows of
    a causal mask dq is nearly zero and the rounding of o remains. In float64 but for the rounding
    of o and dq, the worst of 512 heads has 4.3 u in the median of 400 results, and 6.7 u at most.

    bfloat16 is allowed 6 u = 2.3 %; fused kernels on an H200 reach 1.9 u, with a causal mask 4.4 u.
    That is too little for a causal mask: of 400 right results of 512 heads 5 have more. A 64-key
    tile dropped at n = 65536 moves a row by sqrt(64 / 65536) = 3.1 % of its norm, and the worst of
    64 rows by at least 4.4 %.
    float16 is allowed 24 u = 1.2 %: the backward pass holds p ~ 1/n, which is subnormal there at
    n = 65536 and loses another 2 to 3 bits. tf32 is allowed 24 u: q and k lose bits before the
    softmax, where an error of u |s| in a score s is one of u |s| in p. float32 is allowed
    256 u = 1.5e-5: its running sums over n / 64 tiles add sqrt(n / 64) u / 3 to the 20 u that plain
    PyTorch has at n = 200. That is far below the error of TF32, so undeclared TF32 fails.
    With rounded_scores, bfloat16 has the error u |s| in p as well, where |s| reaches 8: 24 u.

    lse (absolute error, relative above 1) is accumulated in float32 for every storage dtype: 2e-5,
    below the 8.4e-5 of the same dropped tile. With tf32 short rows keep the error of a score, up to
    4 standard deviations of 0.6 u on either side: 8 u.

    largest_score: the largest |s| of inputs with large scores; 0 for standard normal inputs. An
    error of a score is a relative error of its probability. A score is a float32 sum of d <= 256
    products, each of which rounds: sqrt(256) = 16 float32 roundoffs of |s| are added. With
    rounded_scores the product and the scaled score are rounded to the storage dtype: 2 u |s| more.

    Raises ValueError for any other tensor, dtype or tolerance.
    """
    if tensor not in ("out", "lse", "dq", "dk", "dv"):
        raise ValueError(f"tensor must be one of out, lse, dq, dk, dv, got {tensor!r}")
    if dtype not in UNIT_ROUNDOFF:
        raise ValueError(f"dtype must be one of {', '.join(UNIT_ROUNDOFF)}, got {dtype!r}")
    if tolerance not in TOLERANCES:
        raise ValueError(f"tolerance must be one of {', '.join(TOLERANCES)}, got {tolerance!r}")
    if tensor == "lse":
        return 8 * UNIT_ROUNDOFF["tf32"] if dtype == "tf32" else 2e-5
    roundoffs = ROUNDOFFS_ALLOWED[dtype]
    if tolerance != STRICT and UNIT_ROUNDOFF[dtype] == UNIT_ROUNDOFF["bfloat16"]:
        roundoffs = ROUNDOFFS_OF_ROUNDED_SCORES
    unit = UNIT_ROUNDOFF["float32"]
    of_scores = 16 * unit
    if tolerance != STRICT:
        of_scores += 2 * (unit if dtype == "tf32" else UNIT_ROUNDOFF[dtype])
    return roundoffs * UNIT_ROUNDOFF[dtype] + largest_score * of_scores
