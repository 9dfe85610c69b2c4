"""Launching a kernel for the price of a launch: what a signature decides is worked out once.

`kernel[grid](...)` finds its compiled kernel by looking at every argument, which takes the host 20
to 60 us with the arguments of these kernels. Here the first call of a signature (shapes, strides,
dtypes, alignment) goes that way, and later ones launch the compiled kernel that it gave back.
"""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from lmperf.attention.triton.tiles import INTERPRETED, padded

# The version whose launcher and whose Gluon, which is experimental, these kernels were run with.
IS_KNOWN = triton.__version__.startswith("3.6.") and torch.version.hip is None
HAS_GLUON = IS_KNOWN and not INTERPRETED

# How many signatures each kernel remembers.
MOST_PLANS = 4096
# How many addresses of a tensor each descriptor remembers.
MOST_ADDRESSES = 32
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
        descriptors: for each of the first arguments what makes a descriptor of it; none where
            pointers are read.
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
        """Launches with all that is no constant, in the order of the kernel's parameters."""
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
        alike = [_like(descriptor) for descriptor in descriptors]
        direct = IS_KNOWN and Direct.of(compiled, self._grid, alike)
        self._reads = direct.reads if direct else alike
        self._run = direct or compiled[self._grid]


class Direct:
    """The C function by which Triton 3.6 launches, at a third of the time of the Python above it.

    Attributes:
        reads: for each descriptor, what gives the function's arguments for a tensor.
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
        """None for a kernel that needs more than its arguments."""
        launcher = compiled.run
        if launcher.global_scratch_size or launcher.profile_scratch_size:
            return None
        if not descriptors:
            return cls(launcher.launch, compiled, grid, [])
        # What encodes the descriptors is wrapped around the function.
        launch = inspect.getclosurevars(launcher.launch).nonlocals["launcher"]
        encoded = zip(descriptors, compiled.metadata.tensordesc_meta, strict=True)
        return cls(launch, compiled, grid, [Encoded(*each) for each in encoded])

    def __call__(self, *arguments: Any) -> None:
        stream = torch._C._cuda_getCurrentRawStream(torch.cuda.current_device())
        self._launch(*self._grid, stream, *self._kernel, *arguments)


class Encoded:
    """Descriptors of tensors of one form, as the driver encodes them; the last ones by address."""

    def __init__(self, describe: Callable[[Tensor], list], layout: dict[str, Any]):
        # Where other versions keep it does not matter: this is for one alone.
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
            # Kept without the tensor, which it does not need any more.
            found = self._known[address] = self._encode(descriptor, self._layout)
        return found


def _like(checked: Any) -> Callable[[Tensor], list]:
    """What describes other tensors of one form as one that has been checked."""
    kind, attributes = type(checked), vars(checked) | {"base": None}

    def described(x: Tensor) -> list:
        descriptor = object.__new__(kind)
        descriptor.__dict__ = {**attributes, "base": x}
        return [descriptor]

    return described


def tiles_of(*rows: int) -> tuple[Callable[[Tensor], TensorDescriptor], ...]:
    """What makes descriptors of tiles of so many rows of tensors [b, h, n, d], one for each."""

    def of(tile: int) -> Callable[[Tensor], TensorDescriptor]:
        def described(x: Tensor) -> TensorDescriptor:
            box = [1, 1, tile, padded(x.shape[-1])]
            return TensorDescriptor(x, list(x.shape), list(x.stride()), box)

        return described

    return tuple(map(of, rows))


def addressable(x: Tensor) -> Tensor:
    """x, or a contiguous copy where offsets inside one tile would not fit into 32 bits."""
    return x if _fits(x.stride()) else copied(x)


def copied(x: Tensor) -> Tensor:
    """A contiguous copy, also of what is contiguous with odd strides or off its alignment."""
    return x.clone(memory_format=torch.contiguous_format)


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
