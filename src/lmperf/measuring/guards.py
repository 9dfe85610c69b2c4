"""Finds cheats of implementations that are not the project's own: custom ones and peers.

A call that is timed writes to new inputs from a seed that nobody can predict, and its result is
compared with the reference: a cached result, or work that is left for later, is wrong. Further:
memory must not grow, two results must not share memory, and two clocks must agree.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import accumulate, pairwise
from time import perf_counter, process_time, sleep  # bound before an implementation runs
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from lmperf.benchmark import Workload, WrongResult
from lmperf.gate import Gate
from lmperf.measuring.clock import synchronizer
from lmperf.measuring.failures import Harmful
from lmperf.measuring.live_tensors import LiveTensors
from lmperf.measuring.ranks import Alone

# Memory leaks if it reached a new maximum so often: caches fill sooner. Calls are made for so long
# at most; longer calls are not repeated, as a step that leaks runs out of memory anyway.
_LEAKS, _LEAK_CALLS, _LEAK_S, _LONG_S = 4, 32, 0.6, 0.1
# After a call, a process that still uses a core by more than this share works on behind it.
_IDLE_S, _BUSY_SHARE = 0.05, 0.25
# The device may work by so much longer in a call than the events around it tell.
_OUTLIVES = 1.2
# Device events must show this share of the time of all slices by the host's clock.
_CLOCKS_AGREE = 0.8


class Guard:
    """Checks one case; its checks raise WrongResult.

    Args:
        device: cuda, mps or cpu.
        team: the ranks that measure together, or `ranks.Alone`.
        keeps_results: whether results must outlive the next call.
        ours: returns the context of the project's own code between calls.

    Attributes:
        marks: their names say what the implementation does that does not make it wrong:
            `reused_output` (two results share memory).
    """

    def __init__(
        self,
        device: str,
        team: Alone,
        keeps_results: bool,
        ours: Callable[[], AbstractContextManager],
    ):
        self._device, self._team, self._keeps_results = device, team, keeps_results
        self._ours = ours
        self.marks: dict[str, None] = {}
        self._live: dict[str, list[int]] = {}

    def prepared(self, work: Workload, name: str) -> None:
        """Check a phase before it is timed."""
        phase, live, synchronize = work.phases[name], [], synchronizer(self._device)
        state, another = phase.before(), None
        synchronize()
        began = perf_counter()
        result = phase.run(state)
        synchronize()
        took_s = self._largest(perf_counter() - began)
        calls = min(_LEAK_CALLS, int(_LEAK_S / max(took_s, 1e-6))) if took_s < _LONG_S else 0
        if self._keeps_results:
            another = phase.run(phase.before())
            if _memory_of(result) & _memory_of(another):
                self.marks["reused_output"] = None
        del result, another, state
        counted = LiveTensors() if self._device == "cpu" and not work.compiles else nullcontext()
        with counted:
            for _ in range(calls):
                phase.run(phase.before())
                self._add_live(live, counted)
        self._refuse_growth(live)
        synchronize()
        used, began = process_time(), perf_counter()
        sleep(_IDLE_S)
        share = (process_time() - used) / (perf_counter() - began)
        if self._largest(share) > _BUSY_SHARE:
            raise Harmful("work outlives the call: the process is busy after its end")

    def parts(self, calls: int) -> list[int]:
        """Return the numbers of calls after each of which the last result is checked."""
        # Any call may be the checked one, whatever an implementation knows of a slice's start.
        first = self._team.random.randint(1, calls)
        return [count for count in (first, calls - first) if count]

    def timed(self, work: Workload, name: str, result: Any, is_look: bool) -> None:
        """Check the result of the last call of a slice or stretch.

        is_look: whether to compare it with the reference.
        """
        result = _snapshot(result)
        live = self._live.setdefault(name, [])
        self._add_live(live, None)
        self._refuse_growth(live)
        if not is_look or work.check is None:
            return
        with self._ours():
            require(work.check(name, result))

    def finished(self, clocks: tuple[float, float], device_ms: float, call_ms: float) -> None:
        """Check the clocks and the device after the timing of a phase on CUDA.

        Args:
            clocks: ms of all slices by device events, and by the host's clock.
            device_ms: how long the device works in a call, without kernels of NCCL, which wait for
                other ranks.
            call_ms: the time of a call.
        """
        events_ms, host_ms = clocks
        if events_ms < _CLOCKS_AGREE * host_ms:
            raise WrongResult(
                f"its clock is wrong: {events_ms:.3g} ms between device events, but"
                f" {host_ms:.3g} ms by the host's clock"
            )
        if device_ms > _OUTLIVES * call_ms:
            raise WrongResult(
                f"work outlives the call: the device works for {device_ms:.3g} ms, of which the"
                f" current stream shows {call_ms:.3g} ms"
            )

    def _largest(self, value: float) -> float:
        return self._team.longest([value])[0]

    def _add_live(self, live: list[int], counted: Any) -> None:
        if self._live_bytes(counted) > max(live, default=0):
            gc.collect()  # garbage is not a leak
        live.append(self._live_bytes(counted))

    def _live_bytes(self, counted: Any) -> int:
        if self._device == "cuda":
            return torch.cuda.memory_stats().get("requested_bytes.all.current", 0)
        return getattr(counted, "live_bytes", 0)

    def _refuse_growth(self, live: list[int]) -> None:
        grown = sum(after > before for before, after in pairwise(accumulate(live, max)))
        if live and self._largest(grown) >= _LEAKS:
            raise WrongResult(f"memory grows: by {(max(live) - live[0]) / 2**20:.3g} MiB")


def require(gate: Gate) -> None:
    """Raise WrongResult if the result of a timed call fails its check."""
    if not gate.passed:
        error, bound = gate.errors[gate.worst], gate.bounds[gate.worst]
        raise WrongResult(
            f"a timed call returned a wrong {gate.worst_in_words} for its inputs:"
            f" error {error:.2g}, bound {bound:.2g}"
        )


def _snapshot(result: Any) -> Any:
    """Return copies of the tensors that a call returned, right after its timing.

    Raises:
        WrongResult: a tensor is of a subclass, which may postpone its work until it is read.
    """
    for leaf in tree_leaves(result):
        if isinstance(leaf, Tensor) and type(leaf) is not Tensor:
            raise WrongResult(f"returned a {type(leaf).__name__}, which is no plain tensor")
    return tree_map(
        lambda leaf: leaf.detach().clone() if isinstance(leaf, Tensor) else leaf, result
    )


def _memory_of(result: Any) -> set[int]:
    tensors = (leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor) and leaf.numel())
    return {leaf.untyped_storage().data_ptr() for leaf in tensors}
