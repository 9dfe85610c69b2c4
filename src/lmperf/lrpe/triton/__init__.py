"""md_lrpe_cosine in Triton, forward and backward (Qin et al. 2023, arXiv:2307.09270).

The position of a token gives an angle for each channel, by which the channel is rotated:

    Out = concat(X cos(Angle), X sin(Angle)),  dX = dOut_cos cos(Angle) + dOut_sin sin(Angle)

where Angle[h, p, c] = s_i theta[h, c - (i - 1) e], with the index s_i of token p along the axis i
that channel c belongs to (the full definition is in `lmperf.lrpe.reference`).

Memory: the backward pass needs only theta and the shape; only out and dx are allocated. Caching the
angles also saves cos and sin, 8 h t d bytes for t tokens. That saves the backward pass arithmetic
and adds 8 / (6 b) to the bytes that each direction moves in bfloat16: 11 % at batch 12.

Compilation: a kernel is specialised to d, e, the number of axes, dtype and alignment. Lengths,
strides, heads and batch are plain arguments: a new length never recompiles.

    interface.py   public API: checks, autograd, torch.compile
    kernels.py     the two kernels and their launches: algorithm, bytes, FLOPs, errors
    angles.py      cos and sin of a tile of angles
    launch.py      tile sizes, split of the batch, alignment
"""

from lmperf.lrpe.triton.interface import LrpeCosine, lrpe_cosine

__all__ = ["LrpeCosine", "lrpe_cosine"]
