"""Kernel launches with little host overhead, planned once per signature of the arguments.

`kernel[grid](...)` looks up the compiled kernel by inspecting every argument, which takes the host
20 to 60 us for these kernels. Here only the first call of a signature (shapes, strides, dtypes,
alignment) does that; later calls launch the compiled kernel that it returned.
"""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from lmperf.attention.triton.tiles import INTERPRETED, padded

# The launcher is private and Gluon is experimental: both were tested with this version of Triton.
IS_KNOWN = triton.__version__.startswith("3.6.") and torch.version.hip is None
HAS_GLUON = IS_KNOWN and not INTERPRETED

# Signatures cached per kernel.
MOST_PLANS = 4096
# Addresses cached per descriptor.
MOST_ADDRESSES = 32
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
    """

    def __init__(
        self,
        kernel: Callable,
        grid: tuple[int, ...],
        constants: dict[str, Any],
        options: dict[str, int],
        descriptors: tuple[Callable[[Tensor], Any], ...] = (),
    ):
        self._kernel, self._describe = kernel, descriptors
        self._grid = (*grid, 1, 1)[:3]
        self._named = constants | options
        names = kernel.arg_names[len(kernel.arg_names) - len(constants) :]
        self._constants = tuple(constants[name] for name in names)
        self._run: Callable | None = None

    def __call__(self, *arguments: Any) -> None:
        """Launch with all arguments but the constants, in the order of the kernel's parameters."""
        if self._run is None:
            self._first(arguments)
            return
        if self._describe:
            described = [
                y for read, x in zip(self._reads, arguments, strict=False) for y in read(x)
            ]
            arguments = (*described, *arguments[len(self._describe) :])
        self._run(*arguments, *self._constants)

    def _first(self, arguments: tuple) -> None:
        descriptors = [make(x) for make, x in zip(self._describe, arguments, strict=False)]
        rest = arguments[len(self._describe) :]
        compiled = self._kernel[self._grid](*descriptors, *rest, **self._named)
        if INTERPRETED:
            return
        clones = [_clone_of(descriptor) for descriptor in descriptors]
        direct = IS_KNOWN and Direct.of(compiled, self._grid, clones)
        self._reads = direct.reads if direct else clones
        self._run = direct or compiled[self._grid]


class Direct:
    """A launch by the C function of Triton 3.6, in a third of the time of its Python wrapper.

    Attributes:
        reads: for each descriptor, a function from a tensor to the arguments of the C function.
    """

    def __init__(self, launch: Callable, compiled: Any, grid: tuple, reads: list[Callable]):
        launcher = compiled.run
        self._launch, self._grid, self.reads = launch, grid, reads
        self._kernel = (
            *(compiled.function, launcher.launch_cooperative_grid, launcher.launch_pdl),
            *(None, None, compiled.packed_metadata, None, None, None),
        )

    @classmethod
    def of(cls, compiled: Any, grid: tuple, descriptors: list[Callable]) -> "Direct | None":
        """A direct launch of the compiled kernel; None for a kernel that needs scratch memory."""
        launcher = compiled.run
        if launcher.global_scratch_size or launcher.profile_scratch_size:
            return None
        if not descriptors:
            return cls(launcher.launch, compiled, grid, [])
        # The C function is wrapped in a Python function that encodes descriptors.
        launch = inspect.getclosurevars(launcher.launch).nonlocals["launcher"]
        encoded = zip(descriptors, compiled.metadata.tensordesc_meta, strict=True)
        return cls(launch, compiled, grid, [Encoded(*each) for each in encoded])

    def __call__(self, *arguments: Any) -> None:
        stream = torch._C._cuda_getCurrentRawStream(torch.cuda.current_device())
        self._launch(*self._grid, stream, *self._kernel, *arguments)


class Encoded:
    """Encodes TMA descriptors of tensors of one `Form`, and caches them by address."""

    def __init__(self, describe: Callable[[Tensor], list], layout: dict[str, Any]):
        # Used with Triton 3.6 only: other versions have it elsewhere.
        from triton.backends.nvidia.driver import make_tensordesc_arg

        self._encode, self._layout = make_tensordesc_arg, layout
        self._describe, self._known = describe, {}

    def __call__(self, x: Tensor) -> list:
        address = x.data_ptr()
        found = self._known.get(address)
        if found is None:
            if len(self._known) == MOST_ADDRESSES:
                self._known.clear()
            (descriptor,) = self._describe(x)
            # The encoded descriptor does not keep the tensor alive.
            found = self._known[address] = self._encode(descriptor, self._layout)
        return found


def _clone_of(checked: Any) -> Callable[[Tensor], list]:
    """A function that clones a validated TMA descriptor for another tensor of the same form.

    The clone is not validated again.
    """
    kind, attributes = type(checked), vars(checked) | {"base": None}

    def described(x: Tensor) -> list:
        descriptor = object.__new__(kind)
        descriptor.__dict__ = {**attributes, "base": x}
        return [descriptor]

    return described


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
