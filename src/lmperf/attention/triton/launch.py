"""Launching a kernel for the price of a launch: what a signature decides is worked out once.

`kernel[grid](...)` finds its compiled kernel by looking at every argument, which takes the host 20
to 60 us with the arguments of these kernels. Here the first call of a signature (shapes, strides,
dtypes, alignment) goes that way, and later ones launch the compiled kernel that it gave back.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from lmperf.attention.triton.tiles import INTERPRETED, padded

# How many signatures each kernel remembers.
MOST_PLANS = 4096
# What Triton compiles a kernel of its own for, and what the copy engine needs.
ALIGNMENT = 16
LARGEST_STRIDE = 2**22

# Below this many scores the host needs longer to make descriptors than they save.
DESCRIBED_SCORES = 2**22


def form(x: Tensor) -> tuple:
    """The members of x's `Form`, at a third of the time: what signatures are made of."""
    return x.shape, x.stride(), x.dtype, x.device, x.data_ptr() % ALIGNMENT == 0


class Form(NamedTuple):
    """All of a tensor that decides how it is read: everything but its values."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    aligned: bool

    @classmethod
    def of(cls, x: Tensor) -> "Form":
        return cls(*form(x))

    @property
    def addressable(self) -> bool:
        """Whether offsets inside one tile fit into 32 bits."""
        return _fits(self.strides)


class Launch:
    """A kernel on one grid, for arguments of one form.

    Args:
        kernel: its `constexpr` parameters come last.
        grid: programs along up to three axes.
        constants: the `constexpr` parameters.
        options: num_warps and num_stages.
        rows: for each of the first arguments, [b, h, n, d], how many rows a tile of its descriptor
            has; nothing where pointers are read.
    """

    def __init__(
        self,
        kernel: Callable,
        grid: tuple[int, ...],
        constants: dict[str, Any],
        options: dict[str, int],
        rows: tuple[int, ...] = (),
    ):
        self._kernel, self._rows = kernel, rows
        self._grid = (*grid, 1, 1)[:3]
        self._named = constants | options
        names = kernel.arg_names[len(kernel.arg_names) - len(constants) :]
        self._constants = tuple(constants[name] for name in names)
        self._run: Callable | None = None

    def __call__(self, *arguments: Any) -> None:
        """Launches with all that is no constant, in the order of the kernel's parameters."""
        if self._run is None:
            self._first(arguments)
            return
        if self._rows:
            described = map(_described_as, self._descriptors, arguments)
            arguments = (*described, *arguments[len(self._rows) :])
        self._run(*arguments, *self._constants)

    def _first(self, arguments: tuple) -> None:
        descriptors = [
            TensorDescriptor(x, list(x.shape), list(x.stride()), [1, 1, r, padded(x.shape[-1])])
            for x, r in zip(arguments, self._rows, strict=False)
        ]
        rest = arguments[len(self._rows) :]
        compiled = self._kernel[self._grid](*descriptors, *rest, **self._named)
        if INTERPRETED:
            return
        self._descriptors = [vars(descriptor) | {"base": None} for descriptor in descriptors]
        self._run = compiled[self._grid]


def _described_as(attributes: dict[str, Any], x: Tensor) -> TensorDescriptor:
    """A descriptor of x with the attributes of another, which has been checked."""
    descriptor = object.__new__(TensorDescriptor)
    descriptor.__dict__ = {**attributes, "base": x}
    return descriptor


def addressable(x: Tensor) -> Tensor:
    """x, or a contiguous copy where offsets inside one tile would not fit into 32 bits."""
    return x if _fits(x.stride()) else x.contiguous()


def _fits(strides: tuple[int, ...]) -> bool:
    return max(strides[-2:]) < LARGEST_STRIDE


def on_device(device: torch.device, run: Callable, *arguments: Any) -> Any:
    """What `run` returns, with the device current that it launches on."""
    if device.type != "cuda" or device.index == torch.cuda.current_device():
        return run(*arguments)
    with torch.cuda.device(device):
        return run(*arguments)


def describable(*forms: Form) -> bool:
    """Whether the copy engine can read tiles of all of these [b, h, n, d], and it pays."""
    first = forms[0]
    if INTERPRETED or first.dtype.itemsize != 2:
        return False
    if torch.cuda.get_device_capability(first.device)[0] < 9:
        return False
    batch, heads, n, _ = first.shape
    return batch * heads * n * forms[1].shape[2] >= DESCRIBED_SCORES and all(
        map(_is_aligned, forms)
    )


def _is_aligned(x: Form) -> bool:
    *outer, inner = x.strides
    size = x.dtype.itemsize
    return (
        inner == 1
        and x.aligned
        and all(stride > 0 and stride * size % ALIGNMENT == 0 for stride in outer)
    )
