"""The fused backward kernel for Hopper and heads of more than 64 channels, in Gluon.

Gluon controls which matmuls are in flight together. dV runs while dS is computed. dQ follows as
soon as dS is in shared memory, and is added to device memory while dK runs. The two warp groups
wait for each other before dQ but not after it: they drift apart, so that the matmuls of one hide
the additions and the exponentials of the other. A barrier after dQ cost 8 to 11 %.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)

# The layout that WGMMA reads: rows of 128 bytes, swizzled.
LAYOUT = gl.NVMMASharedLayout(128, 16, 4)
ROWS_LAYOUT = gl.NVMMASharedLayout(0, 32, 1)
# Triton 3.7 has renamed it.
barrier = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier
# Double buffering of dS, and of P, in shared memory.
BUFFERS = gl.constexpr(2)


@gluon.jit
def _add_fragments(first, x):
    """Add x, a WGMMA accumulator in registers, atomically to device memory.

    A thread has 2 x 2 elements of each 16 x 8 fragment: columns c, c + 1 of rows r, r + 8. They are
    adjacent in memory: one vector instruction per thread, 512 contiguous bytes per warp.
    """
    rows: gl.constexpr = x.shape[0]
    r = gl.arange(0, rows, gl.SliceLayout(1, x.type.layout))
    c = gl.arange(0, x.shape[1], gl.SliceLayout(0, x.type.layout))
    row_part = r // 16 * 128 + r % 8 * 16
    column_part = c // 8 * (8 * rows) + c % 8 // 2 * 4
    pointers = first + (row_part[:, None] + column_part[None, :])
    gl.inline_asm_elementwise(
        "mov.b32 $0, 0; red.relaxed.gpu.global.add.v4.f32 [$1], {$5, $6, $7, $8};",
        "=r,l,l,l,l,f,f,f,f",
        [pointers.to(gl.int64), x],
        dtype=gl.int8,
        is_pure=False,
        pack=4,
    )


@gluon.jit
def _expect(bars, stage, BLOCK_M: gl.constexpr, BLOCK_D: gl.constexpr, valid):
    mbarrier.expect(bars[0].index(stage), BLOCK_M * BLOCK_D * 2, valid)
    mbarrier.expect(bars[1].index(stage), BLOCK_M * BLOCK_D * 2, valid)
    mbarrier.expect(bars[2].index(stage), 2 * BLOCK_M * 4, valid)


@gluon.jit
def _copy(
    sources,
    targets,
    bars,
    stage,
    batch,
    head,
    sequence_tile,
    tile,
    BLOCK_M: gl.constexpr,
    valid,
):
    """Start the TMA loads of Q, dO and the rows (logsumexp, delta) of one tile of queries.

    Every source has its own mbarrier, and `_expect` arms all of them before any load starts: the
    compiler would insert a thread barrier between two uses of the same one.
    """
    row = tile * BLOCK_M
    for j in gl.static_range(2):
        tma.async_copy_global_to_shared(
            sources[j], [batch, head, row, 0], bars[j].index(stage), targets[j].index(stage), valid
        )
    row = (sequence_tile + tile) * (2 * BLOCK_M)
    tma.async_copy_global_to_shared(
        sources[2], [row], bars[2].index(stage), targets[2].index(stage), valid
    )


@gluon.jit(do_not_specialize=("heads", "n_queries", "n_keys"))
def fused_kernel(
    q,
    k,
    v,
    grad_out,
    rows,
    dk,
    dv,
    dq,
    heads,
    n_queries,
    n_keys,
    scale,
    scale_log2,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_D: gl.constexpr,
    CAUSAL: gl.constexpr,
    STAGES: gl.constexpr,
    num_warps: gl.constexpr,
):
    """Compute dK and dV of one tile of keys, and add its part of dQ / scale for all queries.

    TMA descriptors: q, grad_out of [1, 1, BLOCK_M, BLOCK_D]; k, v, dk, dv of
    [1, 1, BLOCK_N, BLOCK_D]; rows of [2 * BLOCK_M]. dq: pointer to
    [b h tiles, BLOCK_M * BLOCK_D] float32.
    """
    dtype: gl.constexpr = q.dtype
    # Each of the two warp groups has 64 keys, and computes dQ^T. If WIDE, both have the same 64
    # keys and half of the columns each, and P^T and dS^T reach the matmuls of dV and dK through
    # shared memory.
    key_warps: gl.constexpr = BLOCK_N // 16
    column_warps: gl.constexpr = num_warps // key_warps
    query_warps: gl.constexpr = BLOCK_M // 16
    WIDE: gl.constexpr = column_warps > 1
    s_layout: gl.constexpr = gl.NVMMADistributedLayout(
        [3, 0], [key_warps, column_warps], [16, BLOCK_M // column_warps, 16]
    )
    d_layout: gl.constexpr = gl.NVMMADistributedLayout(
        [3, 0], [key_warps, column_warps], [16, BLOCK_D // column_warps, 16]
    )
    q_layout: gl.constexpr = gl.NVMMADistributedLayout(
        [3, 0],
        [query_warps, num_warps // query_warps],
        [16, BLOCK_D * query_warps // num_warps, 16],
    )
    operand_layout: gl.constexpr = gl.DotOperandLayout(0, d_layout, 2)
    of_queries: gl.constexpr = gl.SliceLayout(0, s_layout)
    half_layout: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)

    key_tiles = gl.cdiv(n_keys, BLOCK_N)
    tiles = gl.cdiv(n_queries, BLOCK_M)
    sequence = gl.program_id(0) // key_tiles
    batch, head = sequence // heads, sequence % heads
    first_column = gl.program_id(0) % key_tiles * BLOCK_N
    sequence_tile = sequence * tiles
    # The loop starts at the diagonal, even without a mask, so that concurrent programs add to
    # different rows of dQ. A tile of keys beyond the last query takes one step, with P = 0.
    first = first_column // BLOCK_M
    if CAUSAL:
        first = gl.minimum(first, tiles - 1)
        steps = tiles - first
    else:
        first = first % tiles
        steps = tiles

    k_block = gl.allocate_shared_memory(dtype, [1, 1, BLOCK_N, BLOCK_D], k.layout)
    v_block = gl.allocate_shared_memory(dtype, [1, 1, BLOCK_N, BLOCK_D], v.layout)
    q_shared = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, BLOCK_M, BLOCK_D], q.layout)
    do_shared = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, BLOCK_M, BLOCK_D], grad_out.layout)
    rows_shared = gl.allocate_shared_memory(gl.float32, [STAGES, 2 * BLOCK_M], rows.layout)
    ds_shared = gl.allocate_shared_memory(dtype, [BUFFERS, BLOCK_N, BLOCK_M], half_layout)
    if WIDE:
        p_shared = gl.allocate_shared_memory(dtype, [BUFFERS, BLOCK_N, BLOCK_M], half_layout)
    q_bars = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    do_bars = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    rows_bars = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    k_bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    v_bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    sources = (q, grad_out, rows)
    targets = (q_shared, do_shared, rows_shared)
    bars = (q_bars, do_bars, rows_bars)

    for j in gl.static_range(STAGES):
        mbarrier.init(q_bars.index(j), count=1)
        mbarrier.init(do_bars.index(j), count=1)
        mbarrier.init(rows_bars.index(j), count=1)
    mbarrier.init(k_bar, count=1)
    mbarrier.init(v_bar, count=1)
    barrier()
    mbarrier.expect(k_bar, BLOCK_N * BLOCK_D * 2)
    mbarrier.expect(v_bar, BLOCK_N * BLOCK_D * 2)
    for j in gl.static_range(STAGES - 1):
        _expect(bars, j, BLOCK_M, BLOCK_D, j < steps)
    barrier()
    tma.async_copy_global_to_shared(k, [batch, head, first_column, 0], k_bar, k_block)
    tma.async_copy_global_to_shared(v, [batch, head, first_column, 0], v_bar, v_block)
    for j in gl.static_range(STAGES - 1):
        ahead = first + j
        ahead = gl.where(ahead >= tiles, ahead - tiles, ahead)
        _copy(sources, targets, bars, j, batch, head, sequence_tile, ahead, BLOCK_M, j < steps)

    k_tile = k_block.reshape([BLOCK_N, BLOCK_D])
    v_tile = v_block.reshape([BLOCK_N, BLOCK_D])
    columns = first_column + gl.arange(0, BLOCK_N, gl.SliceLayout(1, s_layout))
    offsets = gl.arange(0, BLOCK_M, of_queries)
    zeros = gl.zeros([BLOCK_N, BLOCK_M], gl.float32, s_layout)
    dk_tile = warpgroup_mma_init(gl.zeros([BLOCK_N, BLOCK_D], gl.float32, d_layout))
    dv_tile = warpgroup_mma_init(gl.zeros([BLOCK_N, BLOCK_D], gl.float32, d_layout))
    mbarrier.wait(k_bar, 0)
    mbarrier.wait(v_bar, 0)
    barrier()
    stage = 0
    phase = 0
    # The addition makes the compiler treat this as a loop variable.
    tile = first + 0
    # `maximum` tells the compiler that there is at least one step: with a path around the loop,
    # ptxas would wait for every matmul as soon as it is issued.
    for i in range(gl.maximum(steps, 1)):
        q_tile = q_shared.index(stage).reshape([BLOCK_M, BLOCK_D])
        do_tile = do_shared.index(stage).reshape([BLOCK_M, BLOCK_D])
        row_values = rows_shared.index(stage)
        ds_buffer = ds_shared.index(i % BUFFERS)
        mbarrier.wait(q_bars.index(stage), phase)
        s = warpgroup_mma(k_tile, q_tile.permute([1, 0]), zeros, use_acc=False, is_async=True)
        # dP - delta: a sum that starts at -delta keeps no registers for delta.
        mbarrier.wait(rows_bars.index(stage), phase)
        start = zeros - row_values.slice(BLOCK_M, BLOCK_M).load(of_queries)[None, :]
        mbarrier.wait(do_bars.index(stage), phase)
        dp = warpgroup_mma(v_tile, do_tile.permute([1, 0]), start, is_async=True)
        lse = row_values.slice(0, BLOCK_M).load(of_queries)
        s = warpgroup_mma_wait(1, [s])
        p = gl.exp2(s * scale_log2 - lse[None, :])
        masked = first_column + BLOCK_N > n_keys
        if CAUSAL:
            masked = masked | (tile * BLOCK_M < first_column + BLOCK_N)
        if masked:
            seen = (columns < n_keys)[:, None]
            if CAUSAL:
                seen = seen & (columns[:, None] <= (tile * BLOCK_M + offsets)[None, :])
            p = gl.where(seen, p, 0.0)
        if WIDE:
            p_shared.index(i % BUFFERS).store(p.to(dtype))
            dp = warpgroup_mma_wait(0, [dp])
        else:
            p_operand = gl.convert_layout(p.to(dtype), operand_layout, assert_trivial=True)
            dv_tile = warpgroup_mma(p_operand, do_tile, dv_tile, is_async=True)
            dp = warpgroup_mma_wait(1, [dp])
        ds = (p * dp).to(dtype)
        ds_buffer.store(ds)
        fence_async_shared()
        # The stage of the previous step is free: the wait for dP also waited for its matmuls.
        ahead = i + STAGES - 1
        valid = ahead < steps
        free = gl.where(stage == 0, STAGES - 1, stage - 1)
        _expect(bars, free, BLOCK_M, BLOCK_D, valid)
        barrier()
        if WIDE:
            dq_zeros = gl.zeros([BLOCK_M, BLOCK_D], gl.float32, q_layout)
            dq_tile = warpgroup_mma(
                ds_buffer.permute([1, 0]), k_tile, dq_zeros, use_acc=False, is_async=True
            )
        else:
            # dQ^T has the shape of dP^T and takes its registers.
            dq_tile = warpgroup_mma(
                k_tile.permute([1, 0]), ds_buffer, dp, use_acc=False, is_async=True
            )
        ahead = first + ahead
        ahead = gl.where(ahead >= tiles, ahead - tiles, ahead)
        _copy(sources, targets, bars, free, batch, head, sequence_tile, ahead, BLOCK_M, valid)
        if WIDE:
            dv_tile = warpgroup_mma(p_shared.index(i % BUFFERS), do_tile, dv_tile, is_async=True)
            dk_tile = warpgroup_mma(ds_buffer, q_tile, dk_tile, is_async=True)
            dq_tile = warpgroup_mma_wait(2, [dq_tile])
        else:
            ds_operand = gl.convert_layout(ds, operand_layout, assert_trivial=True)
            dk_tile = warpgroup_mma(ds_operand, q_tile, dk_tile, is_async=True)
            dq_tile = warpgroup_mma_wait(1, [dq_tile])
        at = (sequence_tile + tile).to(gl.int64) * (BLOCK_M * BLOCK_D)
        _add_fragments(dq + at, dq_tile)
        tile = gl.where(tile + 1 == tiles, 0, tile + 1)
        phase = gl.where(stage == STAGES - 1, phase ^ 1, phase)
        stage = gl.where(stage == STAGES - 1, 0, stage + 1)
    dk_tile, dv_tile = warpgroup_mma_wait(0, [dk_tile, dv_tile])
    barrier()
    k_tile.store((dk_tile * scale).to(dtype))
    v_tile.store(dv_tile.to(dtype))
    fence_async_shared()
    barrier()
    tma.async_copy_shared_to_global(dk, [batch, head, first_column, 0], k_block)
    tma.async_copy_shared_to_global(dv, [batch, head, first_column, 0], v_block)
    tma.store_wait(0)
