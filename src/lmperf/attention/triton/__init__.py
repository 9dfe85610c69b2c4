"""FlashAttention-2 in Triton, forward and backward (Dao 2023, arXiv:2307.08691).

Attention is O = softmax(scale Q K^T) V. In plain PyTorch the n x n scores pass through device
memory several times; here they never leave the chip.

Forward (algorithm 1): a Triton program (a CTA) owns a tile of queries and loops over the tiles of
keys. For each row it keeps the running maximum m, the running sum l and the unnormalised output
acc:

    m' = max(m, rowmax S),  P = exp(S - m'),  a = exp(m - m')
    l  = a l + rowsum P,    acc = a acc + P V

It writes O = acc / l and the logsumexp L = m + log l, which is all that the backward pass needs.
Backward (algorithm 2) recomputes each tile of P = exp(S - L) and computes

    delta = rowsum(dO * O),  dV = P^T dO,  dS = P * (dO V^T - delta),
    dQ = scale dS K,  dK = scale dS^T Q

in three kernels: delta; dK and dV, where a program owns a tile of keys and loops over queries; dQ,
where it owns a tile of queries and loops over keys. This takes 7 matmuls where one fused kernel
needs 5. Every sum has a fixed order and there are no atomics, so results are bitwise reproducible.

On Hopper, float16 and bfloat16 have their own kernels, in Gluon: Triton's language with explicit
layouts, barriers and warp roles. Gluon is experimental: if these kernels cannot be compiled or
launched, those in Triton's own language run (`lmperf.attention.gluon`). They were tested with
Triton 3.6 and 3.7. The forward kernel (`hopper_forward.py`) is used if there are enough tiles, or
several short sequences.
It is warp-specialised: a producer warp loads by TMA, and the softmax of one warp group overlaps the
matmuls of another. The backward kernel (`hopper_backward.py`) is used where its tiles fill the
device. It is fused: programs with tiles of keys add to dQ. If torch.use_deterministic_algorithms is
on, not only to warn, they do so in a fixed order, and wider heads than 128 use the three kernels.

If there are too few tiles to fill the device, the loop over the other axis is split among programs
(`splits.py`). On Hopper, tiles are loaded by TMA descriptors, which leaves the registers to the
accumulators.

FLOPs: 4 n^2 d forward, 10 n^2 d backward (the two gradient kernels execute 14), half of that if
causal. Bytes: each of q, k, v, out once, plus K and V once more for every tile of queries, mostly
from L2. In bfloat16 that is n / 2 FLOPs per byte of the tensors: compute-bound from n = 1024 on.

Errors: P and dS are rounded to the storage dtype before each matmul, everything else is float32;
`lmperf.attention.accuracy.error_bound` derives the bound from that. A float32 matmul is three
matmuls of float16 halves (`halves.py`, relative error 2^-22), or a single one if torch allows TF32.

Every module imports only modules that stand below it:

    interface.py        public API: autograd, autocast, torch.compile
    backward.py         launch plan of the backward pass: delta and the gradient kernels, or fused
    forward.py          kernel and launch plan of the forward pass
    hopper_backward.py  launch plan of the fused backward pass; hopper_backward_kernel.py its kernel
                        for wide heads, hopper_backward_narrow_kernel.py for narrow ones
    hopper_turns.py     order in which the latter takes tiles and adds to dQ
    hopper_forward.py   launch plan on Hopper; hopper_forward_kernel.py its kernel
    key_gradients.py    kernel of dK and dV
    query_gradients.py  kernel of dQ
    operands.py         operands of both gradient kernels; kernel of delta
    selection.py        which configuration a kernel gets
    autotune.py         tile sizes on a device without a table: checked, timed and cached
    configurations.py   tile sizes of devices with a table
    arguments.py        checks of shapes, dtypes and devices
    splits.py           kernels that combine the parts of a split loop
    halves.py           float32 operands as two float16 halves
    launch.py           launches that are planned once per signature
    tiles.py            tiles: loading, multiplying, storing
"""

from lmperf.attention.triton.interface import FlashAttention, flash_attention

__all__ = ["FlashAttention", "flash_attention"]
