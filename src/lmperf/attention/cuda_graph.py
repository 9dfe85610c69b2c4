"""Calls replayed as CUDA graphs, which removes the launch overhead of short kernels.

A launch takes the host about 10 us, longer than a short kernel runs. A graph launches all of its
kernels at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

_WARM_UPS = 3

Step = Callable[[Any], Any]


def captured(steps: Sequence[Step]) -> list[Step]:
    """One function per step, which replays the step as a CUDA graph; the first call captures all.

    A step takes the result of the step before it (the first step: None) and must not free memory
    that a replay reads. A replay ignores its argument and returns the tensors of the capture,
    overwritten in place. It reads the memory that the capture read, with its current values. So
    replay a forward pass before its backward pass: it rewrites the tensors that autograd saved.
    """
    graphs = _Graphs(steps)
    return [partial(graphs.replay, position) for position in range(len(steps))]


class _Graphs:
    def __init__(self, steps: Sequence[Step]):
        self._steps = steps
        self._captured: list[tuple[torch.cuda.CUDAGraph, Any]] = []

    def replay(self, position: int, _: object = None) -> Any:
        if not self._captured:
            self._captured = self._capture()
        graph, result = self._captured[position]
        graph.replay()
        return result

    def _capture(self) -> list[tuple[torch.cuda.CUDAGraph, Any]]:
        # One stream for all steps: autograd runs a backward pass on the stream of its forward pass.
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UPS):
                result = None
                for step in self._steps:
                    result = step(result)
        del result
        torch.cuda.synchronize()
        found, result = [], None
        for step in self._steps:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                result = step(result)
            found.append((graph, result))
        return found
