"""One md_lrpe_cosine to compute: inputs, the phases that are timed, and the gate."""

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

# Sequences that are checked of a timed call; the gate checks all.
CHECKED = 2

LrpeFunction = Callable[..., Tensor]


@dataclass
class LrpeProblem:
    """X, theta and the gradient of the output, drawn at random (`FreshInputs`).

    Args:
        batch: sequences.
        heads: heads, each with a theta of its own.
        shape: lengths of the axes of the positions, the last one fastest.
        d: channels of X a head; the output has twice as many.
        extra_tokens: tokens before the first position.
        dtype: float32, float16 or bfloat16.
        device: where the tensors are.
        seed: of the generators that draw the inputs.
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
        """[batch, heads, tokens, d], which requires a gradient, as it is now."""
        return self.fresh.x

    @property
    def theta(self) -> Tensor:
        """[heads, ceil(d / m)] in float32, as it is now."""
        return self.fresh.theta

    @property
    def cosines(self) -> tuple[Tensor, Tensor]:
        """cos and sin of all angles of the present theta in float64, [heads, tokens, d] each."""
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
        numerics: str = STRICT,
        angles_too: bool = True,
        columns: dict[str, float] | None = None,
    ) -> Workload:
        """What is timed and checked of `function(x, theta, shape, extra_tokens)`.

        numerics: what it declares to round, strict or `rounded_angles` (see `lrpe.accuracy`).
        angles_too: whether these are checked apart, in float32, which costs torch.compile another
        compilation. columns: further columns of its rows.
        """
        return Workload(
            {name: self._phase(function, name) for name in phases},
            gate=lambda present: self.gate(function, present, numerics, angles_too),
            freshen=self.fresh.freshen,
            check=lambda name, result: self.check(name, result, numerics),
            resident=[self.x, self.theta],
            compiles=compiles,
            columns=columns or {},
        )

    def copy(self, phases: Sequence[str]) -> Workload:
        """PyTorch's copy of the bytes that each direction moves: the yardstick.

        Forward, x is read and twice as much is written: a copy of bfloat16 to float32. Backward it
        is the other way round. What the bytes stand for does not matter, so that this is the copy
        for every dtype.
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
            # The gradient of the output belongs to the backward alone, as in training.
            return self.encode(function, self.x), self.fresh.fresh_gradient()

        def backward(state: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
            out, gradient = state
            return torch.autograd.grad(out, self.x, gradient)

        return Phase(backward, before, **work)

    def gate(
        self,
        function: LrpeFunction,
        phases: Sequence[str],
        numerics: str = STRICT,
        angles_too: bool = True,
    ) -> Gate:
        """Errors against float64 and of the properties, with their bounds (`lrpe.accuracy`).

        Raises:
            WrongResult: another type, shape, dtype or device, or the inputs changed.
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

        return self._judged(errors(function), numerics, partial(errors, lrpe_cosine))

    def check(self, phase: str, result: Any, numerics: str = STRICT) -> Gate:
        """What a call of a phase returned, against float64 on the inputs as they are now.

        Of the sequences some are chosen by chance: the reference costs more than the call.

        Raises:
            WrongResult: another type, shape, dtype or device, or the call changed its inputs.
        """

        chosen = random.SystemRandom().sample(range(self.batch), min(self.batch, CHECKED))

        def pytorch() -> dict[str, float]:
            return self._errors(phase, self._called(lrpe_cosine, phase), chosen)

        return self._judged(self._errors(phase, result, chosen), numerics, pytorch)

    def _called(self, function: LrpeFunction, name: str) -> Any:
        phase = self._phase(function, name)
        return phase.run(phase.before())

    def _judged(
        self,
        errors: dict[str, float],
        numerics: str,
        pytorch: Callable[[], dict[str, float]],
    ) -> Gate:
        bounds = error_bounds(self.dtype, numerics, largest_angle(self.theta, self.shape))
        return Gate(errors, {name: bounds[name] for name in errors}, pytorch)

    def _errors(self, phase: str, result: Any, sequences: list[int]) -> dict[str, float]:
        """Errors of what a phase returned: of these sequences, the largest counts."""
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
        """One vector a head at every position of every sequence; the last sequence counts."""
        same = self.x.detach()[:, :, :1].expand_as(self.x).contiguous().requires_grad_()
        out = self.encode(function, same).detach()[-1]
        return difference_error(out, self.shape, self.extra_tokens)

    def _angle_error(self, function: LrpeFunction) -> float:
        ones = torch.ones((1, *self.x.shape[1:]), device=self.device)
        return blockwise_error(self.encode(function, ones)[0], torch.cat(self.cosines, dim=-1))
