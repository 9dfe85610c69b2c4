"""Search on a GPU for tile sizes, and for the number of programs per SM of small sizes.

    python tools/tune_lrpe.py

Compiles every variant at b = h = 12, d = 128, bfloat16, n = 32768 in parallel processes, times them
interleaved with a copy of equal bytes and a cold L2 cache, and prints them, the fastest first. Then
times the configured kernels with several numbers of programs. Takes about a minute. The benchmark
`lrpe` compares the configured kernels with a copy.
"""

import argparse
import itertools
import math
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import torch
from timing import median_ms
from torch import Tensor

from lmperf.lrpe.triton import kernels, launch
from lmperf.lrpe.triton.launch import Configuration

BATCH, HEADS = 12, 12
LARGE = (32768,)
PROGRAMS = (2, 4, 8, 16, 32)

Calls = dict[str, Callable[[], object]]


def variants(d: int) -> list[Configuration]:
    """Configurations with 8 to 32 elements of a tile per thread."""
    tiles = itertools.product((8, 16, 32, 64), (2, 4, 8), (1, 2, 3))
    return [Configuration(*c) for c in tiles if 8 <= c[0] * d / (32 * c[1]) <= 32]


def calls(
    shape: tuple[int, ...],
    d: int = 128,
    chosen: Configuration | None = None,
    batch: int = BATCH,
) -> Calls:
    """Both directions, with and without cached angles, and a copy of as many bytes."""
    x = _normal(batch, HEADS, math.prod(shape), d)
    theta = torch.rand(HEADS, -(-d // len(shape)), device="cuda")
    out, angles = kernels.forward(x, theta, shape, 0, True, chosen)
    source = torch.cat([x.flatten(), x.flatten()[: x.numel() // 2]])
    target = torch.empty_like(source)
    rest = (shape, 0)
    return {
        "copy": lambda: target.copy_(source),
        "forward": lambda: kernels.forward(x, theta, *rest, False, chosen),
        "backward": lambda: kernels.backward(out, theta, None, *rest, chosen),
        "forward, cached": lambda: kernels.forward(x, theta, *rest, True, chosen),
        "backward, cached": lambda: kernels.backward(out, None, angles, *rest, chosen),
    }


def _normal(*shape: int) -> Tensor:
    return torch.randn(shape, device="cuda", dtype=torch.bfloat16)


def timed(calls: Calls) -> dict[str, float]:
    """Median time of each call in ms, interleaved, with a cold L2 cache."""
    return dict(zip(calls, median_ms(list(calls.values())), strict=True))


def compile_variant(d: int, chosen: Configuration) -> None:
    """Compile both kernels of a variant into Triton's cache on disk, for every length."""
    directions = calls((64,), d, chosen, batch=1)
    directions["forward"]()
    directions["backward"]()
    torch.cuda.synchronize()


def search(d: int, processes: int) -> None:
    """Print the variants of each direction at the large size, the fastest first."""
    found = variants(d)
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        list(pool.map(compile_variant, itertools.repeat(d), found))
    x, theta = _normal(BATCH, HEADS, *LARGE, d), torch.rand(HEADS, d, device="cuda")
    out, _ = kernels.forward(x, theta, LARGE, 0, False)
    source = torch.cat([x.flatten(), x.flatten()[: x.numel() // 2]])
    target = torch.empty_like(source)
    directions = {
        "forward": lambda c: lambda: kernels.forward(x, theta, LARGE, 0, False, c),
        "backward": lambda c: lambda: kernels.backward(out, theta, None, LARGE, 0, c),
    }
    for name, launcher in directions.items():
        launches = {str(c): launcher(c) for c in found}
        times = timed({"copy": lambda: target.copy_(source)} | launches)
        print(f"{name}, d {d}, n {LARGE[0]}: copy {times['copy']:.4f} ms")
        for variant in sorted(found, key=lambda c: times[str(c)]):
            ms = times[str(variant)]
            print(f"  {times['copy'] / ms:6.1%} of copy  {ms:.4f} ms  {variant}")


def splits() -> None:
    """Print the times of small sizes for several numbers of programs per SM."""
    before = launch.PROGRAMS_PER_SM
    for shape in [(256,), (1024,), (4, 4, 4), (16, 16, 16)]:
        for programs in PROGRAMS:
            launch.PROGRAMS_PER_SM = programs
            times = timed(calls(shape))
            words = "  ".join(f"{name} {1e3 * ms:.1f} us" for name, ms in times.items())
            print(f"{shape} {programs:3} programs per SM  {words}", flush=True)
    launch.PROGRAMS_PER_SM = before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--d", type=int, default=128, help="channels of the search")
    parser.add_argument("--processes", type=int, default=16, help="compiling at once")
    arguments = parser.parse_args()
    search(arguments.d, arguments.processes)
    splits()


if __name__ == "__main__":
    main()
