"""Times of a case in a fresh worker, and as the last case of a worker: what others do to it.

    python tools/first_and_last.py                      # about five minutes on an H200
    python tools/first_and_last.py --rounds 1 --device cpu

The two workers take turns on one host. A ratio that differs from 1 by more than the times of the
fresh workers differ among each other is what earlier cases have left in their process: a profiler,
objects for the garbage collector, caches, threads.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

import torch
from tabulate import tabulate

from lmperf.benchmark import Case
from lmperf.benchmarks import load
from lmperf.measuring.lock import locked
from lmperf.measuring.progress import Progress
from lmperf.measuring.supervisor import Supervisor


class Target(NamedTuple):
    """A case that is timed alone and after others; both are (axes, implementations)."""

    name: str
    stem: str
    case: tuple[dict, str]
    before: tuple[tuple[dict, str], ...]


def _model(size: str, context: int, implementation: str, dtype: str) -> tuple[dict, str]:
    axes = {"size": size, "context_length": context, "batch": 4, "dtype": dtype}
    return axes, implementation


def _heads(seq_len: int, implementation: str, device: str) -> tuple[dict, str]:
    on_gpu = device == "cuda"
    axes = {"seq_len": seq_len, "d_head": 64, "dtype": "bfloat16" if on_gpu else "float32"}
    return {**axes, "causal": True, "batch": 1, "heads": 8, "cuda_graph": False}, implementation


def targets(device: str) -> tuple[Target, ...]:
    """A kernel, a compiled step and an eager step, each with what is measured before it."""
    size, context, dtype = ("0.13B", 1024, "autocast_bfloat16")
    if device == "cpu":
        size, context, dtype = ("tiny", 128, "float32")
    compiled = _model(size, context, "sdpa_compiled_blocks", dtype)
    eager = _model(size, context // 4, "eager", dtype)
    kernels = tuple(_heads(n, name, device) for n in (512, 2048) for name in ("eager", "sdpa"))
    found = (
        Target("kernel", "flash_attention", _heads(1024, "sdpa", device), kernels),
        Target("compiled step", "end_to_end", compiled, (eager,)),
        Target("eager step", "end_to_end", eager, (compiled,)),
    )
    if device == "cuda":
        large = _model("0.97B", 1024, "sdpa_compiled_blocks", dtype)
        found += (Target("large compiled step", "end_to_end", large, (compiled, eager)),)
    return found


def last_ms(
    target: Target, cases: Sequence[tuple[dict, str]], device: str, held: tuple
) -> dict[str, float]:
    """Measure cases in one new worker, each as a group; return phase -> ms of the last one."""
    benchmark = load(target.stem)
    names = [axis.name for axis in benchmark.axes]
    groups = [[Case(tuple((n, axes[n]) for n in names), one)] for axes, one in cases]
    rows: list[dict] = []
    locks, gpus = held
    progress = Progress(target.name, len(groups))
    Supervisor(benchmark, device, progress, locks, gpus).measure(
        groups, lambda _, of: rows.extend(of)
    )
    named = [row for row in rows if row["implementation"] == cases[-1][1]]
    wanted = [row for row in named if all(row[axis] == cases[-1][0][axis] for axis in cases[-1][0])]
    if failed := [row for row in wanted if row["status"] != "ok"]:
        sys.exit(f"{target.name}: {failed[0]['status']}: {failed[0].get('reason')}")
    return {row["phase"]: row["median_ms"] for row in wanted}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=2, help="how often each is timed")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", help="a name of a target")
    arguments = parser.parse_args()
    lines = []
    with locked(arguments.device, 1, print) as held:
        for target in targets(arguments.device):
            if arguments.only not in (None, target.name):
                continue
            alone, last = [], []
            for _ in range(arguments.rounds):
                alone.append(last_ms(target, [target.case], arguments.device, held))
                both = [*target.before, target.case]
                last.append(last_ms(target, both, arguments.device, held))
            for phase in alone[0]:
                times = [[one[phase] for one in of] for of in (alone, last)]
                words = [" ".join(f"{one:.4g}" for one in of) for of in times]
                ratio = median(times[1]) / median(times[0])
                lines.append((target.name, phase, *words, f"{ratio:.3f}"))
    heads = ("case", "phase", "fresh worker (ms)", "last of a worker (ms)", "ratio")
    print(tabulate(lines, heads, "pipe", disable_numparse=True))


if __name__ == "__main__":
    main()
