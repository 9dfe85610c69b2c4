"""Measures the memory of a rank at the moments of `lmperf.distributed.rank_footprint`."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lmperf.distributed.distributed_problem import Build, DistributedProblem, release
from lmperf.distributed.rank_footprint import COMPONENTS
from lmperf.distributed.strategies import Training
from lmperf.measuring.live_tensors import LiveTensors, local_part, state_of
from lmperf.measuring.peak_memory import CACHING_ALLOCATOR, LIVE_TENSORS, peak_memory

Bytes = dict[str, dict[str, int]]


def memory_of(problem: DistributedProblem, build: Build) -> tuple[Bytes, str]:
    """Bytes by moment and component, the largest over the ranks, and the instrument.

    Parameters, gradients and optimizer state are the storages of this rank's tensors; `other` is
    what is allocated beside them. At the peak only the total is known.
    """
    release()
    if problem.device.type == "cuda":
        moments, instrument = _by_allocator(problem, build), CACHING_ALLOCATOR
    else:
        moments, instrument = _by_live_tensors(problem, build), LIVE_TENSORS
    release()
    return {
        moment: _largest(parts, problem.device) for moment, parts in moments.items()
    }, instrument


def _by_allocator(problem: DistributedProblem, build: Build) -> Bytes:
    kept = problem.tokens.nbytes + problem.targets.nbytes
    before = torch.cuda.memory_allocated() - kept

    def allocated() -> int:
        torch.cuda.synchronize()
        return torch.cuda.memory_allocated() - before

    def peak(run: Callable[[], object]) -> int:
        return peak_memory(run, "cuda") - before

    return _moments(problem, build, allocated, peak)


def _by_live_tensors(problem: DistributedProblem, build: Build) -> Bytes:
    live = LiveTensors(resizes=True)
    live.register([problem.tokens, problem.targets])

    def peak(run: Callable[[], object]) -> int:
        live.peak_bytes = allocated()
        run()
        return live.peak_bytes

    def allocated() -> int:
        live.refresh()
        return live.live_bytes

    with live:
        return _moments(problem, build, allocated, peak)


def _moments(
    problem: DistributedProblem,
    build: Build,
    allocated: Callable[[], int],
    peak: Callable[[Callable[[], object]], int],
) -> Bytes:
    training = build(problem.setup())
    moments = {"init": _parts(training, allocated())}
    problem.backward(training)
    moments["before_step"] = _parts(training, allocated())
    training.optimizer.step()
    moments["after_step"] = _parts(training, allocated())
    # The second step may allocate what stays, such as rebuilt buckets.
    problem.step(training)
    moments["peak"] = {"total": peak(lambda: problem.step(training))}
    return moments


def _parts(training: Training, allocated: int) -> dict[str, int]:
    parameters = list(training.model.parameters())
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    stored = _storages(parameters), _storages(gradients)
    states = _storages(state_of(training.optimizer)).items()
    state = {key: size for key, size in states if not any(key in others for others in stored)}
    sizes = (sum(sizes_of_parts.values()) for sizes_of_parts in (*stored, state))
    sizes_of_parts = dict(zip(COMPONENTS, sizes, strict=False))
    return {
        **sizes_of_parts,
        "other": max(0, allocated - sum(sizes_of_parts.values())),
        "total": allocated,
    }


def _storages(tensors: Iterable[Tensor | nn.Parameter]) -> dict[int, int]:
    """Address -> bytes of the storages of this rank's parts of tensors."""
    storages = (local_part(tensor).untyped_storage() for tensor in tensors)
    return {storage._cdata: storage.nbytes() for storage in storages}


def _largest(parts: dict[str, int], device: torch.device) -> dict[str, int]:
    values = torch.tensor(list(parts.values()), dtype=torch.int64, device=device)
    dist.all_reduce(values, dist.ReduceOp.MAX)
    return dict(zip(parts, values.tolist(), strict=True))
