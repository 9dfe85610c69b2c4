"""Kernel tests of the Triton FlashAttention-2 at odd lengths, head widths and strides.

Nothing is timed. Without a GPU the tests run under Triton's interpreter in float32 and float16,
because the interpreter computes bfloat16 wrongly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from lmperf.axes import dtype_axis
from lmperf.benchmark import Axis, Case, Implementation, Observed, Value, grid, numbers
from lmperf.dtypes import PLAIN_DTYPES, dtype_of
from lmperf.gate import Gate

if TYPE_CHECKING:
    from torch import Tensor


_ON_CPU, _STRIDED = ["float32", "float16"], {"layout": "strided"}
_DTYPES = ["float32", "float16", "bfloat16"]
_cells = partial(
    grid, batch=2, heads=3, causal=[True, False], layout="contiguous", implementation="triton"
)


class FlashAttentionCheck(Observed):
    title = "FlashAttention: kernel tests"
    section = "flash_attention"
    columns = numbers("error_out", "error_dq", "error_dk", "error_dv", "error_lse")
    axes = (
        Axis("batch", int),
        Axis("heads", int),
        Axis("seq_len", int),
        Axis("d_head", int),
        dtype_axis(PLAIN_DTYPES),
        Axis("causal", bool),
        Axis("layout", str, ("contiguous", "strided")),
    )
    phases = ("forward_backward",)
    implementations = (Implementation("triton", "lmperf.attention.triton:flash_attention"),)
    is_check = True
    grids = {
        "cpu": [
            _cells(batch=1, heads=2, seq_len=[1, 127], d_head=[16, 64, 80], dtype=_ON_CPU),
            _cells(heads=1, seq_len=130, d_head=[40, 256], dtype=_ON_CPU, **_STRIDED, causal=True),
        ],
        "gpu": [
            _cells(seq_len=4127, d_head=[64, 128], dtype="bfloat16"),
            _cells(seq_len=127, d_head=[40, 80, 256], dtype=["float32", "bfloat16"], causal=True),
            _cells(seq_len=127, d_head=16, dtype="float16"),
            _cells(seq_len=[1, 1000], d_head=64, dtype=["tf32", "bfloat16"], causal=True),
            _cells(seq_len=1000, d_head=64, dtype=["float32", "bfloat16"], **_STRIDED),
        ],
        "full": [
            _cells(seq_len=127, d_head=[16, 40, 64, 80, 128, 256], dtype=_DTYPES),
            _cells(seq_len=4127, d_head=[64, 80, 128], dtype=_DTYPES),
            _cells(seq_len=[1, 1000], d_head=64, dtype=["float32", "tf32", "bfloat16"]),
            _cells(seq_len=1000, d_head=[64, 80], dtype=["float32", "bfloat16"], **_STRIDED),
        ],
    }

    def observe(self, case: Case, phase: str, device: str, seed: int) -> list[dict[str, Any]]:
        from lmperf.compiler import require_triton

        require_triton()
        from lmperf.attention.accuracy import error_bound
        from lmperf.attention.pytorch import pytorch_attention

        kernels = partial(self.callable_of(case.implementation), return_lse=True)
        found = errors(kernels, case.axes, device, seed)
        bounds = {name: error_bound(name, case.axes["dtype"]) for name in found}
        gate = Gate(found, bounds, lambda: errors(pytorch_attention, case.axes, device, seed))
        return [gate.columns]


def errors(
    attention: Callable[..., Any], axes: Mapping[str, Value], device: str, seed: int
) -> dict[str, float]:
    """Errors of out, dq, dk, dv and, if returned, the logsumexp lse, against float64.

    attention: (q, k, v, causal) -> out, or (out, lse). axes: the values of the benchmark's axes.
    Memory that `attention` allocates is filled with NaN, so that an element that it never writes
    fails the gate.
    """
    import torch

    from lmperf.attention.accuracy import attention_errors
    from lmperf.attention.reference import attention_float64
    from lmperf.precision import precision

    dtype, causal = axes["dtype"], axes["causal"]
    *qkv, grad_out = inputs(axes, device, seed)
    leaves = [tensor.detach().requires_grad_() for tensor in qkv]
    autocast = dtype_of(dtype).autocast
    with uninitialised_memory_is_nan(), precision(dtype):
        with torch.autocast(device, getattr(torch, autocast)) if autocast else nullcontext():
            result = attention(*leaves, causal)
        out, lse = result if isinstance(result, tuple) else (result, None)
        gradients = torch.autograd.grad(out, leaves, grad_out.to(out.dtype))
    got = {"out": out, **dict(zip(("dq", "dk", "dv"), gradients, strict=True))}
    if lse is not None:
        got["lse"] = lse
    exact = [tensor.to(out.dtype) for tensor in (*qkv, grad_out)]
    return attention_errors(got, attention_float64(*exact, causal))


def inputs(axes: Mapping[str, Value], device: str, seed: int) -> tuple[Tensor, ...]:
    """Standard normal q, k, v and dO [batch, heads, seq_len, d_head], with the axes' layout, dtype.

    With the layout "strided", q, k and v are views of one [batch, seq_len, 3, heads, d_head], and
    dO is transposed.
    """
    import torch

    from lmperf.precision import storage_dtype

    generator = torch.Generator(device).manual_seed(seed)
    b, h, n, d = (axes[name] for name in ("batch", "heads", "seq_len", "d_head"))
    dtype = storage_dtype(axes["dtype"])

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, device=device).to(dtype)

    if axes["layout"] == "contiguous":
        return tuple(normal(b, h, n, d) for _ in range(4))
    return (*normal(b, n, 3, h, d).permute(2, 0, 3, 1, 4), normal(b, h, d, n).transpose(2, 3))


@contextmanager
def uninitialised_memory_is_nan() -> Iterator[None]:
    """A context in which `torch.empty` returns memory filled with NaN."""
    import torch

    before = torch.are_deterministic_algorithms_enabled()
    warned = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warned)
