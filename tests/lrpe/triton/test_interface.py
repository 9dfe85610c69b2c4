"""Tests of `lrpe_cosine`: autograd, strides, torch.compile, autocast and errors."""

import pytest
import torch

from lmperf.lrpe.reference import lrpe_cosine as plain
from lmperf.lrpe.triton import lrpe_cosine

pytestmark = pytest.mark.interpreter

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SHAPE = (3, 4)


def inputs(*shape, dtype=torch.float32, grad=False):
    x = torch.randn(shape or (2, 3, 12, 16), device=DEVICE, dtype=dtype, requires_grad=grad)
    return x, torch.rand(x.shape[1], -(-x.shape[-1] // 2), device=DEVICE)


def test_backward_saves_either_theta_or_angles():
    x, theta = inputs(grad=True)
    out = lrpe_cosine(x, theta, SHAPE)
    assert [t.data_ptr() for t in out.grad_fn.saved_tensors if t is not None] == [theta.data_ptr()]
    out = lrpe_cosine(x, theta, SHAPE, cache_angles=True)
    saved = [t.shape for t in out.grad_fn.saved_tensors if t is not None]
    assert saved == [(2, 3, 12, 16)]


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
        lambda x: x.transpose(2, 3).contiguous().transpose(2, 3),
        lambda x: x[:, :, :1].expand_as(x),
        lambda x: torch.cat([x, x], dim=-1)[..., 3:19],
        lambda x: x[..., :1],
    ],
    ids=["heads inside", "channels outside", "expanded", "sliced", "one channel"],
)
def test_strided_inputs_match_plain_pytorch(view):
    x, theta = inputs()
    x = view(x)
    torch.testing.assert_close(lrpe_cosine(x, theta, SHAPE), plain(x, theta, SHAPE))
    out = plain(x, theta, SHAPE)
    twice = torch.stack([out, out], dim=1).requires_grad_()
    leaf = x.detach().clone().requires_grad_()
    (got,) = torch.autograd.grad(lrpe_cosine(leaf, theta, SHAPE), leaf, twice[:, 0].detach())
    torch.testing.assert_close(got, x)


def test_autocast_keeps_the_dtype_of_x():
    x, theta = inputs(grad=True)
    with torch.autocast(DEVICE, torch.bfloat16):
        out = lrpe_cosine(x, theta, SHAPE)
        expected = plain(x, theta, SHAPE)
    assert out.dtype == expected.dtype == torch.float32
    torch.testing.assert_close(out, expected)


def test_torch_compile_makes_one_graph():
    backend = "inductor" if DEVICE == "cuda" else "aot_eager"

    def model(x, theta):
        return lrpe_cosine(x * 2, theta, SHAPE, cache_angles=True).sin().sum()

    x, theta = inputs(grad=True)
    expected = torch.autograd.grad(model(x, theta), x)
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    torch.testing.assert_close(torch.autograd.grad(compiled(x, theta), x), expected)


def test_second_derivative_is_rejected():
    x, theta = inputs(grad=True)
    out = lrpe_cosine(x, theta, SHAPE).square().sum()
    (gradient,) = torch.autograd.grad(out, x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


@pytest.mark.parametrize(
    ("error", "message", "x", "theta", "shape", "extra_tokens"),
    [
        (ValueError, "got 3 dimensions", (3, 12, 16), (3, 8), SHAPE, 0),
        (ValueError, "must not be empty", (0, 3, 12, 16), (3, 8), SHAPE, 0),
        (ValueError, "d must be from 1 to 1024", (1, 1, 12, 1025), (1, 1025), SHAPE, 0),
        (ValueError, "with 3 heads", (2, 3, 12, 16), (2, 8), SHAPE, 0),
        (ValueError, "positive lengths", (2, 3, 12, 16), (3, 8), (-3, -4), 0),
        (ValueError, "positive lengths", (2, 3, 12, 16), (3, 8), (3, 5), -3),
        (ValueError, r"got 12 for \(3, 4\) \+ 1", (2, 3, 12, 16), (3, 8), SHAPE, 1),
        (ValueError, "2 axes of 7 channels", (2, 3, 12, 16), (3, 7), SHAPE, 0),
    ],
)
def test_invalid_shapes_are_rejected(error, message, x, theta, shape, extra_tokens):
    with pytest.raises(error, match=message) as caught:
        lrpe_cosine(
            torch.randn(x, device=DEVICE), torch.rand(theta, device=DEVICE), shape, extra_tokens
        )
    assert "\n" not in str(caught.value)


def test_invalid_dtypes_and_devices_are_rejected():
    x, theta = inputs()
    with pytest.raises(TypeError, match="must be float32, float16 or bfloat16"):
        lrpe_cosine(x.double(), theta, SHAPE)
    with pytest.raises(TypeError, match="must be float32, float16 or bfloat16"):
        lrpe_cosine(x, theta.long(), SHAPE)
    with pytest.raises(ValueError, match="same device"):
        lrpe_cosine(x, theta.to("meta"), SHAPE)
    with pytest.raises(ValueError, match=r"theta\.detach"):
        lrpe_cosine(x, theta.requires_grad_(), SHAPE)
    with torch.no_grad():
        lrpe_cosine(x, theta, SHAPE)
