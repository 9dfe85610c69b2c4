"""The gate of the kernels: cases, and the errors of each against float64."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor

from lmperf.attention.accuracy import attention_errors
from lmperf.attention.reference import attention_float64
from lmperf.attention.triton.interface import flash_attention

TORCH_DTYPE = {
    "float32": torch.float32,
    "tf32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "autocast_bfloat16": torch.float32,
}

# (batch, heads, seq_len, d_head)
INTERPRETER_SHAPES = [
    (1, 2, 1, 16),
    (2, 1, 127, 16),
    (1, 1, 65, 40),
    (1, 2, 96, 64),
    (1, 1, 130, 80),
    (1, 1, 70, 128),
    (1, 1, 33, 256),
]
CUDA_SHAPES = [
    (2, 3, 1, 64),
    (3, 2, 127, 40),
    (2, 2, 1000, 16),
    (1, 3, 1000, 80),
    (2, 16, 1024, 64),
    (2, 16, 1024, 128),
    (1, 2, 4097, 32),
    (1, 2, 4097, 64),
    (1, 1, 4097, 128),
    (2, 1, 1000, 256),
    # Enough work for the kernels of a Hopper GPU.
    (2, 8, 2100, 64),
    (1, 24, 1100, 80),
    (1, 24, 1100, 96),
    (1, 24, 1100, 128),
    (1, 8, 2050, 256),
]


def cases(kind: str) -> list[dict]:
    """Cases for "interpreter" (float32 and float16, small) or "cuda" (every dtype).

    A case has batch, heads, seq_len, d_head, dtype, causal and layout: "contiguous", or "strided",
    where q, k and v are views of one [batch, seq_len, 3, heads, d_head] and the gradient of the
    output comes transposed. Every shape is there with both masks, every dtype with both layouts.
    Raises KeyError for another kind.
    """
    shapes, dtypes = {
        "interpreter": (INTERPRETER_SHAPES, ("float32", "float16")),
        "cuda": (CUDA_SHAPES, tuple(TORCH_DTYPE)),
    }[kind]
    result = []
    for i, (batch, heads, seq_len, d_head) in enumerate(shapes):
        for j, dtype in enumerate(dtypes):
            for causal in (False, True):
                if kind == "interpreter" and causal != ((i + j) % 2 == 1) and d_head > 16:
                    continue
                layout = ("contiguous", "strided")[(i // 2 + j + causal) % 2]
                result.append(
                    {
                        "batch": batch,
                        "heads": heads,
                        "seq_len": seq_len,
                        "d_head": d_head,
                        "dtype": dtype,
                        "causal": causal,
                        "layout": layout,
                    }
                )
    return result


def inputs(case: dict, device: torch.device | str, seed: int) -> tuple[Tensor, ...]:
    """q, k, v and the gradient of the output, unit normal, in the case's layout and dtype."""
    generator = torch.Generator(device).manual_seed(seed)
    b, h, n, d = (case[axis] for axis in ("batch", "heads", "seq_len", "d_head"))
    dtype = TORCH_DTYPE[case["dtype"]]

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, device=device).to(dtype)

    if case["layout"] == "contiguous":
        return tuple(normal(b, h, n, d) for _ in range(4))
    return (*normal(b, n, 3, h, d).permute(2, 0, 3, 1, 4), normal(b, h, d, n).transpose(2, 3))


def errors(
    case: dict,
    device: torch.device | str,
    seed: int,
    attention: Callable | None = None,
) -> dict[str, float]:
    """`blockwise_error` of out, lse, dq, dk and dv of one case with fresh inputs, by name.

    attention: another implementation (q, k, v, causal) -> out to hold against the same reference;
    it has no lse. Memory that the kernel allocates is filled with NaN first, so that what it does
    not write is seen.
    """
    q, k, v, grad_out = inputs(case, device, seed)
    leaves = [t.detach().requires_grad_() for t in (q, k, v)]
    poisoned = uninitialised_memory_is_nan() if attention is None else nullcontext()
    autocast = case["dtype"] == "autocast_bfloat16"
    device_type = torch.device(device).type
    with poisoned, matmul_precision("tf32" if case["dtype"] == "tf32" else "ieee"):
        with torch.autocast(device_type, torch.bfloat16, enabled=autocast):
            if attention is None:
                out, lse = flash_attention(*leaves, case["causal"], return_lse=True)
            else:
                out, lse = attention(*leaves, case["causal"]), None
        gradients = torch.autograd.grad(out, leaves, grad_out.to(out.dtype))
    got = {"out": out, **dict(zip(("dq", "dk", "dv"), gradients, strict=True))}
    if lse is not None:
        got["lse"] = lse
    exact = [t.to(out.dtype) for t in (q, k, v, grad_out)]
    return attention_errors(got, attention_float64(*exact, case["causal"]))


@contextmanager
def uninitialised_memory_is_nan() -> Iterator[None]:
    """torch.empty returns NaN inside this context."""
    before = torch.are_deterministic_algorithms_enabled()
    warned = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warned)


@contextmanager
def matmul_precision(precision: str) -> Iterator[None]:
    """torch's float32 matmuls on CUDA in "ieee" or "tf32" inside this context."""
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = precision
    try:
        yield
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
