"""Tests of the fused backward pass, whose Gluon kernel runs on a Hopper GPU only."""

import pytest
import torch

from lmperf.attention.accuracy import attention_errors, error_bound
from lmperf.attention.reference import attention_float64
from lmperf.attention.triton import backward as backward_pass
from lmperf.attention.triton import flash_attention
from lmperf.attention.triton import hopper_backward as fused
from lmperf.attention.triton.configurations import FUSED
from lmperf.attention.triton.forward import forward
from lmperf.attention.triton.launch import Form
from lmperf.attention.triton.tiles import LOG2_E, padded
from lmperf.benchmarks.flash_attention_check import uninitialised_memory_is_nan

pytestmark = pytest.mark.interpreter

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LENGTH, SEQUENCES = 100, 2


@pytest.fixture
def hopper():
    if torch.cuda.get_device_capability()[0] != 9:
        pytest.skip("needs a Hopper GPU")


def places(rows, columns, parts):
    """For each element [rows, columns] of dQ, the offset at which `fused_kernel` adds it."""
    rows //= parts
    r, c = torch.arange(rows)[:, None], torch.arange(columns)[None, :]
    fragment = c // 8 * (8 * rows) + r // 16 * 128
    place = fragment + r % 8 * 16 + c % 8 // 2 * 4 + r // 8 % 2 * 2 + c % 2
    return torch.cat([place + part * rows * columns for part in range(parts)])


@pytest.mark.parametrize("transposed, d, parts", [(True, 96, 1), (True, 96, 2), (False, 64, 2)])
def test_finish_kernel_restores_row_order(transposed, d, parts):
    block, width = 64, padded(d)
    tiles = torch.randn(SEQUENCES, 2, block, width, device=DEVICE)
    tiled = tiles.mT if transposed else tiles
    accumulated = torch.empty(SEQUENCES, 2, block * width, device=DEVICE)
    where = places(*tiled.shape[2:], parts).flatten().to(DEVICE)
    assert where.unique().numel() == block * width
    accumulated[:, :, where] = tiled.reshape(SEQUENCES, 2, -1)
    dq = torch.empty(1, SEQUENCES, LENGTH, d, device=DEVICE)
    fused.finish_kernel[(2 * SEQUENCES,)](
        accumulated, dq, dq.stride(), SEQUENCES, LENGTH, 2.0,
        D=d, BLOCK=block, BLOCK_D=width, TRANSPOSED=transposed, PARTS=parts,
    )  # fmt: skip
    expected = 2 * tiles.reshape(SEQUENCES, 2 * block, width)[:, :LENGTH, :d]
    torch.testing.assert_close(dq[0], expected, rtol=0, atol=0)


@pytest.mark.parametrize("has_grad_lse", [False, True])
def test_prepare_kernel_masks_rows_beyond_the_last_query(has_grad_lse):
    d, block = 40, 64
    out, grad_out = (torch.randn(1, SEQUENCES, LENGTH, d, device=DEVICE) for _ in range(2))
    lse, grad_lse = (torch.randn(1, SEQUENCES, LENGTH, device=DEVICE) for _ in range(2))
    rows = torch.empty(SEQUENCES, 2, 2, block, device=DEVICE)
    dq = torch.ones(SEQUENCES, 2, block * padded(d), device=DEVICE)
    turns = torch.ones(SEQUENCES, 2, fused.WORDS, dtype=torch.int32, device=DEVICE)
    fused.prepare_kernel[(2 * SEQUENCES,)](
        out, grad_out, lse, grad_lse if has_grad_lse else None, rows, dq, turns,
        out.stride(), grad_out.stride(), SEQUENCES, LENGTH,
        D=d, BLOCK=block, BLOCK_D=padded(d), HAS_GRAD_LSE=has_grad_lse,
        WORDS=fused.WORDS,
    )  # fmt: skip
    row_lse, delta = rows.transpose(1, 2).reshape(SEQUENCES, 2, 2 * block).unbind(1)
    torch.testing.assert_close(row_lse[:, :LENGTH], lse[0] * LOG2_E.value)
    expected = (out * grad_out).sum(-1)[0] - (grad_lse[0] if has_grad_lse else 0)
    torch.testing.assert_close(delta[:, :LENGTH], expected, rtol=1e-5, atol=1e-5)
    assert bool(row_lse[:, LENGTH:].isposinf().all()) and not delta[:, LENGTH:].any()
    assert not dq.any() and not turns.any()


