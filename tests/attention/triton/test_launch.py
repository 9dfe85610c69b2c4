"""Tests that only the first call of a signature goes through Triton's launcher."""

import weakref

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
    launch_cooperative_grid, launch_pdl = False, True

    def __init__(self, calls):
        def launcher(*arguments):
            calls.append(arguments)

        self.launch = lambda *arguments: launcher(*arguments)


def test_direct_launch_passes_arguments_in_order(monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", {3: 77}.get, raising=False)
    calls, compiled = [], Compiled(None)
    compiled.run, compiled.function, compiled.packed_metadata = Launcher(calls), "f", "packed"
    compiled.metadata = type("Metadata", (), {"tensordesc_meta": [{"swizzle": 0}]})
    monkeypatch.setattr(launch, "Encoded", lambda describe, layout: (describe, layout))
    direct = launch.Direct.of(compiled, (5, 2, 1), ["describe"])
    assert direct.reads == [("describe", {"swizzle": 0})]
    direct("map", 64, 1)
    kernel = ("f", False, True, None, None, "packed", None, None, None)
    assert calls == [(5, 2, 1, 77, *kernel, "map", 64, 1)]
    compiled.run.global_scratch_size = 8
    assert launch.Direct.of(compiled, (5, 2, 1), []) is None


def test_encoded_descriptors_are_cached_by_address(monkeypatch):
    encoded = launch.Encoded(lambda x: [x.data_ptr()], {})
    made = []
    encoded._encode = lambda descriptor, layout: made.append(descriptor) or [descriptor]
    x, y = torch.zeros(4), torch.zeros(4)
    address, held = x.data_ptr(), weakref.ref(x)
    assert encoded(x) == encoded(x) == [address] and encoded(y) == [y.data_ptr()]
    assert made == [address, y.data_ptr()]
    del x
    assert held() is None
    monkeypatch.setattr(launch, "MOST_ADDRESSES", 2)
    encoded(torch.zeros(8)[4:])
    assert len(encoded._known) == 1


def test_launch_is_planned_once_per_signature():
    x = torch.randn(2, 1, 2, 20, 16, device=DEVICE, requires_grad=True)
    for scale in (None, None, 0.5):
        flash_attention(x[0], x[0], x[0], scale=scale).sum().backward()
    assert forward.plan.cache_info().misses == backward.plan.cache_info().misses == 2
    y = torch.randn(1, 20, 2, 16, device=DEVICE).transpose(1, 2)
    flash_attention(x[1], x[1], y)
    assert forward.plan.cache_info().misses == 3
