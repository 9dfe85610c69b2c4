"""A whole training step as one CUDA graph: one launch for all of its kernels."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

_WARM_UPS = 3
_MIB = 2**20


class Graphed:
    """The replay of a step: forward, backward, optimizer, cleared gradients first.

    It reads tokens and targets where they were when it was captured, at the first call: what is
    written there in between, it sees. Gradients and loss are those of the last replay, overwritten
    by the next. What a replay uses the allocator does not count as alive.

    Args:
        step: takes nothing and returns the loss; it must allocate on the device alone.
        optimizer: the one that makes the step, fused and capturable.
        warm_ups: steps before the capture, in which everything is compiled and tuned; that they are
            made is taken back from the optimizer's count, though not from its moments. 0 for one
            that has been called before.

    Attributes:
        uncaptured: the step itself.
        pool_mib: the most that the replay uses beside what is alive after it.
    """

    def __init__(
        self,
        step: Callable[[], Tensor],
        optimizer: torch.optim.Optimizer,
        warm_ups: int = _WARM_UPS,
    ):
        self.uncaptured, self._optimizer, self._warm_ups = step, optimizer, warm_ups
        self._graph: torch.cuda.CUDAGraph | None = None
        self._gradients: list[tuple[torch.nn.Parameter, Tensor]] = []
        self._loss: Tensor | None = None
        self.pool_mib = 0.0

    def __call__(self) -> Tensor:
        if self._graph is None:
            self._capture()
        self._graph.replay()
        for parameter, gradient in self._gradients:  # which others may have cleared meanwhile
            parameter.grad = gradient
        return self._loss

    def _capture(self) -> None:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(self._warm_ups):
                self.uncaptured()
        torch.cuda.current_stream().wait_stream(stream)
        for state in self._optimizer.state.values():
            state["step"] -= self._warm_ups
        self._optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # the pool of a graph takes nothing from the allocator's reserve
        torch.cuda.reset_peak_memory_stats()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            self._loss = self.uncaptured()
        peak = torch.cuda.max_memory_allocated() - torch.cuda.memory_allocated()
        self.pool_mib, self._graph = peak / _MIB, graph
        parameters = (p for group in self._optimizer.param_groups for p in group["params"])
        self._gradients = [(p, p.grad) for p in parameters if p.grad is not None]
