"""A training step as one CUDA graph: a single launch for all of its kernels."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

_WARM_UPS = 3
_MIB = 2**20


class Graphed:
    """Captures a training step at the first call and replays it at every call.

    A replay reads tokens and targets at the addresses of the capture, so new contents are copied
    there. It also reads the learning rate of each group of the optimizer, a tensor from the capture
    on: a number that a schedule sets instead is copied into it. Each replay overwrites the
    gradients and the loss of the last one. The memory pool of the graph is not part of what the
    allocator counts as allocated.

    Three steps before the capture compile and autotune, with a learning rate of 0. The state of an
    optimizer that had made no step is zeroed after them, so that training begins with the first
    replay. Of another one they are subtracted from the step count, but their effect on the moments
    stays.

    Args:
        step: clears the gradients, makes a training step and returns the loss. It must not allocate
            host memory.
        optimizer: the optimizer of the step, capturable.

    Attributes:
        pool_mib: peak memory of a replay beyond the tensors that are alive after it.
    """

    def __init__(self, step: Callable[[], Tensor], optimizer: torch.optim.Optimizer):
        self._step, self._optimizer = step, optimizer
        self._graph: torch.cuda.CUDAGraph | None = None
        self._gradients: list[tuple[torch.nn.Parameter, Tensor]] = []
        self._rates: list[Tensor] = []
        self._loss: Tensor | None = None
        self.pool_mib = 0.0

    def __call__(self) -> Tensor:
        if self._graph is None:
            self._capture()
        self._set_rates()
        self._graph.replay()
        # A caller may have cleared the gradients since the last replay.
        for parameter, gradient in self._gradients:
            parameter.grad = gradient
        return self._loss

    def _set_rates(self) -> None:
        """Copy learning rates that were set as other objects into the captured tensors."""
        for group, rate in zip(self._optimizer.param_groups, self._rates, strict=True):
            if group["lr"] is not rate:
                rate.fill_(group["lr"])
                group["lr"] = rate

    def _capture(self) -> None:
        """Make the graph.

        Raises:
            OutOfMemoryError: a tensor does not fit into the device beside the graph's pool.
        """
        for group in self._optimizer.param_groups:
            device = group["params"][0].device
            group["lr"] = torch.as_tensor(group["lr"], dtype=torch.float32, device=device)
        self._rates = [group["lr"] for group in self._optimizer.param_groups]
        stream = torch.cuda.Stream()
        self._warm_up(stream)
        self._optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # a graph's pool cannot reuse memory that the allocator caches
        torch.cuda.reset_peak_memory_stats()
        graph = torch.cuda.CUDAGraph()
        try:
            # The outer context restores the current stream if a failed capture cannot be ended.
            with torch.cuda.stream(stream), torch.cuda.graph(graph, stream=stream):
                self._loss = self._step()
        except RuntimeError as error:
            raise first_cause(error) from None
        peak = torch.cuda.max_memory_allocated() - torch.cuda.memory_allocated()
        self.pool_mib, self._graph = peak / _MIB, graph
        parameters = (p for group in self._optimizer.param_groups for p in group["params"])
        self._gradients = [(p, p.grad) for p in parameters if p.grad is not None]

    def _warm_up(self, stream: torch.cuda.Stream) -> None:
        """Call the step on a stream without training the model."""
        is_new = not any(state["step"] for state in self._optimizer.state.values())
        rates = [rate.clone() for rate in self._rates]
        for rate in self._rates:
            rate.zero_()
        stream.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(stream):
                for _ in range(_WARM_UPS):
                    self._step()
        finally:  # a caller may go on with a smaller batch after a lack of memory
            torch.cuda.current_stream().wait_stream(stream)
            for rate, before in zip(self._rates, rates, strict=True):
                rate.copy_(before)
            for state in self._optimizer.state.values() if is_new else ():
                for value in state.values():
                    value.zero_()
        for state in self._optimizer.state.values() if not is_new else ():
            state["step"] -= _WARM_UPS


def first_cause(error: RuntimeError) -> RuntimeError:
    """The out-of-memory error during whose handling another error was raised; else the error.

    The end of a capture that has failed raises an error of its own.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, torch.OutOfMemoryError):
            return cause
        cause = cause.__context__
    return error
