"""One case of the attention benchmark: its inputs, timed phases, and check against float64."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from lmperf.attention.accuracy import TOLERANCES, attention_errors, error_bound, large_score_errors
from lmperf.attention.cuda_graph import captured
from lmperf.attention.inputs import LEAST_TOKENS, FreshInputs
from lmperf.attention.pytorch import pytorch_attention
from lmperf.attention.reference import attention_float64, bytes_moved, flops
from lmperf.attention.rounding import LARGEST_SCORE
from lmperf.benchmark import STRICT, Phase, Workload, WrongResult
from lmperf.gate import Gate
from lmperf.outputs import require_unchanged, tensors_of
from lmperf.precision import precision, storage_dtype

# A timed call is checked on so many sequences that their scores number at most this; the gate
# checks all sequences.
CHECKED_SCORES = {"cpu": 2**21, "cuda": 2**26}

AttentionFunction = Callable[..., Tensor]


@dataclass
class AttentionProblem:
    """q, k, v and dO of one shape, standard normal, and what is computed from them.

    Args:
        shape: [batch, heads, seq_len, d_head] or [batch, seq_len, d_head].
        dtype: a value of the dtype axis.
        causal: whether query i sees keys 0 ... i only.
        device: on which the tensors are.
        seed: of the inputs that the gate is computed on.
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
        """The problem of a benchmark case, which shares inputs and reference with other dtypes.

        Cases whose dtypes are stored alike, such as float32 and TF32, share them through the
        dictionary `shared`.
        """
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
        """The current q, k, v (which require gradients) and dO."""
        return self.fresh.tensors

    @cached_property
    def reference(self) -> dict[str, Tensor]:
        """Output, logsumexp and gradients in float64 for the inputs on which the gate compares."""
        self._draw_gate_inputs()
        return attention_float64(*self.inputs, causal=self.causal)

    def _draw_gate_inputs(self) -> None:
        self.fresh.freshen(self.seed)
        self.fresh.freshen_gradient()

    def workload(
        self,
        function: AttentionFunction,
        phases: Sequence[str],
        compiles: bool = False,
        tolerance: str = STRICT,
        graphed: bool = False,
    ) -> Workload:
        """The phases and checks of an implementation `function(q, k, v, causal=...)`.

        function: with a method `turn`, it is tried in another layout of its inputs before it fails
        its check; see `lmperf.own.attention.Fitted`.
        compiles: whether its first calls compile. tolerance: what it declares to round, `strict` or
        `rounded_scores` (see `accuracy.error_bound`). graphed: replay each phase as a CUDA graph.
        """
        calls = {name: self._phase(function, name, graphed) for name in phases}

        def turn() -> None:
            function.turn()
            calls.update({name: self._phase(function, name, graphed) for name in phases})

        def gate(present: Sequence[str]) -> Gate:
            found = self._gate(calls, present, tolerance)
            if found.passed or not hasattr(function, "turn"):
                return found
            turn()
            with suppress(Exception):
                again = self._gate(calls, present, tolerance)
                if again.passed:
                    return again
            turn()
            return found

        return Workload(
            calls,
            gate=gate,
            freshen=self.fresh.freshen,
            check=lambda name, result: self.check(name, result, tolerance),
            resident=list(self.inputs),
            compiles=compiles,
            context=partial(precision, self.dtype),
        )

    def _phase(self, function: AttentionFunction, name: str, graphed: bool) -> Phase:
        *inputs, gradient = self.inputs

        def forward(_: object = None) -> Tensor:
            return function(*inputs, causal=self.causal)

        def backward(out: Tensor) -> tuple[Tensor, ...]:
            # A capture must not free memory that its replay reads.
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
            full_flops=int(flops(*self._sizes, False, name)) if self.causal else None,
        )

    def _gate(self, calls: Mapping[str, Phase], present: Sequence[str], tolerance: str) -> Gate:
        """The gate (verdict on correctness): largest errors over the phases in `present`.

        Raises:
            WrongResult: as `check`; or a result is wrong if the scores are large.
        """
        reference, errors = self.reference, {}
        for name in present:
            self.fresh.freshen(self.seed)
            state = calls[name].before()
            if name != "backward":  # the `before` of backward has redrawn dO already
                self.fresh.freshen_gradient()
            got = self._results(name, calls[name].run(state))
            found = attention_errors(got, reference)
            errors |= {key: max(error, errors.get(key, 0.0)) for key, error in found.items()}

        def pytorch() -> dict[str, float]:
            self._draw_gate_inputs()
            return attention_errors(self._by_pytorch(errors, self.inputs), reference)

        gate = self._judged(errors, tolerance, pytorch)
        if not gate.passed:
            gate = replace(gate, advice=self._advice(errors, tolerance))
        if gate.passed and self.shape[-2] >= LEAST_TOKENS:
            for name in present:
                self._require_large_scores(name, calls[name], tolerance)
        return gate

    def _require_large_scores(self, name: str, call: Phase, tolerance: str) -> None:
        """Raise WrongResult if a phase is wrong on inputs with large scores, in some sequences."""
        self.fresh.freshen(self.seed, large_scores=True)
        got = self._results(name, call.run(call.before()))
        chosen = self._chosen()
        inputs = [_sequences(tensor.detach(), chosen) for tensor in self.inputs]
        reference = attention_float64(*inputs, causal=self.causal)
        found = large_score_errors({k: _sequences(t, chosen) for k, t in got.items()}, reference)
        bounds = {key: error_bound(key, self.dtype, tolerance, LARGEST_SCORE) for key in found}
        gate = Gate(found, bounds)
        if not gate.passed:
            worst = gate.worst
            raise WrongResult(
                f"{worst} differs from the float64 reference if the scores are large:"
                f" error {found[worst]:.2g}, bound {bounds[worst]:.2g}"
                f"{self._advice(found, tolerance, LARGEST_SCORE)}"
            )

    def _advice(
        self, errors: Mapping[str, float], tolerance: str, largest_score: float = 0.0
    ) -> str:
        """Which tolerance allows such errors, to follow a reason; empty if none does."""
        for other in TOLERANCES:
            bounds = {key: error_bound(key, self.dtype, other, largest_score) for key in errors}
            if other != tolerance and Gate(errors, bounds).passed:
                stored = f"if it stores its scores in {self.dtype}"
                return f"; {stored}, as plain PyTorch does, declare tolerance: {other}"
        return ""

    def check(self, phase: str, result: Any, tolerance: str = STRICT) -> Gate:
        """The gate (verdict on correctness) of one timed call's result, on the current inputs.

        Checks a random sample of the sequences: the reference costs more than the call.

        Raises:
            WrongResult: the result has a wrong type, shape, dtype or device, or the call changed
                its inputs.
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

        return self._judged(errors, tolerance, pytorch)

    def _results(self, phase: str, result: Any) -> dict[str, Tensor]:
        forward = phase == "forward"
        names = ("out",) if forward else ("dq", "dk", "dv")
        got = tensors_of((result,) if forward else result, dict.fromkeys(names, self.inputs[0]))
        require_unchanged(self.fresh.changed())
        return got

    def _chosen(self) -> list[int]:
        """A random sample of the sequences: at least one, at most CHECKED_SCORES scores."""
        *batch, seq_len, _ = self.shape
        most = CHECKED_SCORES["cuda" if self.device == "cuda" else "cpu"] // seq_len**2
        count = math.prod(batch)
        return random.SystemRandom().sample(range(count), max(1, min(count, most)))

    def _judged(
        self,
        errors: Mapping[str, float],
        tolerance: str,
        pytorch: Callable[[], Mapping[str, float]],
    ) -> Gate:
        bounds = {name: error_bound(name, self.dtype, tolerance) for name in errors}
        return Gate(errors, bounds, pytorch)

    def _by_pytorch(self, names: Collection[str], inputs: Sequence[Tensor]) -> dict[str, Tensor]:
        """The results in `names`, computed by PyTorch's own attention."""
        *leaves, gradient = inputs
        with precision(self.dtype):
            out = pytorch_attention(*leaves, causal=self.causal)
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
    """The chosen sequences of [..., seq_len, d_head], as [len(chosen), seq_len, d_head]."""
    return tensor.reshape(-1, *tensor.shape[-2:])[chosen]
