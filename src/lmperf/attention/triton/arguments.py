"""Checks of the arguments of `flash_attention`."""

import math

import torch
from torch import Tensor

from lmperf.attention.triton.launch import Form
from lmperf.attention.triton.tiles import INTERPRETED

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
LARGEST_D = 256

# Both have a shape, a dtype and a device.
Shaped = Tensor | Form


def scale_of(scale: float | None, d: int) -> float:
    """The factor that the scores are multiplied by: `scale`, or by default 1 / sqrt(d)."""
    return d**-0.5 if scale is None else scale


def check_arguments(q: Shaped, k: Shaped, v: Shaped, causal: bool, scale: float | None) -> None:
    """Raise TypeError or ValueError, with a message of one line, for unsupported arguments."""
    if (dimensions := len(q.shape)) not in (3, 4):
        raise ValueError(
            f"q must be [batch, heads, n, d] or [batch, n, d], got {dimensions} dimensions"
        )
    if not q.dtype == k.dtype == v.dtype:
        raise TypeError(f"q, k and v must have the same dtype, got {q.dtype}, {k.dtype}, {v.dtype}")
    if q.dtype not in DTYPES:
        raise TypeError(f"dtype must be float32, float16 or bfloat16, got {q.dtype}")
    if not q.device == k.device == v.device:
        raise ValueError(
            f"q, k and v must be on the same device, got {q.device}, {k.device}, {v.device}"
        )
    _check_shapes(q, k, v, causal)
    if scale is not None and not (scale > 0 and math.isfinite(scale)):
        raise ValueError(f"scale must be positive and finite, got {scale}")
    _check_capability(q)


def _check_shapes(q: Shaped, k: Shaped, v: Shaped, causal: bool) -> None:
    n, d = q.shape[-2:]
    wrong = None
    if k.shape != v.shape:
        wrong = "k and v must have the same shape"
    elif len(k.shape) != len(q.shape) or q.shape[:-2] != k.shape[:-2] or d != k.shape[-1]:
        wrong = "q and k may differ only in length"
    elif not 1 <= d <= LARGEST_D:
        raise ValueError(f"d must be from 1 to {LARGEST_D}, got {d}")
    elif 0 in (*q.shape, *k.shape):
        wrong = "q, k and v must not be empty"
    elif causal and n != k.shape[-2]:
        wrong = "causal attention needs as many keys as queries"
    if wrong:
        shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
        raise ValueError(f"{wrong}, got {shapes}")


def _check_capability(q: Shaped) -> None:
    if q.device.type != "cuda" and not INTERPRETED:
        raise ValueError(
            f"the kernel needs a CUDA device, got {q.device}; on a CPU it runs under "
            "Triton's interpreter (TRITON_INTERPRET=1 before triton is imported)"
        )
    if INTERPRETED and q.dtype == torch.bfloat16:
        raise TypeError(
            "Triton's interpreter gives wrong results in bfloat16: use float32 or float16"
        )
