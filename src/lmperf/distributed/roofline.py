"""When training on N devices becomes bound by communication, in closed form.

Imports no torch. Notation of the course (after "How to Scale Your Model", the chapter on training):

    B      batch in tokens, of all devices together     D, D_FF   widths of a feed-forward layer
    N      devices                                      M         its matrices of D D_FF weights
    C      FLOP/s of a device                           W         bytes/s that a device sends

M is 3 for a SwiGLU and 2 for a plain feed-forward layer; attention is left out, as in the chapter.
w, g and a are the bytes of a gathered weight, of a gradient and of an activation; a collective
takes what its ring sends: (N-1)/N of the bytes over W, for an all-reduce twice that.

One layer takes 2 M B D D_FF / (N C) forward, and twice that backward. Its communication is hidden
if it takes no longer than this. That is so for

**Data parallelism** (gradients all-reduced in the backward pass): 2 g M D D_FF (N-1)/N / W, so

    B/N >= (g/2) (N-1)/N C/W.

**Fully sharded** (weights gathered in both passes, gradients reduce-scattered): forward
w M D D_FF (N-1)/N / W, backward (w + g) M D D_FF (N-1)/N / W, so

    B/N >= max(w/2, (w + g)/4) (N-1)/N C/W.

**Tensor parallelism** (a gather of the input and a reduce-scatter of the output, both [B, D], in
either pass, twice in the backward): 2 a B D (N-1)/N / W, so for any batch

    N - 1 <= M D_FF W / (a C).

**Both axes**, X devices fully sharded and Y = N/X tensor parallel, for large X and Y. Forward, the
weights of 1/Y of the layer take T_F = w M D D_FF / (Y W), and the activations of 1/X of the batch
T_T = 2 a B D / (X W). Their product does not depend on X. If each axis has links of its own, the
longer of the two counts; it is least for T_F = T_T, that is X = sqrt(2 a B N / (w M D_FF)):

    B/N >= a w C^2 / (2 M D_FF W^2).

If the axes share their links, as behind an NVLink switch, the sum counts, which is least at the
same X, and twice as long: B/N >= 4 times that. In the backward pass, w becomes (w + g)/2.
With a = w = g = 2 and M = 2 these are the chapter's results: C/W tokens a device; N <= D_FF W/C;
(C/W)^2 / D_FF, or 4 times that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

DATA, FULLY_SHARDED, TENSOR = "data", "fully_sharded", "tensor"
BOTH_OVERLAPPED, BOTH_SHARED = "both_overlapped", "both_shared"
KINDS = (DATA, FULLY_SHARDED, TENSOR, BOTH_OVERLAPPED, BOTH_SHARED)


@dataclass(frozen=True)
class Widths:
    """A feed-forward layer and the bytes of what its parallel training sends.

    Attributes:
        d_ff: D_FF.
        weight, gradient, activation: bytes of an element, w, g and a.
        matrices: M.
    """

    d_ff: int
    weight: int
    gradient: int
    activation: int
    matrices: int = 3

    @property
    def sharded(self) -> float:
        """Bytes per weight and half pass: the larger of the forward's and the backward's."""
        return max(self.weight, (self.weight + self.gradient) / 2)


def tokens_per_device(kind: str, widths: Widths, ratio: float, devices: int | None = None) -> float:
    """Return the least tokens per device, B/N, with which a layer's communication is hidden.

    Tensor parallelism does not depend on the batch: 0 if it can be hidden, else infinite.

    Args:
        kind: one of KINDS.
        ratio: C/W in FLOP per byte.
        devices: N; None: many, (N-1)/N = 1. Both axes count as many, and tensor parallelism needs
            the number.

    Raises:
        ValueError: the kind is unknown, or tensor parallelism has no number of devices.
    """
    some = 1 - 1 / devices if devices else 1.0
    both = widths.activation * widths.sharded * ratio**2 / (2 * widths.matrices * widths.d_ff)
    if kind == TENSOR:
        if devices is None:
            raise ValueError("tensor parallelism depends on the number of devices")
        return 0.0 if devices <= most_devices(kind, widths, ratio, 0) else math.inf
    least = {
        DATA: widths.gradient / 2 * some * ratio,
        FULLY_SHARDED: widths.sharded / 2 * some * ratio,
        BOTH_OVERLAPPED: both,
        BOTH_SHARED: 4 * both,
    }
    if kind not in least:
        raise ValueError(f"kind {kind!r} is none of {', '.join(KINDS)}")
    return least[kind]


def most_devices(kind: str, widths: Widths, ratio: float, tokens: float) -> float:
    """Return the most devices N with which a layer's communication is hidden, not rounded.

    tokens: B, of all devices together. Other arguments and errors as for `tokens_per_device`.
    """
    if kind == TENSOR:
        return 1 + widths.matrices * widths.d_ff / (widths.activation * ratio)
    least = tokens_per_device(kind, widths, ratio)
    # B/N >= least (N-1)/N, without large N in one of the two, is N <= 1 + B/least.
    return tokens / least + (kind in (DATA, FULLY_SHARDED))


def best_sharded(widths: Widths, tokens: float, devices: int) -> float:
    """Return X, the devices of the fully sharded axis of both, that make communication least."""
    numerator = 2 * widths.activation * tokens * devices
    return math.sqrt(numerator / (widths.sharded * widths.matrices * widths.d_ff))
