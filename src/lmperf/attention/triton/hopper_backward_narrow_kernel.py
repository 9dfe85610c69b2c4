"""The warp-specialised fused backward kernel for Hopper, in Gluon.

It is the faster one for heads of up to 64 channels. Unlike the other one it can add to dQ in a
fixed order, and does so for up to 128 channels.

Programs are persistent: one per SM, which takes one tile of keys after the other. Their warps have
four roles, and tell each other by mbarriers when a buffer is full or may be filled again:

    producer        loads Q, dO and the rows (logsumexp, delta) of each step by TMA, and K and V, up
                    to 64 channels those of the next tile of keys while this one is computed; it
                    plans the work of all roles
    two consumers   warp groups, each with 64 of the 128 keys: five matmuls and the softmax
    two adders      warps, one for each consumer: add its part of dQ to device memory by TMA
                    reduce-add from shared memory, in the order of `hopper_turns.py`, and store
                    dK or dV

A consumer computes the transposed scores S^T = K Q^T and dP^T = V dO^T, [keys, queries]; P^T and
dS^T are left operands of dV and dK in registers. dQ = dS K needs dS of both consumers, which goes
through shared memory. It is computed one step late: a consumer that waited for dS of its own step
would run in lockstep with the other one, and both would compute exponentials, and then both
matmuls. One step late, they drift apart by up to a step, and the matmuls of one hide the
exponentials of the other. The scores of the next step are computed while dQ is put aside.
"""

from triton._C.libtriton import ir
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language._core import builtin
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from lmperf.attention.triton.hopper_forward_kernel import LN_2, _barriers
from lmperf.attention.triton.hopper_turns import (
    WORDS,
    await_turn,
    claim,
    pass_turn,
    tile_of,
    turn_of,
)

# Keys of a consumer, and queries or channels of its part of dQ: the rows of one WGMMA instruction.
ROWS = gl.constexpr(64)
# A part of dQ as TMA adds it: lines of 128 bytes, swizzled.
LINES, LINE = gl.constexpr(128), gl.constexpr(32)
LINES_LAYOUT = gl.NVMMASharedLayout(128, 32, 2)
# Of all but K and V, which have BLOCKS, and a part of dQ, which has one. `_slot` and `_parity` are
# for two buffers.
BUFFERS = gl.constexpr(2)
# What the producer tells about a tile of keys: steps, first key, sequence, nothing.
PLAN = gl.constexpr(4)


@builtin
def _reduce_add(descriptor, coordinates, source, _semantic=None):
    """Start the TMA addition of a tile in shared memory: an operation that Gluon does not offer."""
    coordinates = _semantic._convert_to_ir_values(coordinates, require_i64=False)
    _semantic.builder.create_async_tma_reduce(
        ir.DESCRIPTOR_REDUCE_KIND.ADD, descriptor.handle, coordinates, source.handle
    )


@gluon.jit
def _slot(count):
    """The buffer for use number `count` of two that take turns."""
    return count & 1


@gluon.jit
def _parity(count):
    """The phase of the barriers of buffer `_slot(count)`."""
    return (count >> 1) & 1


@gluon.jit
def _tell(work, plan, full, empty, steps, first_key, sequence):
    """Publish the tile of keys number `work` to the other roles; steps = 0 ends them."""
    layout: gl.constexpr = gl.BlockedLayout([PLAN], [32], [1], [0])
    slot = _slot(work)
    mbarrier.wait(empty.index(slot), _parity(work) ^ 1)
    word = gl.arange(0, PLAN, layout)
    words = gl.where(word == 0, steps, gl.where(word == 1, first_key, sequence))
    plan.index(slot).store(words)
    mbarrier.arrive(full.index(slot), count=1)


@gluon.jit
def _told(work, plan, full, empty, WARPS: gl.constexpr):
    """Steps, first key and sequence of the tile of keys number `work`."""
    layout: gl.constexpr = gl.BlockedLayout([PLAN], [32], [WARPS], [0])
    slot = _slot(work)
    mbarrier.wait(full.index(slot), _parity(work))
    words = plan.index(slot).load(layout)
    mbarrier.arrive(empty.index(slot), count=1)
    word = gl.arange(0, PLAN, layout)
    steps = gl.sum(gl.where(word == 0, words, 0), 0)
    first_key = gl.sum(gl.where(word == 1, words, 0), 0)
    return steps, first_key, gl.sum(gl.where(word == 2, words, 0), 0)


