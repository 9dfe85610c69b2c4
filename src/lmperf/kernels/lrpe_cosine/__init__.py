"""md_lrpe_cosine in Triton, forward and backward (Qin et al. 2023, arXiv:2307.09270).

A token's position becomes an angle for each channel, and the token is turned by it:

    Out = concat(X cos(Angle), X sin(Angle)),  dX = dOut_cos cos(Angle) + dOut_sin sin(Angle)

where Angle[h, p, c] = s_i theta[h, c - (i - 1) e] with the index s_i of token p along the axis i
that channel c belongs to (`lmperf.kernels.lrpe_reference` has the definition in full).

Algorithm. The angle depends on head, token and channel, but not on the sequence of the batch. So a
program owns a block of tokens of one head: it unravels their positions, takes cos and sin of the
tile's angles once, keeps both in registers, and walks over the batch: load a tile, multiply, store
two (backward: load two, store one). Where heads x blocks are too few to fill the device, the batch
is split between several programs, which compute the same angles.

Bytes: 3 b h t d elements in either direction (t tokens), each once, in accesses of 16 bytes. FLOPs:
2 an element forward and 3 backward, and some 45 instructions an angle, which a batch of 12 brings
down to 4 an element: at 6 bytes an element of bfloat16 the memory is the bound by far. Caching the
angles (cos and sin, 8 h t d bytes) saves the backward these instructions and costs 4 / b of X in
float32, 8 / (3 b) of the traffic in bfloat16, so it should not pay.

Memory. Backward needs theta and the shape only; out and dx are all that is allocated.

Errors. Angles are reduced in 64-bit fixed point (`angles.cosine_and_sine`), so cos and sin are
within 3 * 2^-24 whatever the length; the products are float32 and rounded once to the storage dtype
(`lmperf.kernels.lrpe_accuracy` derives the bounds).

Compilation. A kernel is compiled for d, e, the number of axes, dtype and alignment. Lengths,
strides, heads and batch are plain arguments: another length never compiles anew.

    interface.py   what a caller uses: checks, autograd, torch.compile
    angles.py      cos and sin of a tile of angles
    kernels.py     the two kernels and their launches
    launch.py      tile sizes, split of the batch, alignment
    tune.py        python -m lmperf.kernels.lrpe_cosine.tune
"""

from lmperf.kernels.lrpe_cosine.interface import LrpeCosine, lrpe_cosine, lrpe_cosine_cached

__all__ = ["LrpeCosine", "lrpe_cosine", "lrpe_cosine_cached"]
