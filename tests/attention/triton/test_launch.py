"""Launching: the first call of a signature goes through Triton, later ones do not."""

import pytest
import torch

from lmperf.attention.triton import backward, forward, launch
from lmperf.attention.triton.interface import flash_attention

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Kernel:
    """Stands in for a JIT function, and for the compiled kernel that it returns."""

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


def test_second_call_gives_the_compiled_kernel_all_arguments_in_order(compiled):
    kernel = Kernel()
    run = launch.Launch(kernel, (5, 2), {"BLOCK": 64, "D": 40}, {"num_warps": 4})
    run("a", 1)
    run("b", 2)
    assert kernel.jit == [((5, 2, 1), ("a", 1), {"D": 40, "BLOCK": 64, "num_warps": 4})]
    assert kernel.direct == [((5, 2, 1), ("b", 2, 40, 64))]


def test_descriptors_follow_the_tensors_of_each_call(compiled):
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


def test_a_signature_is_worked_out_once():
    x = torch.randn(2, 1, 2, 20, 16, device=DEVICE, requires_grad=True)
    for scale in (None, None, 0.5):
        flash_attention(x[0], x[0], x[0], scale=scale).sum().backward()
    assert forward.plan.cache_info().misses == backward.plan.cache_info().misses == 2
    y = torch.randn(1, 20, 2, 16, device=DEVICE).transpose(1, 2)
    flash_attention(x[1], x[1], y)
    assert forward.plan.cache_info().misses == 3
