"""How far a result is from its reference, and how far it may be.

A norm over a whole tensor hides a local fault: one dropped key tile for one query tile at
n = 65536 changes one row in a thousand. So errors are taken row by row, each row beside the rows
around it, and the worst row counts.
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
NUMERICS = (STRICT, "rounded_scores")


@torch.no_grad()
def blockwise_error(
    got: Tensor, reference: Tensor, block: int = BLOCK, floor: float = 0.0
) -> float:
    """Worst row error over the size of the reference in the row's block of tokens.

    max over blocks B and rows i in B of
        ||got_i - ref_i|| / max(||ref_i||, sqrt(mean_B ||ref_j||^2), floor)

    The RMS of the block is the scale of a row that happens to be small; a row that is large (one
    dominant key, the first rows of a causal mask) is measured against itself. A last block that is
    short is joined with the one before it: a block of one row would be measured against that row
    alone, and where dP and delta of its only query nearly cancel, its dK has no digits left in any
    float32. A sequence shorter than a block is one block.

    got, reference: [..., n, d] of any dtype and of one device; tokens are the second to last
    dimension, and blocks never span two sequences. A logsumexp [..., n] goes in as [..., n, 1].
    floor: the smallest scale an error is measured against, for results that vanish identically.
    Returns inf when anything in `got` is not finite. Works in float64 on chunks of 2^24 elements.
    Raises ValueError when the shapes differ or the reference is not finite.
    """
    if got.shape != reference.shape or got.ndim < 2:
        raise ValueError(
            f"blockwise_error needs two tensors of one shape [..., n, d], "
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
    """`blockwise_error` of one chunk [rows, d] that begins at a block boundary."""
    reference = reference.double()
    if not bool(torch.isfinite(reference).all()):
        raise ValueError("the reference holds values that are not finite")
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
    """`blockwise_error` of every tensor of attention that `got` holds.

    got, reference: any of "out", "dq", "dk", "dv" [..., n, d] and "lse" [..., n]; what is missing
    from `got` (an implementation that gives no logsumexp) is left out.

    An error of the logsumexp is a relative error of every probability of its row, so it is
    measured against max(RMS, 1). With one key, softmax is constant: dq and dk are zero, what is
    left of them is the rounding of do . v, and their scale is its size, sqrt(d) for unit inputs.
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


def error_bound(tensor: str, dtype: str, numerics: str = STRICT) -> float:
    """The largest `blockwise_error` that rounding explains, for attention on unit normal inputs.

    tensor: out, lse, dq, dk or dv. dtype: a value of the dtype axis. numerics: what the
    implementation declares: `rounded_scores` stores the scores in that dtype before the softmax, as
    plain PyTorch does; one that keeps them in float32 (every flash attention) is `strict`.

    out_i = sum_j p_ij v_j. Rounding each p_ij to the storage dtype (unit roundoff u; 0.41 u in the
    root mean square over mantissas) changes out_i by 0.41 u sqrt(sum_j p_ij^2) |v|, and |out_i| is
    itself sqrt(sum_j p_ij^2) |v|: the relative error is 0.41 u at every length. Rounding the result
    adds as much, so a typical row has 0.6 u, the worst of many 1 u; dq, dk and dv round once more
    (ds, and o in delta) and cancel in part: 2.5 u.

    bfloat16 is allowed 6 u = 2.3 %; the fused kernels of an H200 reach 3.6 u. A 64-key tile
    dropped at n = 65536 moves a row by sqrt(64 / 65536) = 3.1 % of its norm, and the worst of the
    64 rows by 4.4 % or more.
    float16 is allowed 24 u = 1.2 %: the backward pass holds p ~ 1/n, which is subnormal there at
    n = 65536 and loses another 2 to 3 bits. tf32 is allowed 24 u: q and k lose bits before the
    softmax, where an error of u |s| in a score s is one of u |s| in p. float32 is allowed
    256 u = 1.5e-5: its running sums over n / 64 tiles add sqrt(n / 64) u / 3 to the 20 u that plain
    PyTorch has at n = 200, and it lies far below tf32, so TF32 used in silence is seen as well.
    With rounded_scores, bfloat16 has the error u |s| in p too, where |s| reaches 8: 24 u.

    lse (absolute, or relative when above 1) is accumulated in float32 whatever the storage dtype:
    2e-5, below the 8.4e-5 of the same dropped tile. With tf32 the error of a score at a short row
    remains, up to 4 deviations of 0.6 u each way: 8 u.

    Raises ValueError for a tensor, a dtype or numerics that are not one of these.
    """
    if tensor not in ("out", "lse", "dq", "dk", "dv"):
        raise ValueError(f"tensor must be one of out, lse, dq, dk, dv, got {tensor!r}")
    if dtype not in UNIT_ROUNDOFF:
        raise ValueError(f"dtype must be one of {', '.join(UNIT_ROUNDOFF)}, got {dtype!r}")
    if numerics not in NUMERICS:
        raise ValueError(f"numerics must be one of {', '.join(NUMERICS)}, got {numerics!r}")
    if tensor == "lse":
        return 8 * UNIT_ROUNDOFF["tf32"] if dtype == "tf32" else 2e-5
    roundoffs = ROUNDOFFS_ALLOWED[dtype]
    if numerics != STRICT and UNIT_ROUNDOFF[dtype] == UNIT_ROUNDOFF["bfloat16"]:
        roundoffs = ROUNDOFFS_OF_ROUNDED_SCORES
    return roundoffs * UNIT_ROUNDOFF[dtype]
