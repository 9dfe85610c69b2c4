"""A call captured as a CUDA graph: what a kernel takes when the host does not launch it.

Short kernels are launched slower than they run: some 10 us a launch. A graph is launched once for
all of its kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_WARM_UPS = 3


class Graphed:
    """`call` as a graph, captured when first called; each later call replays it.

    before: runs once, on the stream of the capture, and gives what `call` takes: autograd runs a
    backward pass on the stream of its forward pass. Calling returns what the capture returned, its
    tensors overwritten by the replay.
    """

    def __init__(self, call: Callable[[Any], Any], before: Callable[[], Any] = lambda: None):
        self._call, self._before = call, before
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result: Any = None

    def __call__(self, _: object = None) -> Any:
        if self._graph is None:
            self._capture()
        self._graph.replay()
        return self._result

    def _capture(self) -> None:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._argument = self._before()
            for _ in range(_WARM_UPS):
                self._call(self._argument)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            self._result = self._call(self._argument)
        self._graph = graph
