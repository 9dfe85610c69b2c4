"""Cosine and sine of every angle of a tile, accurate to float32 for angles of any size."""

import triton
import triton.language as tl

INVERSE_TWO_PI = tl.constexpr(0.15915494309189535)
FIXED_POINT = tl.constexpr(2.0**62)
QUARTER_TURNS = tl.constexpr(2.0**-32)

# sin(pi/2 y) / y and cos(pi/2 y) as polynomials in y^2, minimax on |y| <= 1/2 (errors 5e-9, 5e-11).
SINE_0 = tl.constexpr(1.5707963705062866)
SINE_1 = tl.constexpr(-0.6459634900093079)
SINE_2 = tl.constexpr(0.07968022674322128)
SINE_3 = tl.constexpr(-0.004602177068591118)
COSINE_1 = tl.constexpr(-1.2337005138397217)
COSINE_2 = tl.constexpr(0.25366923213005066)
COSINE_3 = tl.constexpr(-0.02086028829216957)
COSINE_4 = tl.constexpr(0.0009040216100402176)


@triton.jit
def cosine_and_sine(index, theta):
    """cos and sin of index * theta, in float32.

    index: int32, 0 or more; theta: float32, float16 or bfloat16; their shapes broadcast.

    A product in float32 would have an error of index * theta * 2^-24 radians: 0.004 at an angle of
    65536. Only the fraction of a turn matters. So theta is converted to turns in 64-bit fixed point
    (through float64, once per theta), and the integer product with the index wraps around at whole
    turns. Its upper 32 bits are the phase: the nearest quarter turn, and y, the distance from it in
    quarter turns, from -1/2 to 1/2.

    Error of the phase: at most index * (|theta| 2^-54 + 2^-62) + 2^-32 turns. After rounding y to
    float32 and evaluating the polynomials, cos and sin are within 3 * 2^-24 of the exact values. An
    infinite or NaN theta gives NaN.
    """
    turns = theta.to(tl.float64) * INVERSE_TWO_PI
    fixed = ((turns - tl.floor(turns)) * FIXED_POINT).to(tl.int64) << 2
    phase = ((index.to(tl.int64) * fixed) >> 32).to(tl.int32)
    nearest = (phase + (1 << 29)) >> 30
    not_finite = theta.to(tl.float32) * 0.0
    y = tl.fma((phase << 2).to(tl.float32), QUARTER_TURNS, not_finite)
    z = y * y
    s = tl.fma(tl.fma(tl.fma(z, SINE_3, SINE_2), z, SINE_1), z, SINE_0) * y
    c = tl.fma(tl.fma(tl.fma(z, COSINE_4, COSINE_3), z, COSINE_2), z, COSINE_1)
    c = tl.fma(c, z, 1.0)
    odd = (nearest & 1) != 0
    cosine, sine = tl.where(odd, s, c), tl.where(odd, c, s)
    cosine = tl.where(((nearest + 1) & 2) != 0, -cosine, cosine)
    sine = tl.where((nearest & 2) != 0, -sine, sine)
    return cosine, sine


@triton.jit
def tile_of_angles(
    theta,
    odd_lengths,
    first,
    extra_tokens,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    AXES: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """cos and sin of the angles of tokens first ... first + BLOCK_T of one head.

    theta: pointer to the row [WIDTH] of that head. odd_lengths: see `odd`. The angle of channel c
    is the index along axis c // WIDTH times theta[c % WIDTH]; extra tokens have index 0 on each
    axis. Returns two float32 tiles [BLOCK_T, BLOCK_D].
    """
    channels = tl.arange(0, BLOCK_D)
    step = tl.load(theta + channels % WIDTH, channels < D, 0.0)[None, :]
    rest = tl.maximum(first + tl.arange(0, BLOCK_T) - extra_tokens, 0)
    if AXES == 1:
        return cosine_and_sine(rest[:, None], step)
    else:
        axis_of = (channels // WIDTH)[None, :]
        index = tl.zeros([BLOCK_T, BLOCK_D], tl.int32)
        # Row-major: the last axis is the fastest. Unsigned division takes fewer instructions.
        rest = rest.to(tl.uint32)
        for i in tl.static_range(AXES - 1):
            length = (odd_lengths[AXES - 1 - i] >> 1).to(tl.uint32)
            along = (rest % length).to(tl.int32)
            index = tl.where(axis_of == AXES - 1 - i, along[:, None], index)
            rest = rest // length
        index = tl.where(axis_of == 0, rest.to(tl.int32)[:, None], index)
        return cosine_and_sine(index, step)


def odd(lengths: tuple[int, ...]) -> tuple[int, ...]:
    """Axis lengths encoded for a kernel: each n as 2 n + 1.

    Triton specialises on elements of a tuple that are 1 or multiples of 16. These are neither, so
    one compiled kernel serves every length.
    """
    return tuple(2 * length + 1 for length in lengths)
