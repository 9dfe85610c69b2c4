"""md_lrpe_cosine in Triton, forward and backward (Qin et al. 2023, arXiv:2307.09270).

A token's position becomes an angle for each channel, and the channel is turned by it:

    Out = concat(X cos(Angle), X sin(Angle)),  dX = dOut_cos cos(Angle) + dOut_sin sin(Angle)

where Angle[h, p, c] = s_i theta[h, c - (i - 1) e], with the index s_i of token p along the axis i
that channel c belongs to (`lmperf.lrpe.reference` has the definition in full).

Memory: backward needs theta and the shape alone; out and dx are all that is allocated. Caching the
angles keeps cos and sin as well, 8 h t d bytes for t tokens, which saves the backward some
arithmetic and adds 8 / (6 b) to the bytes that each direction moves in bfloat16: 11 % at batch 12.

Compilation: a kernel is compiled for d, e, the number of axes, dtype and alignment. Lengths,
strides, heads and batch are plain arguments: another length never compiles anew.

    interface.py   what a caller uses: checks, autograd, torch.compile
    kernels.py     the two kernels and their launches: algorithm, bytes, FLOPs, errors
    angles.py      cos and sin of a tile of angles
    launch.py      tile sizes, split of the batch, alignment
"""

from lmperf.lrpe.triton.interface import LrpeCosine, lrpe_cosine, lrpe_cosine_cached

__all__ = ["LrpeCosine", "lrpe_cosine", "lrpe_cosine_cached"]
