"""One attention to compute: inputs, gradients, the phases that are timed, and the gate."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor

from lmperf.attention.accuracy import attention_errors, error_bound
from lmperf.attention.cuda_graph import Graphed
from lmperf.attention.reference import attention_float64, bytes_moved, flops
from lmperf.benchmark import Gate, Phase, Workload
from lmperf.precision import precision, storage_dtype

AttentionFunction = Callable[..., Tensor]


@dataclass
class AttentionProblem:
    """q, k, v and the gradient of the output: normal random, [..., seq_len, d_head] of one shape.

    Args:
        shape: [batch, heads, seq_len, d_head] or [batch, seq_len, d_head].
        dtype: value of the dtype axis; TF32 shares its inputs with float32.
        causal: whether query i sees keys 0 ... i only.
        device: where the tensors are.
        seed: of the generator that draws the inputs.
    """

    shape: tuple[int, ...]
    dtype: str
    causal: bool
    device: str
    seed: int

    @classmethod
    def of(
        cls,
        shape: tuple[int, ...],
        dtype: str,
        causal: bool,
        device: str,
        seed: int,
        shared: dict,
    ) -> AttentionProblem:
        """The problem of a case; cases of a group whose inputs are equal share one."""
        stored = storage_dtype(dtype)
        problem = shared.setdefault(("attention", stored), cls(shape, dtype, causal, device, seed))
        if problem.dtype == dtype:
            return problem
        twin = cls(shape, dtype, causal, device, seed)
        twin.__dict__["inputs"] = problem.inputs
        twin.__dict__["reference"] = problem.reference
        return twin

    @cached_property
    def inputs(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """q, k, v, which require gradients, and the gradient of the output."""
        generator = torch.Generator(self.device).manual_seed(self.seed)
        drawn = torch.randn(4, *self.shape, generator=generator, device=self.device)
        *inputs, gradient = (t.to(storage_dtype(self.dtype), copy=True) for t in drawn)
        return (*(t.requires_grad_() for t in inputs), gradient)

    @cached_property
    def reference(self) -> dict[str, Tensor]:
        """Output, logsumexp and gradients in float64."""
        return attention_float64(*self.inputs, causal=self.causal)

    def workload(
        self,
        function: AttentionFunction,
        phases: Sequence[str],
        compiles: bool = False,
        scores_rounded: bool = False,
        graphed: bool = False,
    ) -> Workload:
        """What is timed and checked of an implementation `function(q, k, v, causal=...)`.

        `scores_rounded`: whether it stores the scores in the dtype of its inputs, so that in
        bfloat16 its errors are larger (see `lmperf.attention.accuracy.error_bound`). `graphed`:
        whether each phase is replayed as a CUDA graph.
        """
        calls = {name: self._phase(function, name, graphed) for name in phases}
        return Workload(
            calls,
            gate=lambda present: self._gate(calls, present, scores_rounded),
            resident=list(self.inputs),
            compiles=compiles,
            context=partial(precision, self.dtype),
        )

    def _phase(self, function: AttentionFunction, name: str, graphed: bool) -> Phase:
        *inputs, gradient = self.inputs

        def forward(_: object = None) -> Tensor:
            return function(*inputs, causal=self.causal)

        def backward(out: Tensor) -> tuple[Tensor, ...]:
            # A graph's warm-up runs the same backward pass several times.
            return torch.autograd.grad(out, inputs, gradient, retain_graph=graphed)

        run, before = {
            "forward": (forward, lambda: None),
            "backward": (backward, forward),
            "forward_backward": (lambda _: backward(forward()), lambda: None),
        }[name]
        if graphed:
            run, before = Graphed(run, before), lambda: None
        return Phase(
            run,
            before,
            flops=int(flops(*self._sizes, self.causal, name)),
            bytes=int(bytes_moved(*self._sizes, self.dtype, name)),
        )

    def _gate(
        self, calls: Mapping[str, Phase], present: Sequence[str], scores_rounded: bool
    ) -> Gate:
        """The worst error of each tensor over the results of all phases that are present."""
        errors: dict[str, float] = {}
        for name in present:
            result = calls[name].run(calls[name].before())
            tensors = ("out",) if name == "forward" else ("dq", "dk", "dv")
            results = (result.detach(),) if name == "forward" else result
            found = attention_errors(dict(zip(tensors, results, strict=True)), self.reference)
            errors |= {key: max(error, errors.get(key, 0.0)) for key, error in found.items()}
        bounds = {name: error_bound(name, self.dtype, scores_rounded) for name in errors}
        return Gate(errors, bounds)

    @property
    def _sizes(self) -> tuple[int, int, int, int]:
        *batch, seq_len, d_head = self.shape
        return batch[0], math.prod(batch[1:]), seq_len, d_head
