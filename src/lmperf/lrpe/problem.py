"""One md_lrpe_cosine to compute: inputs, the phases that are timed, and the gate."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from lmperf.attention.accuracy import blockwise_error
from lmperf.benchmark import Gate, Phase, Workload
from lmperf.lrpe.accuracy import FLOAT32, difference_error, error_bounds, norm_error
from lmperf.lrpe.reference import bytes_moved, cosines_float64, flops, largest_angle
from lmperf.precision import storage_dtype

LrpeFunction = Callable[..., Tensor]


@dataclass
class LrpeProblem:
    """X, theta and the gradient of the output, drawn at random.

    theta holds the frequencies of rotary embeddings, 10000^(-c / e), times a factor from 0.5 to 1.5
    of each head and channel, as if they had been learned.

    Args:
        batch: sequences.
        heads: heads, each with a theta of its own.
        shape: lengths of the axes of the positions, the last one fastest.
        d: channels of X a head; the output has twice as many.
        extra_tokens: tokens before the first position.
        dtype: float32, float16 or bfloat16.
        device: where the tensors are.
        seed: of the generator that draws the inputs.
    """

    batch: int
    heads: int
    shape: tuple[int, ...]
    d: int
    extra_tokens: int
    dtype: str
    device: str
    seed: int

    @property
    def tokens(self) -> int:
        return self.extra_tokens + math.prod(self.shape)

    @cached_property
    def generator(self) -> torch.Generator:
        return torch.Generator(self.device).manual_seed(self.seed)

    @cached_property
    def x(self) -> Tensor:
        """[batch, heads, tokens, d], which requires a gradient."""
        return self._normal(self.tokens, self.d).requires_grad_()

    @cached_property
    def gradient(self) -> Tensor:
        """The gradient of the output, [batch, heads, tokens, 2 d]."""
        return self._normal(self.tokens, 2 * self.d)

    def _normal(self, tokens: int, width: int) -> Tensor:
        drawn = torch.empty(
            (self.batch, self.heads, tokens, width),
            dtype=storage_dtype(self.dtype),
            device=self.device,
        )
        return drawn.normal_(generator=self.generator)

    @cached_property
    def theta(self) -> Tensor:
        """[heads, ceil(d / m)] in float32."""
        width = -(-self.d // len(self.shape))
        factors = torch.rand(
            (self.heads, width), generator=self.generator, device=self.device
        ).add_(0.5)
        channels = torch.arange(width, device=self.device)
        return factors * 10000.0 ** (-channels / width)

    @cached_property
    def cosines(self) -> tuple[Tensor, Tensor]:
        """cos and sin of all angles in float64, [heads, tokens, d] each."""
        return cosines_float64(self.theta, self.shape, self.d, self.extra_tokens)

    def encode(self, function: LrpeFunction, x: Tensor) -> Tensor:
        return function(x, self.theta, self.shape, self.extra_tokens)

    def workload(
        self,
        function: LrpeFunction,
        phases: Sequence[str],
        compiles: bool = False,
        angles_rounded: bool = False,
        angles_too: bool = True,
        columns: dict[str, float] | None = None,
    ) -> Workload:
        """What is timed and checked of `function(x, theta, shape, extra_tokens)`.

        angles_rounded: whether it takes the angles in float32, so that its errors grow with them.
        angles_too: whether these are checked apart, in float32, which costs torch.compile another
        compilation. columns: further columns of its rows.
        """
        return Workload(
            {name: self._phase(function, name) for name in phases},
            gate=lambda present: self.gate(function, present, angles_rounded, angles_too),
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
        copies = {
            "forward": Phase(lambda _: wide.copy_(narrow), bytes=moved),
            "backward": Phase(lambda _: narrow.copy_(wide), bytes=moved),
        }
        chosen = {name: copies[name] for name in phases}
        return Workload(chosen, freshen=freshen, resident=[narrow, wide])

    def _phase(self, function: LrpeFunction, name: str) -> Phase:
        sizes = self.batch, self.heads, self.tokens, self.d
        work = {"flops": flops(*sizes, name), "bytes": bytes_moved(*sizes, self.dtype)}
        if name == "forward":
            return Phase(lambda _: self.encode(function, self.x), **work)

        given = self.gradient

        def before() -> tuple[Tensor, Tensor]:
            # The gradient of the output belongs to the backward alone, as in training.
            return self.encode(function, self.x), given.clone()

        def backward(state: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
            out, gradient = state
            return torch.autograd.grad(out, self.x, gradient)

        return Phase(backward, before, **work)

    def gate(
        self,
        function: LrpeFunction,
        phases: Sequence[str],
        angles_rounded: bool = False,
        angles_too: bool = True,
    ) -> Gate:
        """Errors against float64 and of the properties, with their bounds (`lrpe_accuracy`)."""
        off = largest_angle(self.theta, self.shape) * FLOAT32 if angles_rounded else 0.0
        bounds = error_bounds(self.dtype, off)
        errors = self._forward_errors(function)
        if "backward" in phases:
            errors |= self._backward_errors(function)
        errors["difference"] = self._difference_error(function)
        if angles_too:
            errors["angle"] = self._angle_error(function)
        return Gate(errors, {name: bounds[name] for name in errors})

    def _forward_errors(self, function: LrpeFunction) -> dict[str, float]:
        out = self.encode(function, self.x).detach()
        pairs = list(zip(out, self.x.detach(), strict=True))
        return {
            "out": max(blockwise_error(got, self._encoded(x)) for got, x in pairs),
            "norm": max(norm_error(got, x) for got, x in pairs),
        }

    def _backward_errors(self, function: LrpeFunction) -> dict[str, float]:
        out = self.encode(function, self.x)
        (dx,) = torch.autograd.grad(out, self.x, self.gradient)
        pairs = zip(dx, self.gradient, strict=True)
        error = max(blockwise_error(got, self._turned_back(given)) for got, given in pairs)
        del out, dx
        out = self.encode(function, self.x)
        (dx,) = torch.autograd.grad(out, self.x, out.detach())
        pairs = zip(dx, self.x.detach(), strict=True)
        return {"dx": error, "inverse": max(blockwise_error(got, x) for got, x in pairs)}

    def _difference_error(self, function: LrpeFunction) -> float:
        """One vector a head at every position of every sequence; the last sequence counts."""
        same = self.x.detach()[:, :, :1].expand_as(self.x).contiguous().requires_grad_()
        out = self.encode(function, same).detach()[-1]
        return difference_error(out, self.shape, self.extra_tokens)

    def _angle_error(self, function: LrpeFunction) -> float:
        ones = torch.ones((1, *self.x.shape[1:]), device=self.device)
        return blockwise_error(self.encode(function, ones)[0], torch.cat(self.cosines, dim=-1))

    def _encoded(self, x: Tensor) -> Tensor:
        """The output of one sequence [heads, tokens, d], in float64."""
        return torch.cat([x.double() * part for part in self.cosines], dim=-1)

    def _turned_back(self, gradient: Tensor) -> Tensor:
        """dX of one sequence, from its gradient [heads, tokens, 2 d], in float64."""
        parts = gradient.double().chunk(2, dim=-1)
        return sum(part * angle for part, angle in zip(parts, self.cosines, strict=True))
