"""FlashAttention-2 in Triton, forward and backward (Dao 2023, arXiv:2307.08691).

Attention is O = softmax(scale Q K^T) V. Written plainly it moves the n x n scores through memory
several times; here they never leave the chip.

Forward (algorithm 1): a program owns a tile of queries and walks over the tiles of keys. It keeps
for each row the running maximum m, the running sum l and the unnormalised output acc:

    m' = max(m, rowmax S),  P = exp(S - m'),  a = exp(m - m')
    l  = a l + rowsum P,    acc = a acc + P V

and writes O = acc / l and the logsumexp L = m + log l, which is all that backward needs.
Backward (algorithm 2) recomputes each tile of P = exp(S - L) and uses

    delta = rowsum(dO * O),  dV = P^T dO,  dS = P * (dO V^T - delta),
    dQ = scale dS K,  dK = scale dS^T Q

in three kernels: delta; dK and dV, where a program owns a tile of keys and walks over queries; dQ,
where it owns a tile of queries and walks over keys. Each result is summed in one order: no atomics,
the same bits every time, for 7 matmuls where one fused kernel needs 5.

On Hopper, float16 and bfloat16 have kernels of their own, in Gluon, Triton's language for layouts,
barriers and roles of warps, which is experimental: they are taken with Triton 3.6, which they were
run with. Forward (`hopper_forward.py`), wherever there are enough tiles: warps
that load, and warp groups whose softmax runs under each other's matmuls. Backward
(`hopper_backward.py`), long and many sequences: one kernel, which adds to dQ in the order that
programs come by, unless torch.use_deterministic_algorithms asks for the same bits, and not for
warnings alone.

Where tiles are too few to fill the device, what they walk over is split among programs
(`splits.py`). On Hopper, tiles are read by descriptors, that is by the copy engine, which leaves
the registers to the accumulators.

FLOPs: 4 n^2 d forward, 10 n^2 d backward (the pair executes 14), half of it when causal. Bytes:
each of q, k, v, out once, plus K and V once more for every tile of queries, mostly from L2. In
bfloat16 that is n / 2 FLOPs a byte of the tensors: bound by the matrix units from n = 1024 on.

Errors: the probabilities and dS are rounded to the storage dtype before each matmul, everything
else is float32; `lmperf.attention.accuracy.error_bound` derives what follows from that. A float32
matmul is three of float16 halves (`halves.py`, 2^-22), or one where torch allows TF32.

    interface.py        what a caller uses: autograd, autocast, torch.compile
    arguments.py        what the kernels take
    launch.py           a signature's launches, worked out once
    forward.py          one kernel, and what one signature launches
    backward.py         what one signature launches: delta and both gradient kernels
    hopper_forward.py   the same on Hopper; hopper_forward_kernel.py its kernel
    hopper_backward.py  the same on Hopper; hopper_backward_kernel.py its kernel
    operands.py         what both gradient kernels read; delta
    key_gradients.py    dK and dV
    query_gradients.py  dQ
    tiles.py            a tile: loaded, multiplied, stored
    halves.py           float32 operands as two of float16
    splits.py           parts of the work, and their sum
    configurations.py   tile sizes for known devices, and how much is split
    autotune.py         tile sizes for other devices, found once
    variants.py         a kernel in one configuration, for autotuning and tuning
"""

from lmperf.attention.triton.interface import FlashAttention, flash_attention

__all__ = ["FlashAttention", "flash_attention"]
