"""What a supervisor gives a worker to measure."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from lmperf.benchmark import Benchmark, Case, Timed
from lmperf.measuring import processors


@dataclass(frozen=True)
class Job:
    """What a worker measures: groups of a benchmark, without the rows in `done`.

    Attributes:
        benchmark: with the phases that are measured.
        done: (case, phase) pairs that have rows.
        alone: cases that ran out of memory beside the others of their group.
        apart: whether all cases are of an implementation that changes what cannot be put back.
        on_request: whether calls of the only case are timed on request (`worker._serve`).
        checks_first: whether the first group is only checked.
    """

    benchmark: Benchmark
    device: str
    groups: list[list[Case]]
    done: frozenset[tuple[Case, str]] = frozenset()
    alone: frozenset[Case] = frozenset()
    apart: bool = False
    on_request: bool = False
    checks_first: bool = False

    def environ(self, cache: str, gpus: Sequence[str]) -> dict[str, str]:
        """Return the environment of the worker.

        Args:
            cache: folder for compiled code.
            gpus: UUIDs of the GPUs that the worker may use; empty: all.
        """
        environ = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache}
        # CUPTI, once attached, slows every later launch of its process by up to 1.4 times: detach
        # it when a profile ends, if anything is timed. That ends at the next call of CUDA only: a
        # profile that begins before records no kernels (kineto pull request 1554).
        environ["TEARDOWN_CUPTI"] = "1" if isinstance(self.benchmark, Timed) else "0"
        if gpus:
            environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
        if self.benchmark.is_check and self.device != "cuda":
            environ["TRITON_INTERPRET"] = "1"
        if processors.threads() < processors.affinity():  # libraries do not know of a quota
            environ.setdefault("OMP_NUM_THREADS", str(processors.threads()))
        return environ


def seed_of(benchmark: Benchmark, group: Sequence[Case]) -> int:
    """Return the seed of a group's inputs: another one for each cell, the same in every run."""
    text = f"{benchmark.stem} {group[0].cell}"
    return int(sha256(text.encode()).hexdigest()[:7], 16)
