"""One case of the md_lrpe_cosine benchmark: inputs, timed phases, check against float64."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from lmperf.attention.accuracy import blockwise_error
from lmperf.benchmark import STRICT, Phase, Workload
from lmperf.copies import fastest_copy
from lmperf.gate import Gate
from lmperf.lrpe.accuracy import difference_error, error_bounds, norm_error
from lmperf.lrpe.inputs import FreshInputs
from lmperf.lrpe.reference import (
    bytes_moved,
    cosines_float64,
    encoded_float64,
    flops,
    largest_angle,
    lrpe_cosine,
    turned_back_float64,
)
from lmperf.outputs import require_unchanged, tensors_of
from lmperf.precision import storage_dtype

# How many sequences of a timed call are checked; the gate before the timing checks all.
CHECKED_SEQUENCES = 2

LrpeFunction = Callable[..., Tensor]


@dataclass
class LrpeProblem:
    """X, theta and dOut, drawn at random (`FreshInputs`), and what is computed from them.

    Args:
        batch: number of sequences.
        heads: number of heads, each with its own theta.
        shape: lengths of the axes of the positions, the last one fastest.
        d: channels of X per head; the output has twice as many.
        extra_tokens: tokens before the first position.
        dtype: float32, float16 or bfloat16.
        device: on which the tensors are.
        seed: of the inputs that the gate is computed on.
    """

    batch: int
    heads: int
    shape: tuple[int, ...]
    d: int
    extra_tokens: int
    dtype: str
    device: str
    seed: int
    _cosines: tuple[int, tuple[Tensor, Tensor]] | None = field(default=None, init=False)

    @property
    def tokens(self) -> int:
        return self.extra_tokens + math.prod(self.shape)

    @cached_property
    def fresh(self) -> FreshInputs:
        sizes = self.batch, self.heads, self.tokens, self.d
        dtype = storage_dtype(self.dtype)
        return FreshInputs(sizes, len(self.shape), dtype, self.device, self.seed)

    @property
    def x(self) -> Tensor:
        """The current X [batch, heads, tokens, d], which requires a gradient."""
        return self.fresh.x

    @property
    def theta(self) -> Tensor:
        """The current theta [heads, ceil(d / m)], in float32."""
        return self.fresh.theta

    @property
    def cosines(self) -> tuple[Tensor, Tensor]:
        """cos and sin of all angles in float64, for the current theta; [heads, tokens, d] each."""
        if self._cosines is None or self._cosines[0] != self.fresh.drawn:
            made = cosines_float64(self.theta, self.shape, self.d, self.extra_tokens)
            self._cosines = self.fresh.drawn, made
        return self._cosines[1]

    def encode(self, function: LrpeFunction, x: Tensor) -> Tensor:
        return function(x, self.theta, self.shape, self.extra_tokens)

    def workload(
        self,
        function: LrpeFunction,
        phases: Sequence[str],
        compiles: bool = False,
        tolerance: str = STRICT,
        angles_too: bool = True,
        columns: dict[str, float] | None = None,
    ) -> Workload:
        """The phases and checks of an implementation `function(x, theta, shape, extra_tokens)`.

        compiles: whether its first calls compile. tolerance: what it declares to round, `strict` or
        `rounded_angles` (see `lrpe.accuracy`). angles_too: whether the gate also checks the angles,
        in float32, for which torch.compile compiles once more. columns: additional columns.
        """
        return Workload(
            {name: self._phase(function, name) for name in phases},
            gate=lambda present: self.gate(function, present, tolerance, angles_too),
            freshen=self.fresh.freshen,
            check=lambda name, result: self.check(name, result, tolerance),
            resident=[self.x, self.theta],
            compiles=compiles,
            columns=columns or {},
        )

    def copy(self, phases: Sequence[str]) -> Workload:
        """The bandwidth baseline: a copy in PyTorch of as many bytes as each pass moves.

        Forward reads X and writes twice as many bytes: a copy from bfloat16 to float32. Backward is
        the opposite. Only the number of bytes matters: every dtype is compared with these copies.
        """
        narrow = torch.empty(self.x.nbytes // 2, dtype=torch.bfloat16, device=self.device)
        wide = torch.empty_like(narrow, dtype=torch.float32)
        moved = narrow.nbytes + wide.nbytes

        def freshen(seed: int) -> None:
            wide.normal_(generator=torch.Generator(self.device).manual_seed(seed))
            narrow.copy_(wide)

        freshen(self.seed)
        copies = {"forward": fastest_copy(wide, narrow), "backward": fastest_copy(narrow, wide)}
        chosen = {name: Phase(lambda _, copy=copies[name]: copy(), bytes=moved) for name in phases}
        return Workload(chosen, freshen=freshen, resident=[narrow, wide])

    def _phase(self, function: LrpeFunction, name: str) -> Phase:
        sizes = self.batch, self.heads, self.tokens, self.d
        work = {"flops": flops(*sizes, name), "bytes": bytes_moved(*sizes, self.dtype)}
        if name == "forward":
            return Phase(lambda _: self.encode(function, self.x), **work)

        def before() -> tuple[Tensor, Tensor]:
            # dOut is allocated after the forward pass, as in training.
            return self.encode(function, self.x), self.fresh.fresh_gradient()

        def backward(state: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
            out, gradient = state
            return torch.autograd.grad(out, self.x, gradient)

        return Phase(backward, before, **work)

    def gate(
        self,
        function: LrpeFunction,
        phases: Sequence[str],
        tolerance: str = STRICT,
        angles_too: bool = True,
    ) -> Gate:
        """The gate (verdict on correctness): errors against float64, errors of properties, bounds.

        See `lrpe.accuracy` for the properties and the bounds.

        Raises:
            WrongResult: a result has a wrong type, shape, dtype or device, or a call changed its
                inputs.
        """

        def errors(called: LrpeFunction) -> dict[str, float]:
            everywhere = list(range(self.batch))
            self.fresh.freshen(self.seed)
            found = self._errors("forward", self._called(called, "forward"), everywhere)
            if "backward" in phases:
                gradients = self._called(called, "backward")
                found |= self._errors("backward", gradients, everywhere)
                found["inverse"] = self._inverse_error(called)
            found["difference"] = self._difference_error(called)
            return found | ({"angle": self._angle_error(called)} if angles_too else {})

        return self._judged(errors(function), tolerance, partial(errors, lrpe_cosine))

    def check(self, phase: str, result: Any, tolerance: str = STRICT) -> Gate:
        """The gate (verdict on correctness) of one timed call's result, on the current inputs.

        Checks a random sample of the sequences: the reference costs more than the call.

        Raises:
            WrongResult: the result has a wrong type, shape, dtype or device, or the call changed
                its inputs.
        """
        count = min(self.batch, CHECKED_SEQUENCES)
        chosen = random.SystemRandom().sample(range(self.batch), count)

        def pytorch() -> dict[str, float]:
            return self._errors(phase, self._called(lrpe_cosine, phase), chosen)

        return self._judged(self._errors(phase, result, chosen), tolerance, pytorch)

    def _called(self, function: LrpeFunction, name: str) -> Any:
        phase = self._phase(function, name)
        return phase.run(phase.before())

    def _judged(
        self,
        errors: dict[str, float],
        tolerance: str,
        pytorch: Callable[[], dict[str, float]],
    ) -> Gate:
        bounds = error_bounds(self.dtype, tolerance, largest_angle(self.theta, self.shape))
        return Gate(errors, {name: bounds[name] for name in errors}, pytorch)

    def _errors(self, phase: str, result: Any, sequences: list[int]) -> dict[str, float]:
        """The largest errors of the result of a phase over these sequences, by name."""
        forward = phase == "forward"
        like = {"out": self._like_out} if forward else {"dx": self.x}
        (got,) = tensors_of((result,) if forward else result, like).values()
        require_unchanged(self.fresh.changed())
        cosines = self.cosines
        if not forward:
            gradient = self.fresh.gradient()
            expected = (turned_back_float64(gradient[i], cosines) for i in sequences)
            return {"dx": max(map(blockwise_error, got[sequences], expected))}
        x, got = self.x.detach()[sequences], got[sequences]
        return {
            "out": max(map(blockwise_error, got, (encoded_float64(one, cosines) for one in x))),
            "norm": max(map(norm_error, got, x)),
        }

    @property
    def _like_out(self) -> Tensor:
        x = self.x
        return torch.empty((), dtype=x.dtype, device=x.device).expand(*x.shape[:-1], 2 * self.d)

    def _inverse_error(self, function: LrpeFunction) -> float:
        out = self.encode(function, self.x)
        (dx,) = torch.autograd.grad(out, self.x, out.detach())
        return max(map(blockwise_error, dx, self.x.detach()))

    def _difference_error(self, function: LrpeFunction) -> float:
        """`difference_error` of the last sequence, with the same vector at every position."""
        same = self.x.detach()[:, :, :1].expand_as(self.x).contiguous().requires_grad_()
        out = self.encode(function, same).detach()[-1]
        return difference_error(out, self.shape, self.extra_tokens)

    def _angle_error(self, function: LrpeFunction) -> float:
        ones = torch.ones((1, *self.x.shape[1:]), device=self.device)
        return blockwise_error(self.encode(function, ones)[0], torch.cat(self.cosines, dim=-1))
