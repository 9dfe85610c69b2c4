import pytest
import torch

from lmperf.measuring.memory import LiveTensors, available_host_bytes, out_of_memory, peak_memory

MIB = 2**20


def mebibytes(count: int) -> torch.Tensor:
    return torch.zeros(count * MIB, dtype=torch.uint8)


def test_live_tensors_count_allocations_until_they_are_freed():
    with LiveTensors() as live:
        first = mebibytes(3)
        second = mebibytes(2)
        assert live.live_bytes == 5 * MIB
        del first
        assert live.live_bytes == 2 * MIB
        del second
    assert (live.live_bytes, live.peak_bytes) == (0, 5 * MIB)


def test_storage_with_views_counts_once():
    with LiveTensors() as live:
        tensor = mebibytes(4)
        view = tensor.view(2, -1)[1]
        tensor.add_(1)
        del tensor
        assert live.live_bytes == 4 * MIB
        del view
        assert live.live_bytes == 0


def test_live_tensors_include_those_that_autograd_saves():
    x = torch.ones(MIB // 4, requires_grad=True)
    with LiveTensors() as live:
        y = x.exp().sum()
        assert live.live_bytes == MIB + 4
        y.backward()
        # exp's result is freed; the gradient of x stays.
        assert live.live_bytes == pytest.approx(MIB, abs=64)
    assert live.peak_bytes >= 2 * MIB


def test_live_tensors_include_the_state_of_an_optimizer():
    weight = torch.nn.Parameter(torch.ones(MIB // 4))
    weight.grad = torch.ones_like(weight)
    optimizer = torch.optim.AdamW([weight], fused=True)
    with LiveTensors() as live:
        optimizer.step()
        assert live.live_bytes == pytest.approx(2 * MIB, abs=64)
    again = LiveTensors()
    again.register([optimizer, weight])
    assert again.live_bytes == pytest.approx(4 * MIB, abs=64)


def test_registered_tensors_count_once_and_can_be_freed():
    layer = torch.nn.Linear(512, 512)
    live = LiveTensors()
    live.register([layer, layer.weight])
    assert live.live_bytes == 4 * (512 * 512 + 512)
    layer.weight = None
    assert live.live_bytes == 4 * 512


def test_resized_storage_counts_with_new_size():
    with LiveTensors() as live:
        tensor = mebibytes(1)
        tensor.resize_(3 * MIB)
        assert live.live_bytes == 3 * MIB
        del tensor
        assert live.live_bytes == 0


def test_peak_memory_of_a_call_includes_temporary_tensors():
    x = torch.ones(MIB // 4)
    assert peak_memory(lambda: (x * 2) + 1, "cpu", [x]) == 3 * MIB


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
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
