import itertools
import math

import pytest
import torch

from lmperf.lrpe.reference import bytes_moved, cosines_float64, flops


@pytest.mark.parametrize(
    ("shape", "d", "extra_tokens"), [((5,), 3, 0), ((2, 3), 4, 2), ((2, 3, 2), 8, 1)]
)
def test_angles_match_the_definition(shape, d, extra_tokens):
    heads, m = 2, len(shape)
    e = -(-d // m)
    theta = torch.rand(heads, e)
    cosine, sine = cosines_float64(theta, shape, d, extra_tokens)
    tokens = [(0,) * m] * extra_tokens + list(itertools.product(*map(range, shape)))
    assert cosine.shape == (heads, len(tokens), d)
    for h, (p, index), c in itertools.product(range(heads), enumerate(tokens), range(d)):
        i = c // e + 1
        angle = index[i - 1] * float(theta[h, c - (i - 1) * e])
        assert float(cosine[h, p, c]) == pytest.approx(math.cos(angle), abs=1e-12)
        assert float(sine[h, p, c]) == pytest.approx(math.sin(angle), abs=1e-12)


def test_flops_and_bytes_follow_the_closed_forms():
    assert bytes_moved(12, 12, 32768, 128, "bfloat16") == 3 * 2 * 12 * 12 * 32768 * 128
    assert flops(1, 2, 3, 4) == 48 and flops(1, 2, 3, 4, "backward") == 72
    with pytest.raises(KeyError):
        bytes_moved(1, 1, 1, 1, "tf32")
