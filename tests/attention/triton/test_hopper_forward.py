"""Tests of the forward pass on a Hopper GPU: it matches float64 and is used when it should be."""

import math

import pytest
import torch

from lmperf.attention.accuracy import attention_errors, error_bound
from lmperf.attention.reference import attention_float64
from lmperf.attention.triton import forward, hopper_forward
from lmperf.attention.triton.launch import Form, form

pytestmark = pytest.mark.interpreter

CONFIGURATIONS = {
    "narrow": (hopper_forward.NARROW, (16, 64)),
    "narrow and short": (hopper_forward.NARROW_SHORT, (24, 64)),
    "middle": (hopper_forward.MIDDLE, (72, 80, 96, 112, 128)),
    "wide": (hopper_forward.WIDE, (136, 256)),
}
SHAPES = [(2, 3, 1024, 1024), (2, 3, 333, 333), (2, 3, 1025, 1025), (3, 5, 130, 200), (1, 1, 1, 40)]


@pytest.fixture(scope="module")
def on_hopper():
    if torch.cuda.get_device_capability()[0] != 9:
        pytest.skip("needs a Hopper GPU")


def strided(batch, heads, n, d, dtype):
    """[batch, heads, n, d] as a view of [batch, n, heads, d]."""
    return torch.randn(batch, n, heads, d, device="cuda").to(dtype).transpose(1, 2)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "configuration, d", [(c, d) for c, widths in CONFIGURATIONS.values() for d in widths]
)
def test_every_configuration_is_within_error_bounds(configuration, d, on_hopper):
    for name in ("bfloat16", "float16"):
        for i, (batch, heads, n, m) in enumerate(SHAPES):
            causal = n == m and (i + (name == "float16")) % 2 == 0
            dtype = getattr(torch, name)
            q = strided(batch, heads, n, d, dtype)
            k, v = strided(batch, 2 * heads, m, d, dtype).chunk(2, 1)
            launches = hopper_forward.Forward(
                Form.of(q), Form.of(k), causal, d**-0.5, configuration
            )
            out, lse = launches(q, k, v)
            assert out.stride() == q.stride()
            reference = attention_float64(q, k, v, torch.zeros_like(q), causal)
            errors = attention_errors({"out": out, "lse": lse}, reference)
            for tensor, error in errors.items():
                assert error <= error_bound(tensor, name), (tensor, n, m, name)


@pytest.mark.parametrize("sms", [78, 114, 132])
@pytest.mark.parametrize("tiles", [1, 8, 27, 64, 86, 128, 160, 300])
def test_tiles_sorted_together_fill_waves(tiles, sms):
    mib = 2**20
    assert hopper_forward.together_of(tiles, 40, mib, sms) == 40
    for sequences in (100, 1000):
        together = hopper_forward.together_of(tiles, sequences, mib, sms)
        # Else a program would have no first tile.
        assert together == sequences or together * tiles >= sms
        waves = together * tiles / sms
        assert together == sequences or waves / math.ceil(waves) > 0.85


@pytest.mark.gpu
def test_every_order_of_tiles_is_correct_and_reproducible(on_hopper):
    # Pairs, also of an odd number of tiles; sorted tiles of some heads together, with whole waves
    # and an incomplete one; sorted tiles of all heads.
    for heads, n in ((260, 390), (308, 640), (264, 700), (240, 890), (21, 1500)):
        q, k, v = (strided(1, heads, n, 128, torch.bfloat16) for _ in range(3))
        launches = hopper_forward.Forward(Form.of(q), Form.of(k), True, 128**-0.5)
        out, lse = launches(q, k, v)
        reference = attention_float64(q, k, v, torch.zeros_like(q), True)
        errors = attention_errors({"out": out, "lse": lse}, reference)
        assert all(error <= error_bound(t, "bfloat16") for t, error in errors.items())
        for _ in range(3):
            assert torch.equal(launches(q, k, v)[0], out)


@pytest.mark.gpu
def test_offsets_beyond_32_bits_are_supported(on_hopper):
    x = torch.randn(33, 32, 32768, 64, device="cuda", dtype=torch.bfloat16)
    whole, lse = forward.forward(x, x, x, True, None)
    last = x[-1:].clone()  # has enough heads for the same kernel
    found = forward.forward(last, last, last, True, None)
    assert torch.equal(whole[-1:], found[0]) and torch.equal(lse[-1:], found[1])


@pytest.mark.gpu
def test_hopper_kernel_is_used_for_large_tma_readable_inputs(on_hopper):
    def planned(x, dtype=torch.bfloat16, width=None):
        x = x.to(dtype)[..., :width]
        signature = (form(x), form(x), form(x), True, None, "ieee", None)
        return forward.plan(*signature)

    many, few = torch.randn(4, 16, 1024, 64, device="cuda"), torch.randn(1, 1, 4096, 64).cuda()
    in_gluon = planned(many)
    in_gluon(*3 * [many.bfloat16()])
    assert isinstance(in_gluon.launches, hopper_forward.Forward)
    assert isinstance(planned(few), forward.Forward)
    assert isinstance(planned(many, torch.float32), forward.Forward)
    assert isinstance(planned(many, width=60), forward.Forward)
    assert isinstance(planned(many[..., 1:], width=56), forward.Forward)
