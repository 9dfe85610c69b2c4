"""Kernel launches with little host overhead, planned once per signature of the arguments.

`kernel[grid](...)` looks up the compiled kernel by inspecting every argument, which takes the host
20 to 60 us for these kernels. Here only the first call of a signature (shapes, strides, dtypes,
alignment) does that; later calls launch the compiled kernel that it returned.
"""

import ctypes
from collections.abc import Callable
from threading import Lock
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from lmperf.attention.triton import cuda_driver
from lmperf.attention.triton.tiles import INTERPRETED, padded

# The layout of Triton's launcher is private: it was tested with these versions.
IS_KNOWN = triton.__version__.startswith(("3.6.", "3.7.")) and torch.version.hip is None

# Signatures cached per kernel.
MOST_PLANS = 4096
# Addresses cached per descriptor.
MOST_ADDRESSES = 32
# Alignment of addresses in bytes: TMA needs it, and Triton specialises kernels for it.
ALIGNMENT = 16
# Where the CUtensorMap lies in Triton's Python object of a TMA descriptor.
MAP_OFFSET = 128
LARGEST_STRIDE = 2**22

# With fewer scores, encoding TMA descriptors takes the host longer than they save.
DESCRIBED_SCORES = 2**22


_C_TYPES = {
    "i1": ctypes.c_int8, "i8": ctypes.c_int8, "i32": ctypes.c_int32, "i64": ctypes.c_int64,
    "u32": ctypes.c_uint32, "u64": ctypes.c_uint64, "fp32": ctypes.c_float,
    "f32": ctypes.c_float, "fp64": ctypes.c_double,
}  # fmt: skip


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
        self.kernel, self._describe = kernel, descriptors
        self._grid = (*grid, 1, 1)[:3]
        self.named = constants | options
        names = kernel.arg_names[len(kernel.arg_names) - len(constants) :]
        self._constants = tuple(constants[name] for name in names)
        self._run: Callable | None = None

    def __call__(self, *arguments: Any) -> None:
        """Launch with all arguments but the constants, in the order of the kernel's parameters."""
        if self._run is None:
            self._first(arguments)
        else:
            self._run(*arguments)

    def _first(self, arguments: tuple) -> None:
        descriptors, rest = self._described(arguments)
        compiled = self.kernel[self._grid](*descriptors, *rest, **self.named)
        if INTERPRETED:
            return
        clones = [_clone_of(descriptor) for descriptor in descriptors]
        direct = IS_KNOWN and Direct.of(compiled, self._grid, arguments, clones)
        self._run = direct or self._by_triton(compiled[self._grid], clones)

    def compiled(self, *arguments: Any) -> Any:
        """The compiled kernel for these arguments, which may be tensors on the meta device."""
        descriptors, rest = self._described(arguments)
        return self.kernel.warmup(*descriptors, *rest, grid=self._grid, **self.named)

    def _described(self, arguments: tuple) -> tuple[list, tuple]:
        descriptors = [make(x) for make, x in zip(self._describe, arguments, strict=False)]
        return descriptors, arguments[len(self._describe) :]

    def _by_triton(self, launch: Callable, clones: list[Callable]) -> Callable:
        def run(*arguments: Any) -> None:
            described = [y for make, x in zip(clones, arguments, strict=False) for y in make(x)]
            launch(*described, *arguments[len(clones) :], *self._constants)

        return run


