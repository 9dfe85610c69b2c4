"""Autotunes tile sizes on a device without a table: checks, times and caches candidates.

The first call of a kernel on such a device compiles, checks and times its candidates. The fastest
correct one is written to Triton's cache; later processes read it. `triton.autotune` would not do:
it checks no result, and here the grid, the descriptors and the kernels that combine the parts of a
split loop depend on the configuration as well.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import triton
from torch import Tensor
from triton.runtime.cache import get_cache_manager
from triton.testing import do_bench

from lmperf.attention.accuracy import attention_errors, error_bound
from lmperf.attention.reference import attention_float64
from lmperf.attention.triton.configurations import Configuration, portable
from lmperf.attention.triton.tiles import padded
from lmperf.precision import storage_dtype

_TOKENS = 16384
_LENGTH = 2048
_FILE = "configuration.json"


@dataclass(frozen=True)
class Kernel:
    """A kernel as autotuning calls it: its name, its results and how to prepare a call.

    Attributes:
        name: one of `configurations.KERNELS`.
        results: names of the tensors that a call returns: out, lse, dq, dk or dv.
        prepare: takes q, k, v, dO [b, h, n, d], lse and delta [b, h, n] float32, `causal` and a
            configuration; returns a call of the kernel without arguments.
    """

    name: str
    results: tuple[str, ...]
    prepare: Callable[
        [Sequence[Tensor], Tensor, Tensor, bool, Configuration], Callable[[], tuple[Tensor, ...]]
    ]


def candidates(precision: str, d: int) -> list[Configuration]:
    """Configurations to try: the portable one, then larger ones that may not fit every device."""
    first = portable(precision, d)
    if precision != "half" or padded(d) > 128:
        return [first, Configuration(64, 32, 4, 1), Configuration(32, 64, 4, 1)]
    return [
        first,
        Configuration(64, 64, 4, 3),
        Configuration(128, 64, 8, 2),
        Configuration(64, 128, 8, 2),
        Configuration(128, 32, 4, 2),
    ]


def tuned(kernel: Kernel, causal: bool, precision: str, d: int, index: int) -> Configuration:
    """The fastest correct candidate on the CUDA device `index`, from the cache or by a search.

    precision: "half", "tf32" or "float32", as torch's flags are set now. While a CUDA graph is
    captured nothing can be timed: an uncached kernel then gets the portable configuration.
    """
    device, mask = torch.cuda.get_device_name(index), "causal" if causal else "full"
    key = f"{device}, Triton {triton.__version__}: {kernel.name} {precision} {padded(d)} {mask}"
    cache = get_cache_manager(hashlib.sha256(key.encode()).hexdigest())
    if path := cache.get_file(_FILE):
        return Configuration(**json.loads(Path(path).read_text()))
    if torch.cuda.is_current_stream_capturing():
        return portable(precision, d)
    found = _search(kernel, causal, precision, d, index)
    cache.put(json.dumps(asdict(found)), _FILE)
    return found


def _search(kernel: Kernel, causal: bool, precision: str, d: int, index: int) -> Configuration:
    dtype = "bfloat16" if precision == "half" else precision
    with torch.cuda.device(index), torch.random.fork_rng(devices=[index]):
        correct = [
            c for c in candidates(precision, d) if fault_of(kernel, dtype, d, causal, c) == ""
        ]
        x = inputs(_TOKENS // _LENGTH, max(1, 1024 // d), _LENGTH, d, dtype)
        lse = torch.zeros(x[0].shape[:3], device="cuda")

        def median_ms(c: Configuration) -> float:
            return do_bench(kernel.prepare(x, lse, lse, causal, c), return_mode="median")

        return min(correct, key=median_ms, default=portable(precision, d))


def inputs(batch: int, heads: int, n: int, d: int, dtype: str) -> list[Tensor]:
    """Random q, k, v and dO, standard normal and contiguous, on the current CUDA device."""
    shape = (batch, heads, n, d)
    return [torch.randn(shape, device="cuda", dtype=storage_dtype(dtype)) for _ in range(4)]


def fault_of(kernel: Kernel, dtype: str, d: int, causal: bool, c: Configuration) -> str | None:
    """Compile and run a configuration at n = 1024, and compare it with float64.

    dtype: a value of the dtype axis, which torch's flags must agree with. Returns "" if the results
    are within `error_bound`, else what is wrong. Returns None, without a run, in a process whose
    CUDA context an earlier configuration has corrupted.
    """
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return None
    torch.manual_seed(0)
    x = inputs(2, 2, 1024, d, dtype)  # as many scores as TMA descriptors need
    reference = attention_float64(*x, causal)
    lse = reference["lse"].float()
    delta = (reference["out"] * x[3].double()).sum(-1).float()
    try:
        results = kernel.prepare(x, lse, delta, causal, c)()
        torch.cuda.synchronize()
    except (triton.TritonError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}".replace("\n", " ")[:200]
    got = dict(zip(kernel.results, results, strict=True))
    for tensor, error in attention_errors(got, reference).items():
        if not error <= error_bound(tensor, dtype):
            return f"error of {tensor} is {error:.2e}"
    return ""
