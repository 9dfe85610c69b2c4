"""Autotunes tile sizes on a device without a table: checks, times and caches candidates.

The first call of a kernel on such a device compiles, checks and times its candidates. The fastest
correct one is written to a file, with the seconds that the search took; later calls read it.
"""

import contextlib
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import triton
from torch import Tensor

from lmperf.attention.accuracy import attention_errors, error_bound
from lmperf.attention.reference import attention_float64
from lmperf.attention.triton.configurations import Configuration, portable
from lmperf.attention.triton.tiles import padded
from lmperf.precision import storage_dtype

_TOKENS = 16384
_LENGTH = 2048
_WARM_UPS = 3
_ROUNDS = 7
# More than any L2 cache holds.
_FLUSHED_BYTES = 256 * 2**20
# About 0.3 ms, in which the host queues the call before the device starts it.
_LEAD_CYCLES = 600_000


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


def cache_path(index: int) -> Path:
    """The path of the cache file for CUDA device `index` under this version of Triton."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    device = torch.cuda.get_device_name(index).replace(" ", "-").replace("/", "-")
    return base / "lmperf" / f"flash_attention-{device}-triton-{triton.__version__}.json"


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

    A search writes its result to the cache. precision: "half", "tf32" or "float32", as torch's
    flags are set now. While a CUDA graph is captured nothing can be timed: an uncached kernel then
    gets the portable configuration.
    """
    mask = "causal" if causal else "full"
    path, key = cache_path(index), f"{kernel.name} {precision} {padded(d)} {mask}"
    cached = _read(path)
    if key not in cached:
        if torch.cuda.is_current_stream_capturing():
            return portable(precision, d)
        found = _search(kernel, causal, precision, d, index)
        cached = _read(path) | {key: found}
        _write(path, cached)
    return Configuration(**cached[key]["configuration"])


def _search(kernel: Kernel, causal: bool, precision: str, d: int, index: int) -> dict:
    dtype = "bfloat16" if precision == "half" else precision
    began = time.perf_counter()
    with torch.cuda.device(index), torch.random.fork_rng(devices=[index]):
        correct = [
            c for c in candidates(precision, d) if fault_of(kernel, dtype, d, causal, c) == ""
        ]
        x = inputs(_TOKENS // _LENGTH, max(1, 1024 // d), _LENGTH, d, dtype)
        lse = torch.zeros(x[0].shape[:3], device="cuda")
        best = min(
            correct,
            key=lambda c: median_ms([kernel.prepare(x, lse, lse, causal, c)], _ROUNDS),
            default=portable(precision, d),
        )
    return {"configuration": asdict(best), "seconds": time.perf_counter() - began}


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


def median_ms(calls: Sequence[Callable[[], object]], rounds: int = 15) -> list[float]:
    """Median device time of each call in ms; calls take turns and start with a cold L2 cache."""
    scratch = torch.empty(_FLUSHED_BYTES, dtype=torch.int8, device="cuda")
    times = [[] for _ in calls]
    for i in range(_WARM_UPS + rounds):
        events = []
        for call in calls:
            scratch.zero_()
            torch.cuda._sleep(_LEAD_CYCLES)
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            call()
            stop.record()
            events.append((start, stop))
        torch.cuda.synchronize()
        if i >= _WARM_UPS:
            for per_call, (start, stop) in zip(times, events, strict=True):
                per_call.append(start.elapsed_time(stop))
    return [statistics.median(per_call) for per_call in times]


def _read(path: Path) -> dict:
    """The configurations in the cache file; none if the file is missing or unreadable."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}


def _write(path: Path, content: dict) -> None:
    """Write the cache file; if that is not possible, the next process searches again."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            json.dump(content, file, indent=1)
        os.replace(file.name, path)