class Direct:
    """Launches a compiled kernel by the CUDA driver, in a third of the time of Triton's launcher.

    The parameters of the kernel lie in memory that the driver reads. A launch writes the addresses
    of its tensors there; all other arguments must equal those of the first launch.
    """

    def __init__(self, compiled: Any, grid: tuple, arguments: tuple, encoders: list):
        signature = compiled.src.signature.values()
        self._lock, self._memory = Lock(), []
        self._pointers, self._nested, self._maps = [], [], []
        encoders = iter(encoders)
        for i, (kind, value) in enumerate(zip(signature, arguments, strict=False)):
            if isinstance(kind, str) and kind.startswith("tensordesc"):
                self._add_descriptor(i, next(encoders), value)
            else:
                self._add(kind, value, i)
        # Scratch memory, which these kernels do not need.
        self._memory += [ctypes.c_uint64(0), ctypes.c_uint64(0)]
        self._parameters = (ctypes.c_void_p * len(self._memory))(
            *(each if isinstance(each, int) else ctypes.addressof(each) for each in self._memory)
        )
        warps, _, shared = compiled.packed_metadata
        self._start = cuda_driver.launcher()
        self._launch = (compiled.function, *grid, 32 * warps, 1, 1, shared)
        self._device, self._context = torch.cuda.current_device(), cuda_driver.current_context()

    @classmethod
    def of(
        cls, compiled: Any, grid: tuple, arguments: tuple, descriptors: list[Callable]
    ) -> "Direct | None":
        """A direct launch of the compiled kernel; None for a kernel with other needs.

        Args:
            arguments: those of the first launch, tensors in place of their descriptors.
            descriptors: functions that make the descriptors of the first arguments.
        """
        launcher = compiled.run
        special = (
            *(launcher.global_scratch_size, launcher.profile_scratch_size),
            *(launcher.launch_cooperative_grid, launcher.launch_pdl, launcher.num_ctas != 1),
        )
        if any(special):
            return None
        layouts = compiled.metadata.tensordesc_meta if descriptors else ()
        encoders = [Encoded(*each) for each in zip(descriptors, layouts, strict=True)]
        return cls(compiled, grid, arguments, encoders)

    def _add(self, kind: Any, value: Any, i: int, j: int | None = None) -> None:
        """Add the parameters of argument i or, of a tuple, of its member j."""
        if isinstance(kind, tuple):
            for j, each in enumerate(zip(kind, value, strict=True)):
                self._add(*each, i, j)
        elif kind.startswith("*"):
            self._memory.append(ctypes.c_uint64(value.data_ptr()))
            if j is None:
                self._pointers.append((self._memory[-1], i))
            else:
                self._nested.append((self._memory[-1], i, j))
        elif kind != "constexpr":
            self._memory.append(_C_TYPES[kind](value))

    def _add_descriptor(self, i: int, encoder: "Encoded", x: Tensor) -> None:
        self._maps.append((len(self._memory), encoder, i))
        self._memory.append(encoder(x))
        self._memory += [ctypes.c_int32(length) for length in x.shape]
        self._memory += [ctypes.c_int64(stride) for stride in x.stride()]

    def __call__(self, *arguments: Any) -> None:
        stream = torch._C._cuda_getCurrentRawStream(self._device)
        parameters = self._parameters
        with self._lock:
            for memory, i in self._pointers:
                memory.value = arguments[i].data_ptr()
            for memory, i, j in self._nested:
                memory.value = arguments[i][j].data_ptr()
            for at, encoder, i in self._maps:
                parameters[at] = encoder(arguments[i])
            status = self._start(*self._launch, stream, parameters, None)
            if status == cuda_driver.NO_CONTEXT:
                # A thread of autograd that has not called the driver yet.
                cuda_driver.use_context(self._context)
                status = self._start(*self._launch, stream, parameters, None)
        if status:
            raise RuntimeError(f"CUDA error {status} in the launch of a kernel")


class Encoded:
    """Encodes TMA descriptors of tensors of one `Form`, and caches them by address."""

    def __init__(self, describe: Callable[[Tensor], list], layout: dict[str, Any]):
        # Known versions only: others have it elsewhere.
        from triton.backends.nvidia.driver import make_tensordesc_arg

        self._encode, self._layout = make_tensordesc_arg, layout
        self._describe, self._known = describe, {}

    def __call__(self, x: Tensor) -> int:
        """The address of the encoded descriptor; valid until MOST_ADDRESSES others were made."""
        address = x.data_ptr()
        found = self._known.get(address)
        if found is None:
            if len(self._known) == MOST_ADDRESSES:
                self._known.clear()
            (descriptor,) = self._describe(x)
            # The encoded descriptor does not keep the tensor alive.
            encoded, *_ = self._encode(descriptor, self._layout)
            found = self._known[address] = (id(encoded) + MAP_OFFSET, encoded)
        return found[0]


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
