import pytest
import torch

from lmperf.measuring.live_tensors import state_of
from lmperf.measuring.out_of_memory import available_host_bytes, out_of_memory
from lmperf.measuring.peak_memory import peak_memory

MIB = 2**20


def test_peak_memory_of_a_call_includes_temporary_tensors():
    x = torch.ones(MIB // 4)
    assert peak_memory(lambda: (x * 2) + 1, "cpu", [x]) == 3 * MIB


class HiddenMoments(torch.optim.Optimizer):
    """Keeps an inner optimizer for half of the parameters, and a buffer, where nobody looks."""

    def __init__(self, params):
        super().__init__(params, {})
        (group,) = self.param_groups
        self.parts = {"mine": [torch.optim.AdamW(group["params"][::2])]}
        self.spare = (torch.zeros(MIB // 4),)

    def step(self):
        self.parts["mine"][0].step()


def test_state_of_an_optimizer_within_an_optimizer_is_found():
    weights = [torch.zeros(MIB // 4, requires_grad=True) for _ in range(2)]
    outer = HiddenMoments(weights)
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    outer.step()
    # Two moments of one weight, and the buffer; the number of steps is a tensor, too.
    assert sum(one.nbytes for one in state_of(outer)) == 3 * MIB + 4
    resident = [*weights, outer]
    assert peak_memory(lambda: None, "cpu", resident) == 7 * MIB + 4


@pytest.mark.gpu
def test_peak_memory_of_the_caching_allocator():
    x = torch.ones(MIB, device="cuda")
    before = torch.cuda.memory_allocated()
    assert peak_memory(lambda: (x * 2) + 1, "cuda") - before == 8 * MIB


CUDA_MESSAGE = (
    "CUDA out of memory. Tried to allocate 20.50 GiB. GPU 0 has a total capacity of 139.81 GiB of "
    "which 512.25 MiB is free. Including non-PyTorch memory, this process has 139.29 GiB memory in "
    "use. Of the allocated memory 138.00 GiB is allocated by PyTorch, and 100.00 MiB is reserved "
    "by PyTorch but unallocated."
)


@pytest.mark.parametrize(
    "error, requested, free",
    [
        (torch.OutOfMemoryError(CUDA_MESSAGE), round(20.5 * 2**30), round(512.25 * MIB)),
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 512 bytes. 0 bytes free"),
            512,
            0,
        ),
        (torch.OutOfMemoryError("out of memory"), None, None),
        (RuntimeError("CUDA error: out of memory"), None, None),
        (RuntimeError("MPS backend out of memory. Tried to allocate 4.00 GB"), 4 * 2**30, None),
    ],
)
def test_sizes_are_read_from_device_errors(error, requested, free):
    found = out_of_memory(error)
    assert (found.requested_bytes, found.free_bytes) == (requested, free)


def test_error_of_the_cpu_allocator_is_out_of_memory():
    with pytest.raises(RuntimeError) as raised:
        torch.empty(2**50, dtype=torch.uint8)
    found = out_of_memory(raised.value)
    assert found.requested_bytes == 2**50
    assert found.free_bytes == pytest.approx(available_host_bytes(), rel=0.2)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("out of resource: shared memory, Required: 300000, Hardware limit: 232448"),
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
        ValueError("CUDA error: out of memory"),
    ],
)
def test_other_errors_are_not_out_of_memory(error):
    assert out_of_memory(error) is None
