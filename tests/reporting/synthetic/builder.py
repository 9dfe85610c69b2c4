"""Simple models of a GPU and a CPU, and a builder of rows with statistics of noisy times."""

from __future__ import annotations

import itertools
import random

SIZES = {
    "tiny": (8.4e6, 256, 4),
    "small": (128.6e6, 768, 12),
    "medium": (423.2e6, 1024, 24),
    "large": (969.4e6, 1280, 36),
    "2.0B": (1.998e9, 1600, 48),
    "3.4B": (3.407e9, 2560, 32),
}
GIB = 2**30
GPU = {
    "device": "NVIDIA H200",
    "rates": {"float32": 52.0, "tf32": 390.0, "float16": 790.0, "bfloat16": 800.0},
    "bandwidth": 4280.0,
    "memory": 139 * GIB,
    "launch": 0.03,
}
CPU = {
    "device": None,
    "rates": {"float32": 0.12, "bfloat16": 0.03},
    "bandwidth": 18.0,
    "memory": 12 * GIB,
    "launch": 0.02,
}
PHASE_COST = {"forward": 1.0, "backward": 2.0, "forward_backward": 3.0, "train_step": 3.3}


class Builder:
    """Builds the timing columns of rows: random rounds around a given time, and their statistics.

    seed: of the random noise.
    rounds: number of timed rounds per row.
    """

    def __init__(self, seed: int = 1, rounds: int = 7):
        self.random, self.rounds = random.Random(seed), rounds
        self.passes = itertools.count()

    def timed(self, ms: float, together: str, again: bool = False, noise: float = 0.004) -> dict:
        times = [ms * (1 + self.random.gauss(0, noise)) for _ in range(self.rounds)]
        second = [ms * (1 + self.random.gauss(0, noise)) for _ in range(self.rounds)]
        return {
            "status": "ok",
            "reason": None,
            "requested_bytes": None,
            "free_bytes": None,
            "median_ms": sorted(times)[len(times) // 2],
            "mean_ms": sum(times) / len(times),
            "std_ms": ms * noise,
            "least_ms": min(times),
            "p20_ms": min(times),
            "p80_ms": max(times),
            "repetitions": 100,
            "rounds_ms": ";".join(map(repr, times)),
            "again_ms": ";".join(map(repr, second)) if again else None,
            "together": together,
            "compile_s": None,
        }

    def sustained(self, ms: float, on_gpu: bool) -> dict:
        """The columns of a step timed back to back: 5 % slower than in bursts of ``ms``."""
        blocks = [1.05 * ms * (1 + self.random.gauss(0, 1e-3)) for _ in range(7)]
        device = {"sustained_mhz": 1575.0, "sustained_w": 690.0} if on_gpu else {}
        return {
            "sustained_ms": sorted(blocks)[len(blocks) // 2],
            "sustained_rounds_ms": ";".join(map(repr, blocks)),
            "sustained_steps": max(20, int(5e3 / ms)),
            "sustained_s": max(20 * ms / 1e3, 5.0),
            **device,
        }

    def host(self, machine: dict, ms: float, launches: float) -> dict:
        """The columns for host time and for time per call in a loop; none without a GPU.

        The host is at its best speed.
        """
        if machine["device"] is None:
            return {}
        host = machine["launch"] * launches
        return {"host_ms": host, "host_reference": 1.0, "eager_ms": max(host, ms)}

    def failed(self, status: str, reason: str, requested=None, free=None) -> dict:
        return {
            "status": status,
            "reason": reason,
            "requested_bytes": requested,
            "free_bytes": free,
            **dict.fromkeys(("median_ms", "mean_ms", "std_ms", "rounds_ms", "again_ms")),
            "together": None,
        }

    def oom(self, requested: float, free: float) -> dict:
        return self.failed("oom", "CUDA out of memory", requested, free)

    def next_pass(self) -> str:
        return f"pass{next(self.passes):04d}"
