"""Tile sizes for a device without a table: a few candidates, checked, timed once, kept on disk.

The first call of a kernel on such a device compiles and times CANDIDATES; the winner is read from
then on. What the seconds were stands in the file.
"""

import json
import os
import statistics
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import torch
import triton

from lmperf.attention.triton.configurations import Configuration, portable
from lmperf.attention.triton.tiles import padded

_TOKENS = 16384
_LENGTH = 2048
_REPETITIONS = 7


def cache_path(index: int) -> Path:
    """The file of the index-th CUDA device under this version of Triton."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    device = torch.cuda.get_device_name(index).replace(" ", "-").replace("/", "-")
    return base / "lmperf" / f"flash_attention-{device}-triton-{triton.__version__}.json"


def candidates(precision: str, d: int) -> list[Configuration]:
    """The portable configuration, and larger ones that a device may have room for."""
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


def tuned(kernel: str, causal: bool, precision: str, d: int, index: int) -> Configuration:
    """The fastest candidate that is right, from the file or found now and written there.

    The portable configuration, untimed, while a CUDA graph is captured.
    """
    path, key = cache_path(index), f"{kernel} {precision} {padded(d)} {_mask(causal)}"
    found = _read(path).get(key)
    if found is None:
        if torch.cuda.is_current_stream_capturing():
            return portable(precision, d)
        found = _found(kernel, causal, precision, d, index)
        _write(path, _read(path) | {key: found})
    return Configuration(**found["configuration"])


def _mask(causal: bool) -> str:
    return "causal" if causal else "full"


def _found(kernel: str, causal: bool, precision: str, d: int, index: int) -> dict:
    from lmperf.attention.triton.variants import check_variant

    dtype = "bfloat16" if precision == "half" else precision
    began = time.perf_counter()
    with torch.cuda.device(index), torch.random.fork_rng(devices=[index]):
        right = [
            c for c in candidates(precision, d) if check_variant(kernel, dtype, d, causal, c) == ""
        ]
        best = min(right, key=_timer(kernel, causal, dtype, d), default=portable(precision, d))
    return {"configuration": asdict(best), "seconds": time.perf_counter() - began}


def _timer(kernel: str, causal: bool, dtype: str, d: int):
    from lmperf.attention.triton.variants import inputs, launcher, median_ms

    x = inputs(_TOKENS // _LENGTH, max(1, 1024 // d), _LENGTH, d, dtype)
    lse = torch.zeros(x[0].shape[:3], device="cuda")
    return lambda c: statistics.median(
        median_ms([launcher(kernel, x, lse, lse, causal, c)], rounds=_REPETITIONS)
    )


def _read(path: Path) -> dict:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}


def _write(path: Path, content: dict) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        json.dump(content, file, indent=1)
    os.replace(file.name, path)
