"""Kernel launches with little host overhead, planned once per signature of the arguments.

`kernel[grid](...)` looks up the compiled kernel by inspecting every argument, which takes the host
20 to 60 us for these kernels. Here only the first call of a signature (shapes, strides, dtypes,
alignment) does that; later calls launch the compiled kernel that it returned.
"""

from collections.abc import Callable
from threading import Lock
from typing import Any, NamedTuple

import torch
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from lmperf.attention.triton.tiles import INTERPRETED, padded

# Signatures cached per kernel.
MOST_PLANS = 4096
# Alignment of addresses in bytes: TMA needs it, and Triton specialises kernels for it.
ALIGNMENT = 16
LARGEST_STRIDE = 2**22

# With fewer scores, encoding TMA descriptors takes the host longer than they save.
DESCRIBED_SCORES = 2**22


def form(x: Tensor) -> tuple:
    """Same values as `Form.of(x)`, in a plain tuple, which takes a third of the time to make."""
    return x.shape, x.stride(), x.dtype, x.device, x.data_ptr() % ALIGNMENT == 0


class Form(NamedTuple):
    """Shape, strides, dtype, device and 16-byte alignment of a tensor, [b, h, n, d]."""

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
        """Whether the offsets of all elements inside a tile fit in 32 bits."""
        return _fits(self.strides)


class Launch:
    """Launches a kernel on one grid, for arguments of one signature.

    Args:
        kernel: a JIT function whose `constexpr` parameters come last.
        grid: programs along up to three axes.
        constants: the `constexpr` parameters by name.
        options: num_warps and num_stages.
        descriptors: functions that make a TMA descriptor of the first arguments, one for each;
            empty if the kernel takes pointers.

    Attributes:
        kernel: the JIT function.
        named: its constants and options by name.
    """

    def __init__(
        self,
        kernel: Callable,
        grid: tuple[int, ...],
        constants: dict[str, Any],
        options: dict[str, int],
        descriptors: tuple[Callable[[Tensor], Any], ...] = (),
    ):
        self.kernel, self.named = kernel, constants | options
        self._grid, self._describe = (*grid, 1, 1)[:3], descriptors
        names = kernel.arg_names[len(kernel.arg_names) - len(constants) :]
        self._constants = tuple(constants[name] for name in names)
        self._descriptors, self._lock = [], Lock()
        self._run: Callable | None = None

    def __call__(self, *arguments: Any) -> None:
        """Launch with all arguments but the constants, in the order of the kernel's parameters."""
        if self._run is None:
            self._first(arguments)
            return
        # A descriptor serves all tensors of the signature in turn, and keeps none of them alive.
        with self._lock:
            for descriptor, x in zip(self._descriptors, arguments, strict=False):
                descriptor.base = x
            rest = arguments[len(self._descriptors) :]
            self._run(*self._descriptors, *rest, *self._constants)
            for descriptor in self._descriptors:
                descriptor.base = None

    def _first(self, arguments: tuple) -> None:
        descriptors, rest = self._described(arguments)
        compiled = self.kernel[self._grid](*descriptors, *rest, **self.named)
        if INTERPRETED:
            return
        for descriptor in descriptors:
            descriptor.base = None
        self._descriptors = descriptors
        self._run = compiled[self._grid]

    def compiled(self, *arguments: Any) -> Any:
        """The compiled kernel for these arguments, which may be tensors on the meta device."""
        descriptors, rest = self._described(arguments)
        return self.kernel.warmup(*descriptors, *rest, grid=self._grid, **self.named)

    def _described(self, arguments: tuple) -> tuple[list, tuple]:
        descriptors = [make(x) for make, x in zip(self._describe, arguments, strict=False)]
        return descriptors, arguments[len(self._describe) :]


def tiles_of(*rows: int) -> tuple[Callable[[Tensor], TensorDescriptor], ...]:
    """For each number of rows, a function from x [b, h, n, d] to a TMA descriptor of tiles."""

    def of(tile: int) -> Callable[[Tensor], TensorDescriptor]:
        def described(x: Tensor) -> TensorDescriptor:
            box = [1, 1, tile, padded(x.shape[-1])]
            return TensorDescriptor(x, list(x.shape), list(x.stride()), box)

        return described

    return tuple(map(of, rows))


def addressable(x: Tensor) -> Tensor:
    """x, or a contiguous copy if offsets inside a tile do not fit into 32 bits."""
    return x if _fits(x.stride()) else copied(x)


def copied(x: Tensor) -> Tensor:
    """A contiguous, aligned copy of x, even if torch already calls x contiguous."""
    return x.clone(memory_format=torch.contiguous_format)


def _fits(strides: tuple[int, ...]) -> bool:
    return max(strides[-2:]) < LARGEST_STRIDE


def on_device(device: torch.device, run: Callable, *arguments: Any) -> Any:
    """Call `run(*arguments)` with `device` as the current CUDA device; returns its result."""
    if device.type != "cuda" or device.index == torch.cuda.current_device():
        return run(*arguments)
    with torch.cuda.device(device):
        return run(*arguments)


def tma_readable(*forms: Form) -> bool:
    """Whether TMA can read tiles of all these [b, h, n, d] tensors, and the work is worth it."""
    first = forms[0]
    if INTERPRETED or torch.version.hip is not None or first.dtype.itemsize != 2:
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
