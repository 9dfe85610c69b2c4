"""A training step as one CUDA graph: a single launch for all of its kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_WARM_UPS = 3
_MIB = 2**20


class Graphed:
    """Captures a training step as a CUDA graph at the first call and replays it at every call.

    A replay reads tokens and targets at the addresses of the capture, so new contents are copied
    there. It also reads the learning rate of each group of the optimizer, a tensor from the capture
    on: a number that a schedule sets instead is copied into it. Each replay overwrites the
    gradients and the loss of the last one. The memory pool of the graph is not part of what the
    allocator counts as allocated.

    Forward and backward passes before the capture compile and autotune. An optimizer that has made
    no step makes one with a learning rate of 0, and its state is zeroed afterwards, so that
    training begins with the first replay.

    Args:
        gradients: clears the gradients, makes a forward and a backward pass and returns the loss.
            Neither it nor the optimizer may allocate host memory.
        optimizer: the optimizer of the step, capturable.
        pool: memory pool that graphs share which are never replayed at the same time; their steps
            leave no gradients on the parameters. None: a pool of its own.

    Attributes:
        pool_mib: peak memory of a replay beyond the tensors that are alive after it.
    """

    def __init__(
        self,
        gradients: Callable[[], Tensor],
        optimizer: torch.optim.Optimizer,
        pool: Any = None,
    ):
        self._run, self._optimizer, self._pool = gradients, optimizer, pool
        self._graph: torch.cuda.CUDAGraph | None = None
        self._gradients: list[tuple[torch.nn.Parameter, Tensor]] = []
        self._rates: list[Tensor] = []
        self._loss: Tensor | None = None
        self.pool_mib = 0.0

    def __call__(self) -> Tensor:
        if self._graph is None:
            self.capture()
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

    def capture(self) -> None:
        """Make the graph, without training the model.

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
            with (
                torch.cuda.stream(stream),
                # Other threads may call CUDA meanwhile: autograd's, and the watchdog of NCCL.
                torch.cuda.graph(
                    graph, stream=stream, pool=self._pool, capture_error_mode="thread_local"
                ),
            ):
                self._loss = self._run()
                self._optimizer.step()
        except RuntimeError as error:
            raise first_cause(error) from None
        peak = torch.cuda.max_memory_allocated() - torch.cuda.memory_allocated()
        self.pool_mib, self._graph = peak / _MIB, graph
        if self._pool is None:
            parameters = (p for group in self._optimizer.param_groups for p in group["params"])
            self._gradients = [(p, p.grad) for p in parameters if p.grad is not None]
        else:
            self._optimizer.zero_grad(set_to_none=True)

    def _warm_up(self, stream: torch.cuda.Stream) -> None:
        """Call the parts of the step on a stream without training the model."""
        stream.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(stream):
                for _ in range(_WARM_UPS):
                    self._run()
                if not any(state["step"] for state in self._optimizer.state.values()):
                    self._step_without_trace()
        finally:  # a caller may go on with a smaller batch after a lack of memory
            torch.cuda.current_stream().wait_stream(stream)

    def _step_without_trace(self) -> None:
        """The first step of the optimizer, which creates its state; then zero the state."""
        rates = [rate.clone() for rate in self._rates]
        for rate in self._rates:
            rate.zero_()
        try:
            self._optimizer.step()
        finally:
            for rate, before in zip(self._rates, rates, strict=True):
                rate.copy_(before)
            for state in self._optimizer.state.values():
                for value in state.values():
                    value.zero_()


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
