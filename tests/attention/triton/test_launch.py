"""Tests that only the first call of a signature goes through Triton's launcher."""

import ctypes
import weakref
from types import SimpleNamespace

import pytest
import torch

from lmperf.attention.triton import backward, forward, launch
from lmperf.attention.triton.interface import flash_attention

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Kernel:
    """Fake JIT function that records its launches and those of its compiled kernel."""

    arg_names = ("x", "n", "D", "BLOCK")

    def __init__(self):
        self.jit, self.direct = [], []

    def __getitem__(self, grid):
        def first(*arguments, **named):
            self.jit.append((grid, arguments, named))
            return Compiled(self)

        return first


class Compiled:
    def __init__(self, kernel):
        self.kernel = kernel

    def __getitem__(self, grid):
        return lambda *arguments: self.kernel.direct.append((grid, arguments))


@pytest.fixture
def compiled(monkeypatch):
    monkeypatch.setattr(launch, "INTERPRETED", False)
    monkeypatch.setattr(launch, "IS_KNOWN", False)


def test_second_call_launches_the_compiled_kernel(compiled):
    kernel = Kernel()
    run = launch.Launch(kernel, (5, 2), {"BLOCK": 64, "D": 40}, {"num_warps": 4})
    run("a", 1)
    run("b", 2)
    assert kernel.jit == [((5, 2, 1), ("a", 1), {"D": 40, "BLOCK": 64, "num_warps": 4})]
    assert kernel.direct == [((5, 2, 1), ("b", 2, 40, 64))]


def test_each_call_gets_descriptors_of_its_tensors(compiled):
    kernel = Kernel()
    run = launch.Launch(kernel, (1,), {"D": 40, "BLOCK": 64}, {}, launch.tiles_of(32))
    tensors = [torch.randn(1, 2, 70, 40) for _ in range(2)]
    for x in tensors:
        run(x, 70)
    [(_, (first, _), _)], [(_, (second, *_))] = kernel.jit, kernel.direct
    assert first.base is tensors[0]
    assert second.base is tensors[1]
    assert second.block_shape == [1, 1, 32, 64]
    assert vars(first) | {"base": None} == vars(second) | {"base": None}


class Launcher:
    """Fake launcher of a compiled kernel of Triton 3.6."""

    global_scratch_size = profile_scratch_size = 0
    launch_cooperative_grid = launch_pdl = False
    num_ctas = 1


@pytest.fixture
def driver(monkeypatch):
    """The calls of a fake CUDA driver: all numbers before the parameters, and the parameters."""
    calls = []

    def start(*arguments):
        *numbers, parameters, extra = arguments
        assert extra is None
        calls.append((numbers, parameters[:]))
        return driver.statuses.pop(0) if driver.statuses else 0

    driver = SimpleNamespace(calls=calls, statuses=[], contexts=[])
    monkeypatch.setattr(launch.cuda_driver, "launcher", lambda: start)
    monkeypatch.setattr(launch.cuda_driver, "current_context", lambda: "context")
    monkeypatch.setattr(launch.cuda_driver, "use_context", driver.contexts.append)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", {3: 77}.get, raising=False)
    monkeypatch.setattr(launch, "Encoded", lambda describe, layout: lambda x: describe(x))
    return driver


def compiled_kernel(*kinds):
    found = Compiled(None)
    found.run, found.function, found.packed_metadata = Launcher(), 5, (4, 1, 1024)
    found.metadata = SimpleNamespace(tensordesc_meta=[{"swizzle": 0}])
    found.src = SimpleNamespace(signature=dict(enumerate(kinds)))
    return found


def test_direct_launch_writes_addresses_of_its_tensors(driver):
    kinds = ("tensordesc<bf16[1, 8]>", "*bf16", ("*fp32", "i64", "constexpr"), "fp32", "constexpr")
    x, y, z = (torch.zeros(3, 8) for _ in range(3))
    arguments = (x, y, (z, 9, 1), 0.5)
    run = launch.Direct.of(compiled_kernel(*kinds), (6, 2, 1), arguments, [lambda t: t.data_ptr()])
    run(y, z, (x, 9, 1), 0.5)
    [(numbers, parameters)] = driver.calls
    assert numbers == [5, 6, 2, 1, 128, 1, 1, 1024, 77]
    described, lengths, strides, rest = (
        parameters[0], parameters[1:3], parameters[3:5], parameters[5:]
    )  # fmt: skip
    assert described == y.data_ptr()
    assert [ctypes.c_int32.from_address(each).value for each in lengths] == [3, 8]
    assert [ctypes.c_int64.from_address(each).value for each in strides] == [8, 1]
    kinds = (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int64, ctypes.c_float)
    values = [kind.from_address(each).value for kind, each in zip(kinds, rest[:4], strict=True)]
    assert values == [z.data_ptr(), x.data_ptr(), 9, 0.5]
    assert len(rest) == 4 + 2  # no scratch memory, twice


def test_thread_without_context_gets_that_of_the_first_launch(driver):
    x = torch.zeros(4)
    run = launch.Direct.of(compiled_kernel("*fp32"), (1, 1, 1), (x,), [])
    driver.statuses = [launch.cuda_driver.NO_CONTEXT, 0, 700]
    run(x)
    assert driver.contexts == ["context"] and len(driver.calls) == 2
    with pytest.raises(RuntimeError, match="700"):
        run(x)


def test_kernel_with_scratch_memory_is_launched_by_triton(driver):
    compiled = compiled_kernel("*fp32")
    compiled.run.global_scratch_size = 8
    assert launch.Direct.of(compiled, (1, 1, 1), (torch.zeros(4),), []) is None


def test_encoded_descriptors_are_cached_by_address(monkeypatch):
    encoded = launch.Encoded(lambda x: [x.data_ptr()], {})
    made = []
    encoded._encode = lambda descriptor, layout: [made.append(descriptor) or object(), 4, 1]
    x, y = torch.zeros(4), torch.zeros(4)
    address, held = x.data_ptr(), weakref.ref(x)
    assert encoded(x) == encoded(x) != encoded(y)
    assert made == [address, y.data_ptr()]
    del x
    assert held() is None
    monkeypatch.setattr(launch, "MOST_ADDRESSES", 2)
    encoded(torch.zeros(8)[4:])
    assert len(encoded._known) == 1


@pytest.mark.slow
def test_launch_is_planned_once_per_signature():
    x = torch.randn(2, 1, 2, 20, 16, device=DEVICE, requires_grad=True)
    for scale in (None, None, 0.5):
        flash_attention(x[0], x[0], x[0], scale=scale).sum().backward()
    assert forward.plan.cache_info().misses == backward.plan.cache_info().misses == 2
    y = torch.randn(1, 20, 2, 16, device=DEVICE).transpose(1, 2)
    flash_attention(x[1], x[1], y)
    assert forward.plan.cache_info().misses == 3
