"""One attention to compute: inputs, gradients, the phases that are timed, and the gate."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from lmperf.attention.accuracy import attention_errors, error_bound
from lmperf.attention.cuda_graph import captured
from lmperf.attention.inputs import FreshInputs
from lmperf.attention.library import by_pytorch
from lmperf.attention.reference import attention_float64, bytes_moved, flops
from lmperf.benchmark import STRICT, Phase, Workload
from lmperf.gate import Gate
from lmperf.outputs import require_unchanged, tensors_of
from lmperf.precision import precision, storage_dtype

# Scores of the sequences that are checked of a timed call; the gate checks all.
CHECKED_SCORES = {"cpu": 2**21, "cuda": 2**26}

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
        twin.__dict__["fresh"] = problem.fresh
        twin.__dict__["reference"] = problem.reference
        return twin

    @cached_property
    def fresh(self) -> FreshInputs:
        return FreshInputs(self.shape, storage_dtype(self.dtype), self.device, self.seed)

    @property
    def inputs(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """q, k, v, which require gradients, and the gradient of the output, as they are now."""
        return self.fresh.tensors

    @cached_property
    def reference(self) -> dict[str, Tensor]:
        """Output, logsumexp and gradients of the inputs of the gate, in float64."""
        self._as_in_gate()
        return attention_float64(*self.inputs, causal=self.causal)

    def _as_in_gate(self) -> None:
        self.fresh.freshen(self.seed)
        self.fresh.freshen_gradient()

    def workload(
        self,
        function: AttentionFunction,
        phases: Sequence[str],
        compiles: bool = False,
        numerics: str = STRICT,
        graphed: bool = False,
    ) -> Workload:
        """What is timed and checked of an implementation `function(q, k, v, causal=...)`.

        `numerics`: what it declares to round, strict or `rounded_scores` (see
        `lmperf.attention.accuracy.error_bound`). `graphed`: whether each phase is replayed as a
        CUDA graph.
        """
        calls = {name: self._phase(function, name, graphed) for name in phases}
        return Workload(
            calls,
            gate=lambda present: self._gate(calls, present, numerics),
            freshen=self.fresh.freshen,
            check=lambda name, result: self.check(name, result, numerics),
            resident=list(self.inputs),
            compiles=compiles,
            context=partial(precision, self.dtype),
        )

    def _phase(self, function: AttentionFunction, name: str, graphed: bool) -> Phase:
        *inputs, gradient = self.inputs

        def forward(_: object = None) -> Tensor:
            return function(*inputs, causal=self.causal)

        def backward(out: Tensor) -> tuple[Tensor, ...]:
            # The capture of a graph may not free what its replay reads.
            return torch.autograd.grad(out, inputs, gradient, retain_graph=graphed)

        chain = {
            "forward": [forward],
            "backward": [forward, backward],
            "forward_backward": [lambda _: backward(forward())],
        }[name]
        *forwards, run = captured(chain) if graphed else chain

        def before() -> Any:
            out = forwards[0](None)
            self.fresh.freshen_gradient()
            return out

        return Phase(
            run,
            before if forwards else lambda: None,
            flops=int(flops(*self._sizes, self.causal, name)),
            bytes=int(bytes_moved(*self._sizes, self.dtype, name)),
        )

    def _gate(self, calls: Mapping[str, Phase], present: Sequence[str], numerics: str) -> Gate:
        """The worst error of each tensor over the results of all phases that are present."""
        reference, errors = self.reference, {}
        for name in present:
            self.fresh.freshen(self.seed)
            state = calls[name].before()
            if name != "backward":  # which has drawn it after its forward
                self.fresh.freshen_gradient()
            got = self._results(name, calls[name].run(state))
            found = attention_errors(got, reference)
            errors |= {key: max(error, errors.get(key, 0.0)) for key, error in found.items()}

        def pytorch() -> dict[str, float]:
            self._as_in_gate()
            return attention_errors(self._by_pytorch(errors, self.inputs), reference)

        return self._judged(errors, numerics, pytorch)

    def check(self, phase: str, result: Any, numerics: str = STRICT) -> Gate:
        """What a call of a phase returned, against the reference of the inputs as they are now.

        Of many sequences some are chosen by chance: the reference costs more than the call.

        Raises:
            WrongResult: another type, shape, dtype or device, or the call changed its inputs.
        """
        got = self._results(phase, result)
        chosen = self._chosen()
        inputs = [_sequences(tensor.detach(), chosen) for tensor in self.inputs]
        reference = attention_float64(*inputs, causal=self.causal)
        errors = attention_errors({k: _sequences(t, chosen) for k, t in got.items()}, reference)

        def pytorch() -> dict[str, float]:
            *leaves, gradient = inputs
            leaves = [leaf.clone().requires_grad_() for leaf in leaves]
            return attention_errors(self._by_pytorch(errors, [*leaves, gradient]), reference)

        return self._judged(errors, numerics, pytorch)

    def _results(self, phase: str, result: Any) -> dict[str, Tensor]:
        forward = phase == "forward"
        names = ("out",) if forward else ("dq", "dk", "dv")
        got = tensors_of((result,) if forward else result, dict.fromkeys(names, self.inputs[0]))
        require_unchanged(self.fresh.changed())
        return got

    def _chosen(self) -> list[int]:
        """Some of the sequences, by chance: as many as have CHECKED_SCORES, and at least one."""
        *batch, seq_len, _ = self.shape
        most = CHECKED_SCORES["cuda" if self.device == "cuda" else "cpu"] // seq_len**2
        count = math.prod(batch)
        return random.SystemRandom().sample(range(count), max(1, min(count, most)))

    def _judged(
        self,
        errors: Mapping[str, float],
        numerics: str,
        pytorch: Callable[[], Mapping[str, float]],
    ) -> Gate:
        bounds = {name: error_bound(name, self.dtype, numerics) for name in errors}
        return Gate(errors, bounds, pytorch)

    def _by_pytorch(self, names: Collection[str], inputs: Sequence[Tensor]) -> dict[str, Tensor]:
        """What PyTorch itself gives, of the named results."""
        *leaves, gradient = inputs
        with precision(self.dtype):
            out = by_pytorch(*leaves, causal=self.causal)
            got = {"out": out.detach()}
            if set(names) - {"out"}:
                gradients = torch.autograd.grad(out, leaves, gradient)
                got |= zip(("dq", "dk", "dv"), gradients, strict=True)
        return {name: got[name] for name in names}

    @property
    def _sizes(self) -> tuple[int, int, int, int]:
        *batch, seq_len, d_head = self.shape
        return batch[0], math.prod(batch[1:]), seq_len, d_head


def _sequences(tensor: Tensor, chosen: Sequence[int]) -> Tensor:
    """Some sequences of [..., seq_len, d_head], as [len(chosen), seq_len, d_head]."""
    return tensor.reshape(-1, *tensor.shape[-2:])[chosen]
