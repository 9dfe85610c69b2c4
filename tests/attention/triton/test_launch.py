"""Tests that only the first call of a signature goes through Triton's launcher."""

import weakref

import pytest
import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from lmperf.attention.triton import backward, forward, launch
from lmperf.attention.triton.interface import flash_attention

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Kernel:
    """Fake JIT function that records its launches and those of its compiled kernel."""

    arg_names = ("x", "n", "D", "BLOCK")

    def __init__(self):
        self.jit, self.direct, self.bases = [], [], []

    def __getitem__(self, grid):
        def first(*arguments, **named):
            self.jit.append((grid, arguments, named))
            self.read(arguments)
            return Compiled(self)

        return first

    def read(self, arguments):
        if isinstance(arguments[0], TensorDescriptor):
            self.bases.append(arguments[0].base.data_ptr())


class Compiled:
    def __init__(self, kernel):
        self.kernel = kernel

    def __getitem__(self, grid):
        def launched(*arguments):
            self.kernel.direct.append((grid, arguments))
            self.kernel.read(arguments)

        return launched


@pytest.fixture
def compiled(monkeypatch):
    monkeypatch.setattr(launch, "INTERPRETED", False)


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
    tensors = [torch.randn(1, 2, 70, 40) for _ in range(3)]
    for x in tensors:
        run(x, 70)
    launches = [arguments for _, arguments, *_ in kernel.jit + kernel.direct]
    assert kernel.bases == [x.data_ptr() for x in tensors]
    assert all(described.block_shape == [1, 1, 32, 64] for described, *_ in launches)


def test_descriptors_keep_no_tensor_alive(compiled):
    run = launch.Launch(Kernel(), (1,), {"D": 40, "BLOCK": 64}, {}, launch.tiles_of(32))
    for _ in range(2):
        x = torch.randn(1, 2, 70, 40)
        held = weakref.ref(x)
        run(x, 70)
        del x
        assert held() is None


@pytest.mark.slow
def test_launch_is_planned_once_per_signature():
    x = torch.randn(2, 1, 2, 20, 16, device=DEVICE, requires_grad=True)
    for scale in (None, None, 0.5):
        flash_attention(x[0], x[0], x[0], scale=scale).sum().backward()
    assert forward.plan.cache_info().misses == backward.plan.cache_info().misses == 2
    y = torch.randn(1, 20, 2, 16, device=DEVICE).transpose(1, 2)
    flash_attention(x[1], x[1], y)
    assert forward.plan.cache_info().misses == 3
