"""Operands of both gradient kernels (q, k, v, dO, logsumexp, delta), and their launch."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from lmperf.attention.triton.arguments import scale_of
from lmperf.attention.triton.configurations import Configuration, products_of
from lmperf.attention.triton.halves import SHIFT, Halves
from lmperf.attention.triton.launch import Form, Launch, tiles_of, tma_readable
from lmperf.attention.triton.tiles import LOG2_E, dot_precision, load_tile, padded

DELTA_ROWS = 32


@triton.jit(do_not_specialize=("heads", "n"))
def delta_kernel(
    out,
    grad_out,
    delta,
    strides_out,
    strides_grad,
    heads,
    n,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Write delta = rowsum(dO * O), [b, h, n] float32, for one tile of queries."""
    tiles = tl.cdiv(n, BLOCK)
    sequence = tl.program_id(0) // tiles
    batch, head = sequence // heads, sequence % heads
    start = tl.program_id(0) % tiles * BLOCK
    o = load_tile(out, strides_out, batch, head, start, n, D, BLOCK, BLOCK_D, True, False)
    do = load_tile(grad_out, strides_grad, batch, head, start, n, D, BLOCK, BLOCK_D, True, False)
    rows = start + tl.arange(0, BLOCK)
    delta += tl.cast(sequence, tl.int64) * n
    tl.store(delta + rows, tl.sum(o.to(tl.float32) * do.to(tl.float32), 1), rows < n)


class Operands(NamedTuple):
    """Operands of a gradient kernel.

    Attributes:
        tensors: q, k, v, dO, each [b, h, n or m, d]; or each split into a high and a low float16
            half, [2 b, h, n or m, d].
        sizes: max |x| of each of the four tensors if the tensors are split into halves, else None.
        lse, delta: [b, h, n] float32.
    """

    tensors: Sequence[Tensor]
    sizes: Tensor | None
    lse: Tensor
    delta: Tensor


class Delta:
    """Launches `delta_kernel` for out and grad_out [b, h, n, d] of any strides."""

    def __init__(self, out: Form, grad_out: Form):
        batch, heads, n, d = out.shape
        self._rows = (batch, heads, n)
        self._launch = Launch(
            delta_kernel,
            (triton.cdiv(n, DELTA_ROWS) * batch * heads,),
            {"D": d, "BLOCK": DELTA_ROWS, "BLOCK_D": padded(d)},
            {"num_warps": 4},
        )
        self._arguments = (out.strides, grad_out.strides, heads, n)

    def __call__(self, out: Tensor, grad_out: Tensor) -> Tensor:
        """Returns delta = rowsum(dO * O), [b, h, n] float32."""
        delta = torch.empty(self._rows, dtype=torch.float32, device=out.device)
        self._launch(out, grad_out, delta, *self._arguments)
        return delta


class Inputs:
    """Forms of q, k, v and dO as the gradient kernels read them: as given, or split into halves."""

    def __init__(
        self,
        q: Form,
        k: Form,
        v: Form,
        grad_out: Form,
        causal: bool,
        scale: float,
        precision: str,
    ):
        self.shape, self.keys = q.shape, k.shape[2]
        self.dtype, self.device = q.dtype, q.device
        self.causal, self.scale = causal, scale
        self.products, self.precision = products_of(q.dtype), precision
        forms = (q, k, v, grad_out)
        self._halves = Halves(*forms) if self.products == 3 else None
        self.forms = self._halves.forms if self._halves else forms

    def operands(
        self, q: Tensor, k: Tensor, v: Tensor, grad_out: Tensor, lse: Tensor, delta: Tensor
    ) -> Operands:
        tensors, sizes = (q, k, v, grad_out), None
        if self._halves:
            sizes, tensors = self._halves(*tensors)
        return Operands(tensors, sizes, lse, delta)


def operands_of(
    x: Sequence[Tensor], lse: Tensor, delta: Tensor, causal: bool
) -> tuple[Inputs, Operands]:
    """The forms and operands needed to call a gradient kernel alone, with the default scale.

    x: q, k, v, dO [b, h, n, d]; lse, delta: [b, h, n] float32.
    """
    q = x[0]
    precision = dot_precision(q.dtype)
    reads = Inputs(*map(Form.of, x), causal, scale_of(None, q.shape[-1]), precision)
    return reads, reads.operands(*x, lse, delta)


class GradientLaunch:
    """Launches a gradient kernel with `tiles` tiles per sequence.

    tail: whether the length that a program loops over is not a multiple of its tile.
    """

    def __init__(
        self,
        kernel: Callable,
        x: Inputs,
        tiles: int,
        splits: int,
        c: Configuration,
        tail: bool,
    ):
        batch, heads, n, d = x.shape
        is_described = tma_readable(*x.forms)
        self._launch = Launch(
            kernel,
            (tiles * batch * heads, splits),
            {
                "D": d, "BLOCK_M": c.block_m, "BLOCK_N": c.block_n, "BLOCK_D": padded(d),
                "CAUSAL": x.causal, "TAIL": tail, "SPLIT": splits > 1, "DESCRIBED": is_described,
                "PRODUCTS": x.products, "PRECISION": x.precision,
                "P_SHIFT": SHIFT if x.products == 3 else 0,
            },
            {"num_warps": c.num_warps, "num_stages": c.num_stages},
            tiles_of(c.block_m, c.block_n, c.block_n, c.block_m) if is_described else (),
        )  # fmt: skip
        self._strides = tuple(form.strides for form in x.forms)
        self._scalars = (batch, heads, n, x.keys, c.chunk, x.scale, x.scale * LOG2_E.value)

    def __call__(
        self, x: Operands, results: Sequence[Tensor], strides: Sequence[tuple[int, ...]]
    ) -> None:
        """Write the results or, if the loop is split, their parts; `strides` are the results'."""
        self._launch(
            *x.tensors, x.sizes, x.lse, x.delta, *results, *self._strides, *strides, *self._scalars
        )