def gradients(x, causal, deterministic=False):
    q, k, v, grad_out = x
    scale = q.shape[-1] ** -0.5
    out, lse = forward(q, k, v, causal, scale)
    forms = [Form.of(each) for each in (q, k, out, grad_out)]
    c = FUSED[padded(q.shape[-1])]
    launches = fused.Fused(*forms, False, causal, scale, c, deterministic)
    with uninitialised_memory_is_nan():
        found = launches(q, k, v, out, lse, grad_out, None)
    return dict(zip(("dq", "dk", "dv"), found, strict=True))


@pytest.mark.gpu
@pytest.mark.parametrize(
    "d, deterministic",
    [(64, False), (64, True), (80, False), (80, True), (128, False), (128, True), (256, False)],
)
@pytest.mark.parametrize(
    "n, m", [(1, 1), (333, 333), (1024, 1024), (1025, 1025), (70, 300), (300, 70)]
)
def test_fused_gradients_are_within_error_bounds(hopper, d, deterministic, n, m):
    """Masks and dtypes take turns over the pairs of lengths and widths."""
    causal = n == m and (n + d // 16) % 2 == 0
    dtype = (torch.float16, torch.bfloat16)[d in (80, 256) if n > 500 else d < 100]
    shapes = ((2, n, 3, d), (2, m, 3, d), (2, m, 3, d), (2, n, 3, d))
    x = [torch.randn(shape, device="cuda", dtype=dtype).transpose(1, 2) for shape in shapes]
    got = gradients(x, causal, deterministic)
    assert [t.stride() for t in got.values()] == [t.stride() for t in x[:3]]
    errors = attention_errors(got, attention_float64(*x, causal))
    for tensor, error in errors.items():
        assert error <= error_bound(tensor, str(dtype).removeprefix("torch.")), tensor


@pytest.fixture
def deterministic_algorithms():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def saved(d, causal):
    """Arguments of the backward pass for more tiles than fit on the GPU at a time."""
    x = [torch.randn(2, 16, 2048, d, device="cuda", dtype=torch.bfloat16) for _ in range(4)]
    out, lse = forward(*x[:3], causal, d**-0.5)
    return (*x[:3], out, lse, x[3], torch.randn_like(lse), causal, d**-0.5)


@pytest.mark.gpu
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("d, is_fused", [(64, True), (128, True), (256, False)])
def test_deterministic_gradients_have_the_same_bits(
    hopper, deterministic_algorithms, d, is_fused, causal, monkeypatch
):
    """Also beside the same call on another stream, so that programs of both wait for SMs."""
    taken = []
    monkeypatch.setattr(backward_pass, "Fused", lambda *a: taken.append(a) or fused.Fused(*a))
    arguments = saved(d, causal)
    first = backward_pass.backward(*arguments)
    assert bool(taken) == is_fused
    beside = torch.cuda.Stream(priority=-1)
    beside.wait_stream(torch.cuda.current_stream())
    differing = torch.zeros((), dtype=torch.int64, device="cuda")
    for _ in range(50):
        with torch.cuda.stream(beside):
            backward_pass.backward(*arguments)
        again = backward_pass.backward(*arguments)
        differing += sum((a != b).any() for a, b in zip(first, again, strict=True))
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        again = backward_pass.backward(*arguments)
    for _ in range(50):
        graph.replay()
        differing += sum((a != b).any() for a, b in zip(first, again, strict=True))
    assert not differing
    torch.use_deterministic_algorithms(False)
    for a, b in zip(first, backward_pass.backward(*arguments), strict=True):
        torch.testing.assert_close(a, b, rtol=0.05, atol=0.02)


@pytest.mark.gpu
def test_copied_dout_still_uses_the_fused_kernel(hopper, monkeypatch):
    x = [torch.randn(1, 16, 4096, 64, device="cuda").bfloat16().requires_grad_() for _ in range(3)]
    taken = []
    monkeypatch.setattr(backward_pass, "Fused", lambda *a: taken.append(a) or fused.Fused(*a))
    found = []
    dense = torch.ones_like(x[0])
    off_alignment = torch.ones(dense.numel() + 1, device="cuda").bfloat16()[1:].view(dense.shape)
    for ones in (dense, dense[..., :1, :1].expand_as(dense), off_alignment):
        out = flash_attention(*x, causal=True)
        found.append(torch.autograd.grad(out, x, ones))
        assert len(taken) == 1
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            torch.testing.assert_close(a, b, rtol=0.05, atol=0.02)
