"""A kernel in one configuration: called, held against float64, timed; what autotuning needs."""

import statistics
from collections.abc import Callable

import torch
import triton

from lmperf.attention.accuracy import attention_errors, error_bound
from lmperf.attention.check import TORCH_DTYPE, matmul_precision
from lmperf.attention.reference import attention_float64
from lmperf.attention.triton import forward as forward_pass
from lmperf.attention.triton.configurations import Configuration
from lmperf.attention.triton.key_gradients import KeyGradients
from lmperf.attention.triton.launch import Form
from lmperf.attention.triton.operands import Inputs
from lmperf.attention.triton.query_gradients import QueryGradients
from lmperf.attention.triton.tiles import dot_precision

FLUSHED_BYTES = 256 * 2**20
# The device waits some 0.3 ms, so that the host has queued a call when it starts.
LEAD_CYCLES = 600_000
TENSORS = {"forward": ("out", "lse"), "key_gradients": ("dk", "dv"), "query_gradients": ("dq",)}


def inputs(batch: int, heads: int, n: int, d: int, dtype: str) -> list[torch.Tensor]:
    """q, k, v and the gradient of the output, unit normal, contiguous."""
    shape = (batch, heads, n, d)
    return [torch.randn(shape, device="cuda", dtype=TORCH_DTYPE[dtype]) for _ in range(4)]


def launcher(
    kernel: str,
    x: list[torch.Tensor],
    lse: torch.Tensor,
    delta: torch.Tensor,
    causal: bool,
    configuration: Configuration,
) -> Callable[[], tuple[torch.Tensor, ...]]:
    """A call of one kernel in one configuration; its results are those of TENSORS[kernel]."""
    q, k, v, _ = x
    scale = q.shape[-1] ** -0.5
    if kernel == "forward":
        return lambda: forward_pass.forward(q, k, v, causal, scale, configuration)
    forms = [Form.of(t) for t in x]
    reads = Inputs(*forms, causal, scale, dot_precision(q.dtype))
    operands = reads.operands(*x, lse, delta)
    if kernel == "key_gradients":
        keys = KeyGradients(reads, forms[1], forms[2], configuration)
        return lambda: keys(operands, k, v)
    queries = QueryGradients(reads, forms[0], configuration)
    return lambda: queries(operands, q)


def check_variant(kernel: str, dtype: str, d: int, causal: bool, c: Configuration) -> str | None:
    """Compiles and runs one variant at n = 1024; "" when it is right, else what is wrong.

    None, without a run, in a process that lost its device to an earlier variant.
    """
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return None
    torch.manual_seed(0)
    x = inputs(2, 2, 1024, d, dtype)  # as many scores as descriptors need
    reference = attention_float64(*x, causal)
    lse = reference["lse"].float()
    delta = (reference["out"] * x[3].double()).sum(-1).float()
    with matmul_precision("tf32" if dtype == "tf32" else "ieee"):
        try:
            results = launcher(kernel, x, lse, delta, causal, c)()
            torch.cuda.synchronize()
        except (triton.TritonError, RuntimeError) as error:
            return f"{type(error).__name__}: {error}".replace("\n", " ")[:200]
    results = results if isinstance(results, tuple) else (results,)
    got = dict(zip(TENSORS[kernel], results, strict=True))
    for tensor, error in attention_errors(got, reference).items():
        if not error <= error_bound(tensor, dtype):
            return f"error of {tensor} is {error:.2e}"
    return ""


def median_ms(calls: list[Callable], rounds: int = 15, warmup: int = 3) -> list[float]:
    """Median device time of each call in milliseconds, in turn, with a cold L2."""
    scratch = torch.empty(FLUSHED_BYTES, dtype=torch.int8, device="cuda")
    times = [[] for _ in calls]
    for i in range(warmup + rounds):
        events = []
        for call in calls:
            scratch.zero_()
            torch.cuda._sleep(LEAD_CYCLES)
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            call()
            stop.record()
            events.append((start, stop))
        torch.cuda.synchronize()
        if i >= warmup:
            for per_call, (start, stop) in zip(times, events, strict=True):
                per_call.append(start.elapsed_time(stop))
    return [statistics.median(t) for t in times]