@gluon.jit
def _first_tile(
    first_key, tiles, BLOCK_M: gl.constexpr, CAUSAL: gl.constexpr, ORDERED: gl.constexpr
):
    """The first tile of queries of a tile of keys; without a mask, the last one is before it.

    Unordered, concurrent programs begin with different tiles, so that they add to different rows.
    Under a causal mask there are as many keys as queries.
    """
    if ORDERED and not CAUSAL:
        return first_key * 0
    else:
        return first_key // BLOCK_M % tiles


@gluon.jit
def _producer(
    args,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    CAUSAL: gl.constexpr,
    ORDERED: gl.constexpr,
):
    q, k, v, grad_out, rows = args[0][0], args[0][1], args[0][2], args[0][3], args[0][4]
    q_buffers, do_buffers, rows_buffers, k_buffers, v_buffers = args[1]
    q_full, do_full, empty, k_full, v_full, kv_empty = args[3]
    plan, plan_full, plan_empty = args[5]
    items, sizes, heads, n_queries = args[6][0], args[6][1], args[6][2], args[6][3]
    BLOCK_D: gl.constexpr = q_buffers.shape[4]
    BLOCKS: gl.constexpr = k_buffers.shape[0]
    tiles = gl.cdiv(n_queries, BLOCK_M)
    step = 0
    work = 0
    item = claim(args[7])
    while item < items:
        sequence, key_tile = tile_of(item, sizes)
        first_key = key_tile * BLOCK_N
        tile = _first_tile(first_key, tiles, BLOCK_M, CAUSAL, ORDERED)
        steps = tiles - tile if CAUSAL else tiles
        _tell(work, plan, plan_full, plan_empty, steps, first_key, sequence)
        batch, head = sequence // heads, sequence % heads
        for i in range(steps):
            stage = _slot(step)
            mbarrier.wait(empty.index(stage), _parity(step) ^ 1)
            full = q_full.index(stage)
            mbarrier.expect(full, BLOCK_M * BLOCK_D * 2 + 2 * BLOCK_M * 4)
            place = [batch, head, tile * BLOCK_M, 0]
            tma.async_copy_global_to_shared(q, place, full, q_buffers.index(stage))
            row = (sequence * tiles + tile) * (2 * BLOCK_M)
            tma.async_copy_global_to_shared(rows, [row], full, rows_buffers.index(stage))
            if i == 0:
                block = work % BLOCKS
                mbarrier.wait(kv_empty.index(block), (work // BLOCKS & 1) ^ 1)
                keys = [batch, head, first_key, 0]
                full = k_full.index(block)
                mbarrier.expect(full, BLOCK_N * BLOCK_D * 2)
                tma.async_copy_global_to_shared(k, keys, full, k_buffers.index(block))
                full = v_full.index(block)
                mbarrier.expect(full, BLOCK_N * BLOCK_D * 2)
                tma.async_copy_global_to_shared(v, keys, full, v_buffers.index(block))
            full = do_full.index(stage)
            mbarrier.expect(full, BLOCK_M * BLOCK_D * 2)
            tma.async_copy_global_to_shared(grad_out, place, full, do_buffers.index(stage))
            step += 1
            tile = gl.where(tile + 1 == tiles, 0, tile + 1)
        work += 1
        item = claim(args[7])
    _tell(work, plan, plan_full, plan_empty, 0, 0, 0)


@gluon.jit
def _adder(
    args,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    CAUSAL: gl.constexpr,
    ORDERED: gl.constexpr,
    WHICH: gl.constexpr,
):
    """Add what consumer WHICH computes of dQ, and store dK (0) or dV (1) of both."""
    gradient, dq = args[0][5 + WHICH], args[0][7]
    blocks, parts = args[1][3 + WHICH], args[2][1].index(WHICH)
    kv_empty = args[3][5]
    dq_full, dq_empty = args[4][1].index(WHICH), args[4][2].index(WHICH)
    gradients_full = args[4][4]
    plan, plan_full, plan_empty = args[5]
    sizes, heads, n_queries = args[6][1], args[6][2], args[6][3]
    turns = args[7]
    BLOCKS: gl.constexpr = blocks.shape[0]
    tiles = gl.cdiv(n_queries, BLOCK_M)
    part = 0
    work = 0
    steps, first_key, sequence = _told(work, plan, plan_full, plan_empty, 1)
    while steps > 0:
        tile = _first_tile(first_key, tiles, BLOCK_M, CAUSAL, ORDERED)
        # The first part comes before there is a dS of this tile of keys.
        mbarrier.wait(dq_full, part & 1)
        mbarrier.arrive(dq_empty, count=1)
        part += 1
        for _ in range(steps):
            sum_tile = sequence * tiles + tile
            place = [(sum_tile * 2 + WHICH) * LINES, 0]
            if ORDERED:
                turn = turns + sum_tile * WORDS + WHICH
                last = tile * BLOCK_M // BLOCK_N if CAUSAL else sizes[1] - 1
                number = turn_of(first_key // BLOCK_N, last, sizes[3])
                await_turn(turn, number)
                mbarrier.wait(dq_full, part & 1)
                if number == 0:
                    tma.async_copy_shared_to_global(dq, place, parts)
                else:
                    _reduce_add(dq, place, parts)
                tma.store_wait(0)
                mbarrier.arrive(dq_empty, count=1)
                pass_turn(turn, number + 1)
            else:
                mbarrier.wait(dq_full, part & 1)
                _reduce_add(dq, place, parts)
                tma.store_wait(0)
                mbarrier.arrive(dq_empty, count=1)
            part += 1
            tile = gl.where(tile + 1 == tiles, 0, tile + 1)
        block = work % BLOCKS
        mbarrier.wait(gradients_full.index(block), work // BLOCKS & 1)
        keys = [sequence // heads, sequence % heads, first_key, 0]
        tma.async_copy_shared_to_global(gradient, keys, blocks.index(block))
        tma.store_wait(0)
        mbarrier.arrive(kv_empty.index(block), count=1)
        work += 1
        steps, first_key, sequence = _told(work, plan, plan_full, plan_empty, 1)


@gluon.jit
def _query_gradients(ds, k_tile, WHICH: gl.constexpr):
    """Issue a consumer's part of dQ = dS K, of 64 queries, or of its transpose, of 64 channels.

    ds: [keys, queries]; k_tile: [keys, channels].
    """
    D: gl.constexpr = k_tile.shape[1]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    zeros = gl.zeros([ROWS, 64], gl.float32, layout)
    if D == 64:
        own = ds.permute([1, 0]).slice(WHICH * ROWS, ROWS, 0)
        return warpgroup_mma(own, k_tile, zeros, use_acc=False, is_async=True)
    else:
        own = k_tile.permute([1, 0]).slice(WHICH * ROWS, ROWS, 0)
        return warpgroup_mma(own, ds, zeros, use_acc=False, is_async=True)


@gluon.jit
def _put(parts, x):
    """Store a part of dQ in the order of WGMMA fragments.

    A thread has 2 x 2 elements of each 16 x 8 fragment, columns c, c + 1 of rows r, r + 8, which
    become adjacent: it stores 16 bytes at once, a warp 512 contiguous bytes.
    """
    x = x.reshape([ROWS // 16, 2, 8, x.shape[1] // 8, 4, 2])
    parts.store(x.permute([3, 0, 2, 4, 1, 5]).reshape([LINES, LINE]))


@gluon.jit
def _consumer(
    args,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    CAUSAL: gl.constexpr,
    WHICH: gl.constexpr,
):
    q_buffers, do_buffers, rows_buffers, k_buffers, v_buffers = args[1]
    ds_buffers, parts = args[2][0], args[2][1].index(WHICH)
    q_full, do_full, empty, k_full, v_full, _ = args[3]
    ds_full, dq_full, dq_empty = args[4][0], args[4][1].index(WHICH), args[4][2].index(WHICH)
    k_read, gradients_full = args[4][3], args[4][4]
    plan, plan_full, plan_empty = args[5]
    n_keys, scale_log2 = args[6][4], args[6][5]
    BLOCK_D: gl.constexpr = q_buffers.shape[4]
    BLOCKS: gl.constexpr = k_buffers.shape[0]
    dtype: gl.constexpr = q_buffers.dtype
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_M, 16])
    d_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_D, 16])
    operand_layout: gl.constexpr = gl.DotOperandLayout(0, d_layout, 2)
    of_keys: gl.constexpr = gl.SliceLayout(1, s_layout)
    of_queries: gl.constexpr = gl.SliceLayout(0, s_layout)
    zeros = gl.zeros([ROWS, BLOCK_M], gl.float32, s_layout)

    step = 0
    work = 0
    steps, first_key, _ = _told(work, plan, plan_full, plan_empty, 4)
    while steps > 0:
        # How many keys there are from the first one on.
        left = n_keys - first_key
        block = work % BLOCKS
        parity = work // BLOCKS & 1
        k_tile = k_buffers.index(block).reshape([BLOCK_N, BLOCK_D])
        v_tile = v_buffers.index(block).reshape([BLOCK_N, BLOCK_D])
        k_own = k_tile.slice(WHICH * ROWS, ROWS, 0)
        v_own = v_tile.slice(WHICH * ROWS, ROWS, 0)
        dk_tile = gl.zeros([ROWS, BLOCK_D], gl.float32, d_layout)
        dv_tile = gl.zeros([ROWS, BLOCK_D], gl.float32, d_layout)
        mbarrier.wait(q_full.index(_slot(step)), _parity(step))
        mbarrier.wait(k_full.index(block), parity)
        q_tile = q_buffers.index(_slot(step)).reshape([BLOCK_M, BLOCK_D])
        s = warpgroup_mma(k_own, q_tile.permute([1, 0]), zeros, use_acc=False, is_async=True)
        mbarrier.wait(v_full.index(block), parity)
        # No matmul is in flight where a loop begins: ptxas would wait for each one at once.
        s = warpgroup_mma_wait(0, [s])
        for i in range(gl.maximum(steps, 1)):
            stage = _slot(step)
            q_tile = q_buffers.index(stage).reshape([BLOCK_M, BLOCK_D])
            do_tile = do_buffers.index(stage).reshape([BLOCK_M, BLOCK_D])
            row_values = rows_buffers.index(stage)
            mbarrier.wait(do_full.index(stage), _parity(step))
            # dP - delta: a sum that starts at -delta keeps no registers for delta.
            start = zeros - row_values.slice(BLOCK_M, BLOCK_M).load(of_queries)[None, :]
            dp = warpgroup_mma(v_own, do_tile.permute([1, 0]), start, is_async=True)
            lse = row_values.slice(0, BLOCK_M).load(of_queries)
            p = gl.exp2(s * scale_log2 - lse[None, :])
            # Under a causal mask, keys beyond the last one are later than every query.
            if CAUSAL:
                if i < BLOCK_N // BLOCK_M:
                    columns = WHICH * ROWS + gl.arange(0, ROWS, of_keys)
                    queries = i * BLOCK_M + gl.arange(0, BLOCK_M, of_queries)
                    p = gl.where(columns[:, None] <= queries[None, :], p, 0.0)
            else:
                if left < BLOCK_N:
                    columns = WHICH * ROWS + gl.arange(0, ROWS, of_keys)
                    p = gl.where((columns < left)[:, None], p, 0.0)
            dp = warpgroup_mma_wait(0, [dp])
            ds = (p * dp).to(dtype)
            # The other consumer has read dS of two steps before, and written that of one before.
            mbarrier.wait(ds_full.index(1 - stage), _parity(step - 1))
            ds_buffers.index(stage).slice(WHICH * ROWS, ROWS, 0).store(ds)
            fence_async_shared()
            p_operand = gl.convert_layout(p.to(dtype), operand_layout, assert_trivial=True)
            ds_operand = gl.convert_layout(ds, operand_layout, assert_trivial=True)
            dv_tile = warpgroup_mma(p_operand, do_tile, dv_tile, is_async=True)
            # At the first step a product that the adder leaves out.
            dq_tile = _query_gradients(ds_buffers.index(1 - stage), k_tile, WHICH)
            dk_tile = warpgroup_mma(ds_operand, q_tile, dk_tile, is_async=True)
            part = step + work
            step += 1
            # After the last step, scores of its own queries, which nothing reads.
            next_step = gl.where(i + 1 < steps, step, step - 1)
            next_stage = _slot(next_step)
            next_q = q_buffers.index(next_stage).reshape([BLOCK_M, BLOCK_D]).permute([1, 0])
            dq_tile = warpgroup_mma_wait(1, [dq_tile])
            mbarrier.arrive(ds_full.index(stage), count=1)
            mbarrier.wait(q_full.index(next_stage), _parity(next_step))
            s = warpgroup_mma(k_own, next_q, zeros, use_acc=False, is_async=True)
            mbarrier.wait(dq_empty, (part & 1) ^ 1)
            _put(parts, dq_tile)
            fence_async_shared()
            mbarrier.arrive(dq_full, count=1)
            s, dk_tile, dv_tile = warpgroup_mma_wait(0, [s, dk_tile, dv_tile])
            mbarrier.arrive(empty.index(stage), count=1)
        last = _slot(step - 1)
        mbarrier.wait(ds_full.index(last), _parity(step - 1))
        dq_tile = _query_gradients(ds_buffers.index(last), k_tile, WHICH)
        dq_tile = warpgroup_mma_wait(0, [dq_tile])
        mbarrier.arrive(k_read.index(block), count=1)
        mbarrier.wait(dq_empty, ((step + work) & 1) ^ 1)
        _put(parts, dq_tile)
        fence_async_shared()
        mbarrier.arrive(dq_full, count=1)
        # Both consumers have read K: dK and dV take the place of K and V.
        mbarrier.wait(k_read.index(block), parity)
        k_own.store((dk_tile * (scale_log2 * LN_2)).to(dtype))
        v_own.store(dv_tile.to(dtype))
        fence_async_shared()
        mbarrier.arrive(gradients_full.index(block), count=1)
        work += 1
        steps, first_key, _ = _told(work, plan, plan_full, plan_empty, 4)


@gluon.jit(
    do_not_specialize=[
        *("items", "sequences", "key_tiles", "together", "long"),
        *("heads", "n_queries", "n_keys"),
    ]
)
def fused_kernel(
    q,
    k,
    v,
    grad_out,
    rows,
    dk,
    dv,
    dq,
    turns,
    items,
    sequences,
    key_tiles,
    together,
    long,
    heads,
    n_queries,
    n_keys,
    scale_log2,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCKS: gl.constexpr,
    CAUSAL: gl.constexpr,
    ORDERED: gl.constexpr,
):
    """Compute dK and dV, and sum dQ / scale: allocate buffers and barriers, and start the roles.

    D, the padded width of a head, is 64 or 128. BLOCK_N: 2 * ROWS. BLOCK_M: 2 * ROWS, or ROWS if
    D is 128. BLOCKS: buffers of K and V. TMA descriptors: q, grad_out of [1, 1, BLOCK_M, D]; k, v,
    dk, dv of [1, 1, BLOCK_N, D]; rows of [2 * BLOCK_M]; dq of [LINES, LINE] of
    [b h tiles 2 LINES, LINE] float32. turns, together, long: as in `hopper_turns.py`. items: tiles
    of keys, key_tiles of each sequence.
    """
    dtype: gl.constexpr = q.dtype
    D: gl.constexpr = q.block_type.shape[3]
    half_layout: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    plan_layout: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    k_buffers = gl.allocate_shared_memory(dtype, [BLOCKS, 1, 1, BLOCK_N, D], k.layout)
    v_buffers = gl.allocate_shared_memory(dtype, [BLOCKS, 1, 1, BLOCK_N, D], v.layout)
    q_buffers = gl.allocate_shared_memory(dtype, [BUFFERS, 1, 1, BLOCK_M, D], q.layout)
    do_buffers = gl.allocate_shared_memory(dtype, [BUFFERS, 1, 1, BLOCK_M, D], grad_out.layout)
    rows_buffers = gl.allocate_shared_memory(gl.float32, [BUFFERS, 2 * BLOCK_M], rows.layout)
    ds_buffers = gl.allocate_shared_memory(dtype, [BUFFERS, BLOCK_N, BLOCK_M], half_layout)
    parts = gl.allocate_shared_memory(gl.float32, [2, LINES, LINE], dq.layout)
    plan = gl.allocate_shared_memory(gl.int32, [BUFFERS, PLAN], plan_layout)
    q_full = _barriers(BUFFERS, 1)
    do_full = _barriers(BUFFERS, 1)
    empty = _barriers(BUFFERS, 2)
    k_full = _barriers(BLOCKS, 1)
    v_full = _barriers(BLOCKS, 1)
    kv_empty = _barriers(BLOCKS, 2)
    ds_full = _barriers(BUFFERS, 2)
    dq_full = _barriers(2, 1)
    dq_empty = _barriers(2, 1)
    k_read = _barriers(BLOCKS, 2)
    gradients_full = _barriers(BLOCKS, 2)
    plan_full = _barriers(BUFFERS, 1)
    plan_empty = _barriers(BUFFERS, 4)
    # Makes the barriers visible to TMA.
    fence_async_shared()
    args = (
        (q, k, v, grad_out, rows, dk, dv, dq),
        (q_buffers, do_buffers, rows_buffers, k_buffers, v_buffers),
        (ds_buffers, parts),
        (q_full, do_full, empty, k_full, v_full, kv_empty),
        (ds_full, dq_full, dq_empty, k_read, gradients_full),
        (plan, plan_full, plan_empty),
        (items, (sequences, key_tiles, together, long), heads, n_queries, n_keys, scale_log2),
        turns,
    )
    gl.warp_specialize(
        [
            (_consumer, (args, BLOCK_M, BLOCK_N, CAUSAL, 0)),
            (_consumer, (args, BLOCK_M, BLOCK_N, CAUSAL, 1)),
            (_producer, (args, BLOCK_M, BLOCK_N, CAUSAL, ORDERED)),
            (_adder, (args, BLOCK_M, BLOCK_N, CAUSAL, ORDERED, 0)),
            (_adder, (args, BLOCK_M, BLOCK_N, CAUSAL, ORDERED, 1)),
        ],
        [4, 1, 1, 1],
        [240, 24, 24, 24],
    )
