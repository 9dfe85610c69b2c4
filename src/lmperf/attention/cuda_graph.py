"""Calls captured as CUDA graphs: what a kernel takes when the host does not launch it.

Short kernels are launched slower than they run: some 10 us a launch. A graph is launched once for
all of its kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

_WARM_UPS = 3

Step = Callable[[Any], Any]


def captured(steps: Sequence[Step]) -> list[Step]:
    """The replay of each step as a graph of its own; all are captured when the first is called.

    A step takes what the one before it returned, the first one None, and must not free what a
    replay reads. Replays take anything and return what the capture returned, its tensors
    overwritten. They read the memory that the capture read: what is new there, they see. So a
    backward pass follows a replay of its forward pass, which rewrites what autograd saved.
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
        # One stream for all: autograd runs a backward pass on the stream of its forward pass.
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
