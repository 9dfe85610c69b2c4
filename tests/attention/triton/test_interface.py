import pytest
import torch

from lmperf.attention.accuracy import attention_errors, error_bound
from lmperf.attention.reference import attention, attention_float64
from lmperf.attention.triton import FlashAttention, flash_attention, hopper_forward
from lmperf.benchmarks.flash_attention_check import uninitialised_memory_is_nan
from lmperf.precision import precision

pytestmark = pytest.mark.interpreter

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(autouse=True)
def strict_memory_and_float32():
    with uninitialised_memory_is_nan(), precision("float32"):
        yield


def normal(*shape, dtype=torch.float32, grad=False):
    return torch.randn(shape, device=DEVICE, dtype=dtype, requires_grad=grad)


def test_logsumexp_is_saved_for_3d_and_4d_inputs():
    for shape in [(2, 50, 16), (2, 3, 50, 16)]:
        q, k, v = (normal(*shape, grad=True) for _ in range(3))
        out = FlashAttention.apply(q, k, v, True)
        saved = [t for t in out.grad_fn.saved_tensors if t.shape == q.shape[:-1]]
        assert len(saved) == 1 and saved[0].dtype == torch.float32
        reference = attention_float64(q, k, v, torch.zeros_like(q), True)
        assert attention_errors({"lse": saved[0]}, reference)["lse"] < error_bound("lse", "float32")
        torch.testing.assert_close(out, reference["out"].float(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n, m", [(70, 1), (20, 70)])
def test_numbers_of_queries_and_keys_may_differ(n, m):
    q, grad_out, k, v = (normal(1, 2, length, 24) for length in (n, n, m, m))
    leaves = [t.clone().requires_grad_() for t in (q, k, v)]
    out, lse = flash_attention(*leaves, scale=0.3, return_lse=True)
    out.backward(grad_out)
    got = {"out": out, "lse": lse}
    got |= dict(zip(("dq", "dk", "dv"), (t.grad for t in leaves), strict=True))
    reference = attention_float64(q, k, v, grad_out, False, scale=0.3)
    for tensor, error in attention_errors(got, reference).items():
        assert error <= error_bound(tensor, "float32"), tensor


def test_gradient_flows_through_the_logsumexp():
    q, k, v = (normal(1, 2, 40, 16, grad=True) for _ in range(3))
    weights = normal(1, 2, 40)
    _, lse = flash_attention(q, k, v, return_lse=True)
    got = torch.autograd.grad((lse * weights).sum(), (q, k))
    expected_lse = (q @ k.transpose(-2, -1) / 4).logsumexp(-1)
    expected = torch.autograd.grad((expected_lse * weights).sum(), (q, k))
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_strides_beyond_32_bit_offsets_are_copied():
    x = normal(1, 1, 20, 16)
    far = x.as_strided(x.shape, (0, 0, 16, 1))
    from lmperf.attention.triton.launch import LARGEST_STRIDE, addressable

    assert addressable(far) is far
    wide = torch.empty_strided((1, 1, 2, 16), (0, 0, LARGEST_STRIDE, 1), device="meta")
    assert addressable(wide).stride(2) == 16
    one = x[:, :, :1].as_strided((1, 1, 1, 16), (16, 16, LARGEST_STRIDE, 1)).requires_grad_()
    (gradient,) = torch.autograd.grad(flash_attention(one, one, one).sum(), one)
    torch.testing.assert_close(gradient, torch.ones_like(gradient))


def test_autocast_casts_the_inputs():
    dtype = torch.bfloat16 if DEVICE == "cuda" else torch.float16
    q, k, v = (normal(1, 2, 33, 16, grad=True) for _ in range(3))
    with torch.autocast(DEVICE, dtype):
        out = flash_attention(q, k, v.to(dtype), True)
    out.float().sum().backward()
    assert out.dtype == dtype and q.grad.dtype == torch.float32
    torch.testing.assert_close(out.float(), attention(q, k, v, True), rtol=3e-2, atol=3e-2)


def test_torch_compile_makes_one_graph():
    backend = "inductor" if DEVICE == "cuda" else "aot_eager"

    def model(q, k, v):
        out, lse = flash_attention(q * 2, k, v, causal=True, return_lse=True)
        return out.sin().sum() + lse.sum()

    leaves = [normal(1, 2, 40, 16, grad=True) for _ in range(3)]
    expected = torch.autograd.grad(model(*leaves), leaves)
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    got = torch.autograd.grad(compiled(*leaves), leaves)
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_second_derivative_is_rejected():
    q, k, v = (normal(1, 8, 16, grad=True) for _ in range(3))
    (g,) = torch.autograd.grad(flash_attention(q, k, v).square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        g.sum().backward()


X = (1, 2, 8, 16)


@pytest.mark.parametrize(
    "error, message, q, k, v, options",
    [
        (ValueError, "got 2 dimensions", (8, 16), (8, 16), (8, 16), {}),
        (ValueError, "k and v must have the same shape", X, X, (1, 2, 9, 16), {}),
        (ValueError, "differ only in length", X, (1, 3, 8, 16), (1, 3, 8, 16), {}),
        (ValueError, "differ only in length", X, (1, 8, 16), (1, 8, 16), {}),
        (ValueError, "d must be from 1 to 256", (1, 2, 257), (1, 2, 257), (1, 2, 257), {}),
        (ValueError, "must not be empty", (0, 2, 8, 16), (0, 2, 8, 16), (0, 2, 8, 16), {}),
        (ValueError, "as many keys", X, (1, 2, 9, 16), (1, 2, 9, 16), {"causal": True}),
        (ValueError, "scale must be", X, X, X, {"scale": float("inf")}),
    ],
)
def test_invalid_shapes_are_rejected(error, message, q, k, v, options):
    with pytest.raises(error, match=message) as caught:
        flash_attention(normal(*q), normal(*k), normal(*v), **options)
    assert "\n" not in str(caught.value)


def test_invalid_dtypes_and_devices_are_rejected():
    x = normal(*X)
    with pytest.raises(TypeError, match="same dtype"):
        flash_attention(x, x.half(), x)
    with pytest.raises(TypeError, match="dtype must be"):
        flash_attention(x.double(), x.double(), x.double())
    with pytest.raises(ValueError, match="same device"):
        flash_attention(x, x.to("meta"), x)


@pytest.mark.gpu
def test_cpu_tensors_are_rejected_without_interpreter():
    x = torch.randn(X)
    with pytest.raises(ValueError, match="TRITON_INTERPRET"):
        flash_attention(x, x, x)


@pytest.mark.gpu
@pytest.mark.parametrize("n, d, causal", [(1000, 64, False), (8192, 128, True)])
def test_float32_is_as_accurate_as_pytorch(n, d, causal):
    x = [normal(1, 2, n, d) for _ in range(4)]
    reference = attention_float64(*x, causal)
    errors = []
    for implementation in (flash_attention, attention):
        leaves = [t.clone().requires_grad_() for t in x[:3]]
        out = implementation(*leaves, causal)
        gradients = torch.autograd.grad(out, leaves, x[3])
        got = {"out": out, **dict(zip(("dq", "dk", "dv"), gradients, strict=True))}
        errors.append(attention_errors(got, reference))
    for tensor in errors[0]:
        assert errors[0][tensor] <= 2 * errors[1][tensor], (tensor, errors)


@pytest.mark.gpu
def test_offsets_beyond_32_bits_are_supported(monkeypatch):
    # test_hopper_forward.py tests the kernel for Hopper.
    monkeypatch.setattr(hopper_forward, "takes", lambda *forms: False)
    x = normal(33, 32, 32768, 64, dtype=torch.bfloat16)
    last = x[-1:, -1:].clone().requires_grad_()
    whole = flash_attention(x, x, x, True)[-1:, -1:]
    assert torch.equal(whole, flash_attention(last, last, last, True))
