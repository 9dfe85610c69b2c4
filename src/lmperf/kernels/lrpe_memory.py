"""Peak memory of md_lrpe_cosine in closed form, from what autograd saves and what is alive with it.

X [b, h, t, d] weighs x bytes, so Out, dOut and dX weigh 2 x, 2 x and x; a float32 tensor of angles
[h, t, d] weighs a. In half precision a float32 copy of X weighs 2 x (copy = 2 x; 0 in float32, where
`.float()` copies nothing). theta is there throughout. Each peak counts X, which is resident once.

    forward    our kernel     x + 2 x                  Out; backward needs theta alone
               cached         x + 2 x + 2 a            and cos and sin
               compiled       x + 2 x + a              Inductor keeps the angle
               plain          x + copy + 3 a + 4 f     at the concatenation: X in float32, the angle,
                                                       its cos and sin, both products and their
                                                       concatenation, f = x or copy each
    backward   our kernel     3 x + 2 x + x            X, Out, dOut, and dX
               cached         the same + 2 a
               compiled       the same + a
               plain, half    5 x + 4 f + a            dOut in float32, both products, cos or sin
               plain, float32 5 x + max(2 x + a, 3 x)  both products and one angle, or their sum
"""

from __future__ import annotations

from lmperf.kernels.lrpe_reference import BYTES_PER_ELEMENT

_KEPT_ANGLES = {"triton": 0, "triton_cached": 2, "compiled": 1}


def predicted_peaks(
    implementation: str, batch: int, heads: int, tokens: int, d: int, width: int, dtype: str
) -> dict[str, int]:
    """Bytes at the peak of "forward" and of "backward"; empty for an implementation not known here.

    width: of theta [heads, width], in float32. dtype: float32, float16 or bfloat16.
    """
    angle, theta = 4 * heads * tokens * d, 4 * heads * width
    x = batch * heads * tokens * d * BYTES_PER_ELEMENT[dtype]
    if implementation in _KEPT_ANGLES:
        kept = _KEPT_ANGLES[implementation] * angle + theta
        return {"forward": 3 * x + kept, "backward": 6 * x + kept}
    if implementation != "eager":
        return {}
    if dtype == "float32":
        forward, backward = 5 * x + 3 * angle, 5 * x + max(2 * x + angle, 3 * x)
    else:
        wide = 2 * x
        forward = x + wide + 3 * angle + 4 * wide
        backward = 5 * x + 4 * wide + angle
    return {"forward": forward + theta, "backward": backward + theta}
