"""Attention by definition: in plain PyTorch, in float64, and its FLOPs and bytes in closed form.

S = scale Q K^T,  P = softmax(S),  O = P V,  L_i = log sum_j exp(S_ij)
dV = P^T dO,  dP = dO V^T,  dS = P * (dP - rowsum(dO * O)),  dQ = scale dS K,  dK = scale dS^T Q
"""

import math

import torch
from torch import Tensor

from lmperf.dtypes import DTYPES, PLAIN_DTYPES

CHUNK_ELEMENTS = 1 << 26

BYTES_PER_ELEMENT = {name: DTYPES[name].bytes for name in PLAIN_DTYPES}

FORWARD_FLOPS_MULTIPLE = {"forward": 1.0, "backward": 2.5, "forward_backward": 3.5}


def attention(
    q: Tensor, k: Tensor, v: Tensor, causal: bool = False, scale: float | None = None
) -> Tensor:
    """softmax(scale Q K^T) V with the scores in memory: quadratic in n.

    q: [..., n, d]; k, v: [..., m, d], one dtype. scale defaults to 1 / sqrt(d). With `causal`,
    query i sees keys 0 ... i. Returns [..., n, d] in the dtype of the inputs.
    """
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = q @ k.transpose(-2, -1) * scale
    if causal:
        rows = torch.arange(q.shape[-2], device=q.device)[:, None]
        columns = torch.arange(k.shape[-2], device=q.device)
        scores = scores.masked_fill(columns > rows, -math.inf)
    return scores.softmax(dim=-1) @ v


@torch.no_grad()
def attention_float64(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    grad_out: Tensor,
    causal: bool,
    scale: float | None = None,
) -> dict[str, Tensor]:
    """Output, logsumexp and gradients in float64, on the device of the inputs.

    q, grad_out: [..., n, d]; k, v: [..., m, d], of any dtype. Works on chunks of queries, whose
    scores have at most 2^26 elements (512 MiB; at least one row of every sequence); about four
    tensors of this size are alive at once.
    Returns out, dq [..., n, d], dk, dv [..., m, d], lse [..., n] (natural logarithm).
    """
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    q, k, v, grad_out = (t.double() for t in (q, k, v, grad_out))
    out, dq, dk, dv = (torch.zeros_like(t) for t in (q, q, k, v))
    lse = q.new_zeros(q.shape[:-1])
    sequences = math.prod(q.shape[:-2])
    rows = max(1, CHUNK_ELEMENTS // (sequences * k.shape[-2]))
    for start in range(0, q.shape[-2], rows):
        part = slice(start, min(start + rows, q.shape[-2]))
        keys = slice(0, part.stop if causal else None)
        k_part, v_part = k[..., keys, :], v[..., keys, :]
        scores = q[..., part, :] @ k_part.transpose(-2, -1) * scale
        if causal:
            hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device)
            scores.masked_fill_(hidden.triu(start + 1), -math.inf)
        lse[..., part] = scores.logsumexp(dim=-1)
        p = scores.sub_(lse[..., part, None]).exp_()
        out[..., part, :] = p @ v_part
        d_out = grad_out[..., part, :]
        dv[..., keys, :] += p.transpose(-2, -1) @ d_out
        delta = (d_out * out[..., part, :]).sum(dim=-1, keepdim=True)
        ds = (d_out @ v_part.transpose(-2, -1)).sub_(delta).mul_(p).mul_(scale)
        dq[..., part, :] = ds @ k_part
        dk[..., keys, :] += ds.transpose(-2, -1) @ q[..., part, :]
    return {"out": out, "lse": lse, "dq": dq, "dk": dk, "dv": dv}


def flops(batch: int, heads: int, n: int, d: int, causal: bool, phase: str = "forward") -> float:
    """FLOPs of the matmuls of attention; the softmax is not counted.

    Forward: 2 matmuls with 2 d FLOPs for each score. A causal mask leaves n (n + 1) / 2 of the n^2
    scores to be computed. Backward: 5 matmuls (the scores recomputed, dP, dV, dK, dQ), 2.5 times
    forward, even if an implementation recomputes more. Raises KeyError for a phase other than
    forward, backward, forward_backward.
    """
    scores = n * (n + 1) / 2 if causal else n * n
    return 4.0 * batch * heads * scores * d * FORWARD_FLOPS_MULTIPLE[phase]


def bytes_moved(
    batch: int, heads: int, n: int, d: int, dtype: str, phase: str = "forward"
) -> float:
    """The fewest bytes that attention can move: each tensor once.

    Forward reads q, k, v and writes out and lse (float32). Backward reads q, k, v, out, dO and lse
    and writes dq, dk, dv. dtype: a value of the dtype axis without autocast. Raises KeyError for
    any other dtype or phase.
    """
    tensor = float(batch * heads * n * d * BYTES_PER_ELEMENT[dtype])
    lse = 4.0 * batch * heads * n
    forward, backward = 4 * tensor + lse, 8 * tensor + lse
    return {
        "forward": forward,
        "backward": backward,
        "forward_backward": forward + backward,
    }[phase]
