"""Trains a model with a step of the report.

`examples/train.py` trains with it on a file of tokens, and on several GPUs with `RankedTrainer` of
`lmperf.distributed.ranked_trainer`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from lmperf.precision import precision
from lmperf.transformer.model import TransformerLM
from lmperf.transformer.steps import GRAPH, StepMaker
from lmperf.transformer.training import ParameterGroups, autocast, loss_of, sum_in_float32

# PyTorch compiles a function for eight shapes unless it is told otherwise.
_SHAPES = 64


class Trainer:
    """A model, its AdamW, and a train step for each shape of tokens.

    On CUDA the step of a shape is captured as a CUDA graph when it is first made; all graphs share
    a memory pool. Elsewhere, the same code runs without a graph.

    Args:
        model: on its device. Its weights become bfloat16 if `dtype` is; its linear layers get
            copies in bfloat16 if `maker` uses them.
        maker: which step of the report. `steps.GRAPH` computes the loss in chunks of tokens, which
            saves memory with a large vocabulary; `steps.STORED_LOGITS_GRAPH` does not.
            `steps.FP8_GRAPH`, for dtype "bfloat16", multiplies in float8. Its scales are not saved
            but measured again: resumed losses differ within the rounding to float8.
        dtype: a value of the dtype axis, for example "autocast_bfloat16" or "bfloat16".
        learning_rate: of all groups that have none of their own.
        groups: groups of parameters with options of their own, as `torch.optim.AdamW` takes them;
            `training.decay_groups` makes the usual ones. None: one group of all.
        max_norm: gradients are scaled down to this global norm if theirs is larger; None: as
            `maker` does.
        micro_batch: sequences of a forward and backward pass; the gradients of all micro-batches
            of a step are added up in float32. None: as `maker` does.

    Raises:
        Unsupported: the maker has no optimizer for weights of this dtype, or the device has no
            float8 matmuls and the maker needs them.
    """

    def __init__(
        self,
        model: TransformerLM,
        maker: StepMaker = GRAPH,
        dtype: str = "autocast_bfloat16",
        learning_rate: float = 3e-4,
        groups: ParameterGroups = None,
        max_norm: float | None = None,
        micro_batch: int | None = None,
    ):
        self.model, self.dtype = model, dtype
        self._device = next(model.parameters()).device
        # Without a norm of the caller's, a maker that clips keeps its own.
        options = {} if max_norm is None else {"max_norm": max_norm}
        self.optimizer = maker.prepare(dtype)(model, learning_rate, groups, **options)
        micro_batch = micro_batch or maker.micro_batch
        if micro_batch:
            sum_in_float32(model)
        capture = maker.capture if self._device.type == "cuda" else None
        self._maker = replace(maker, capture=capture, micro_batch=micro_batch)
        self._run = self._maker.way(model)
        self._forget_steps()

    def _forget_steps(self) -> None:
        self._steps: dict[torch.Size, tuple[Tensor, Tensor, Callable[[], Tensor]]] = {}
        self._pool = torch.cuda.graph_pool_handle() if self._maker.capture else None

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next step; setting it sets that of all groups."""
        return float(self.optimizer.param_groups[0]["lr"])

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    @property
    def gradient_norm(self) -> Tensor:
        """Global norm of the last step's gradients before they were clipped, a scalar.

        Raises:
            ValueError: the trainer does not clip, or has made no step.
        """
        norm = getattr(self.optimizer, "gradient_norm", None)
        if norm is None:
            raise ValueError("the norm of the gradients is not known: give max_norm, make a step")
        return norm

    def step(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Make a train step; returns its loss before the update, a float32 scalar on the device.

        tokens, targets: int64 [batch, seq_len], on any device. A shape that is new is compiled and,
        on CUDA, captured.

        Raises:
            ValueError: tokens and targets differ in shape, or micro-batches do not divide them.
            OutOfMemoryError: the step does not fit; the message says which micro-batch does, where
                steps are graphs.
        """
        shape = tokens.shape
        if targets.shape != shape or len(shape) != 2:
            raise ValueError(
                f"tokens are {[*shape]} and targets {[*targets.shape]}, not both [batch, seq_len]"
            )
        if shape[0] % (self._maker.micro_batch or 1):
            raise ValueError(
                f"{shape[0]} sequences do not split into micro-batches of {self._maker.micro_batch}"
            )
        is_new = shape not in self._steps
        if is_new:
            self._steps[shape] = self._step_of(shape, self._maker)
        fixed_tokens, fixed_targets, run = self._steps[shape]
        fixed_tokens.copy_(tokens, non_blocking=True)
        fixed_targets.copy_(targets, non_blocking=True)
        try:
            with precision(self.dtype), _many_shapes() if is_new else nullcontext():
                return run().clone()
        except torch.OutOfMemoryError:
            if not is_new:
                raise
        del self._steps[shape], run  # outside the handler, whose traceback holds tensors
        raise torch.OutOfMemoryError(self._what_fits(shape))

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """The loss of a batch, a scalar, without a graph and without gradients.

        tokens, targets: as `step`.
        """
        batch = tokens.to(self._device), targets.to(self._device)
        cast = autocast(self.dtype, self._device)
        with torch.no_grad(), precision(self.dtype), _many_shapes(), cast:
            return loss_of(self._run, *batch)

    def state_dict(self) -> dict[str, Any]:
        """Weights, moments and the number of steps: what `load_state_dict` goes on from."""
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where the trainer of `state` was; graphs are captured again at the next step."""
        self._forget_steps()
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        for moments in self.optimizer.state.values():
            moments["step"] = moments["step"].to(self._device)

    def _step_of(
        self, shape: torch.Size, maker: StepMaker
    ) -> tuple[Tensor, Tensor, Callable[[], Tensor]]:
        """Tokens, targets and the step that reads them."""
        tokens = torch.zeros(shape, dtype=torch.int64, device=self._device)
        targets = torch.zeros_like(tokens)
        step = maker.step(self.model, self.optimizer, tokens, targets, self.dtype, self._pool)
        return tokens, targets, step

    def _what_fits(self, shape: torch.Size) -> str:
        """Words about a step that did not fit, and what does."""
        what = f"a step of {shape[0]} sequences of {shape[1]} tokens does not fit into memory"
        if not self._maker.capture:
            return f"{what}: give a smaller micro_batch than {self._maker.micro_batch or shape[0]}"
        dtypes = [parameter.grad_dtype for parameter in self.model.parameters()]
        try:
            return f"{what}; {self._smaller(shape)}"
        finally:
            for parameter, dtype in zip(self.model.parameters(), dtypes, strict=True):
                parameter.grad, parameter.grad_dtype = None, dtype

    def _smaller(self, shape: torch.Size) -> str:
        """Words on the largest micro-batch, a power of two, with which a step fits."""
        sum_in_float32(self.model)
        micro_batch = 2 ** ((self._maker.micro_batch or shape[0]) - 1).bit_length() // 2
        while micro_batch:
            if shape[0] % micro_batch == 0 and self._fits(shape, micro_batch):
                return f"with micro_batch={micro_batch} it does"
            micro_batch //= 2
        return "nor does one sequence at a time: use a smaller model or context"

    def _fits(self, shape: torch.Size, micro_batch: int) -> bool:
        _, _, step = self._step_of(shape, replace(self._maker, micro_batch=micro_batch))
        try:
            with precision(self.dtype), _many_shapes():
                step.capture()
        except torch.OutOfMemoryError:
            return False
        return True


def _many_shapes() -> AbstractContextManager:
    """While active, PyTorch compiles for more shapes than it does by default."""
    import torch._dynamo

    return torch._dynamo.config.patch(recompile_limit=_SHAPES)
