"""Peak memory of md_lrpe_cosine in closed form: tensors that autograd saves, and temporaries.

X [b, h, t, d] has x bytes, so Out, dOut and dX have 2 x, 2 x and x. A float32 tensor of angles
[h, t, d] has a bytes, one of X's shape f bytes. For a float32 X, `.float()` makes no copy. X and
theta are always included.

    forward    our kernel        3 x            X and Out: the backward pass needs only theta
               cached            3 x + 2 a      also cos and sin
               compiled          3 x + a        also the angle, which Inductor saves
               plain, half       x + 5 f + 3 a  during torch.cat: X in float32, the angle, its cos
                                                and sin, both products and their concatenation
               plain, float32    x + 4 f + 3 a
    backward   our kernel        6 x            X, Out, dOut and dX
               cached, compiled  the same and the saved angles
               plain, half       5 x + 4 f + a  dOut in float32, both products, and cos or sin
               plain, float32    5 x + 2 f + max(a, f)  both products, and the larger of cos or sin
                                                and the sum of the products
"""

from __future__ import annotations

from lmperf.lrpe.reference import BYTES_PER_ELEMENT

_KEPT_ANGLES = {"triton": 0, "triton_cached": 2, "compiled": 1}


def predicted_peaks(
    implementation: str, batch: int, heads: int, tokens: int, d: int, width: int, dtype: str
) -> dict[str, int]:
    """Predicted peak bytes of "forward" and "backward", by the module docstring's closed forms.

    Empty for an implementation without a closed form. width: of theta [heads, width], in float32.
    dtype: float32, float16 or bfloat16; else KeyError.
    """
    angle, theta = 4 * heads * tokens * d, 4 * heads * width
    x = batch * heads * tokens * d * BYTES_PER_ELEMENT[dtype]
    if implementation in _KEPT_ANGLES:
        kept = _KEPT_ANGLES[implementation] * angle + theta
        return {"forward": 3 * x + kept, "backward": 6 * x + kept}
    if implementation != "eager":
        return {}
    wide, half = 4 * batch * heads * tokens * d, dtype != "float32"
    forward = x + (5 if half else 4) * wide + 3 * angle
    backward = 5 * x + (4 * wide + angle if half else 2 * wide + max(angle, wide))
    return {"forward": forward + theta, "backward": backward + theta}
