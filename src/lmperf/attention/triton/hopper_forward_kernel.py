"""Warp-specialised forward kernel for Hopper: a producer warp and two or three consumer groups.

The schedule is that of FlashAttention-3 (Shah et al. 2024, arXiv 2407.08608), written in Gluon,
Triton's language with explicit layouts, barriers and warp roles. Programs are persistent: one per
SM, which takes one tile of queries after the other. The producer warp loads queries, keys and
values by TMA. Each consumer, a warp group, owns 64 queries of the tile; all share keys and values.
mbarriers signal that a buffer is full, and that all consumers have read it. So loads, the matmuls
of one consumer and the softmax of another overlap, and the next tile loads while this one finishes.

With OVERLAP, the matmuls of a consumer also overlap its own softmax: the next scores Q K_j^T and
O += P V_(j+1) are issued together, and the softmax of the scores starts while the second matmul is
in flight. That takes registers for the scores, two tiles of probabilities, and O. Without it,
registers suffice for three consumers with narrow heads, which hide each other's latency.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

LN_2 = gl.constexpr(0.6931471805599453)

# Queries per consumer: the rows of one WGMMA instruction.
ROWS = gl.constexpr(64)
# Columns of the first part if a head is multiplied in two parts: one swizzled row of LAYOUT.
FIRST = gl.constexpr(64)
# The layout that TMA writes and WGMMA reads: rows of 128 bytes, swizzled.
LAYOUT = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=4)


@gluon.jit
def _next(index, phase, STAGES: gl.constexpr):
    """The next buffer of a ring, and the phase of its barriers, which flips at each wrap-around."""
    index += 1
    wrapped = index == STAGES
    return gl.where(wrapped, 0, index), gl.where(wrapped, phase ^ 1, phase)


@gluon.jit
def _tile_of(item, half, sizes, CAUSAL: gl.constexpr, PAIRED: gl.constexpr):
    """(sequence, tile) of a work item; half: 0 or 1, which tile of a pair.

    Under a causal mask tiles have different numbers of keys. A pair is the i-th longest and the
    i-th shortest of a sequence, so that all pairs have the same number. Unpaired, the tiles of
    `together` sequences are sorted, the longest first, so that no long tile runs alone at the end.
    For sorted tiles, half is the direction of the wave (see `_next_item`).
    """
    sequences, tiles, together, section = sizes
    if PAIRED:
        pairs = (tiles + 1) // 2
        tile = item % pairs
        return item // pairs, gl.where(half == 0, tiles - 1 - tile, tile)
    elif CAUSAL:
        first = item // section * together
        width = gl.minimum(together, sequences - first)
        within = item % section
        return first + within % width, tiles - 1 - within // width
    else:
        return item // tiles, item % tiles


@gluon.jit
def _next_item(item, half, tile, sizes, CAUSAL: gl.constexpr, PAIRED: gl.constexpr):
    """The next (item, half) of a program.

    PAIRED: the second tile of the pair, if it has one (the middle of an odd number is alone), then
    the next pair. Sorted: waves run in alternating directions, so that the program with the longest
    tile of one wave gets the shortest of the next. `section` rounds together * tiles up to whole
    waves; items beyond together * tiles are skipped, of which a program has at most one.
    """
    _, tiles, together, section = sizes
    if PAIRED:
        stay = (half == 0) & (2 * tile != tiles - 1)
        return gl.where(stay, item, item + gl.num_programs(0)), gl.where(stay, 1, 0)
    elif CAUSAL:
        item, half = _next_wave(item, half)
        if item % section >= together * tiles:
            item, half = _next_wave(item, half)
        return item, half
    else:
        return item + gl.num_programs(0), half


@gluon.jit
def _next_wave(item, half):
    """The item of this program in the next wave, which runs in the other direction."""
    behind = gl.where(half == 0, gl.num_programs(0) - 1 - gl.program_id(0), gl.program_id(0))
    return item + 2 * behind + 1, 1 - half


@gluon.jit
def _last_key_tile(high, m, BLOCK_N: gl.constexpr, CAUSAL: gl.constexpr):
    """The index of the last tile of keys that queries below `high` see."""
    if CAUSAL:
        return gl.cdiv(gl.minimum(m, high), BLOCK_N) - 1
    else:
        return gl.cdiv(m, BLOCK_N) - 1


@gluon.jit
def _fetch(descriptor, buffers, full, empty, index, phase, batch, head, row):
    """Fill a buffer with the rows from `row` on, by TMA, as soon as it is empty."""
    buffer = buffers.index(index)
    mbarrier.wait(empty.index(index), phase ^ 1)
    mbarrier.expect(full.index(index), descriptor.block_type.nbytes)
    tma.async_copy_global_to_shared(descriptor, [batch, head, row, 0], full.index(index), buffer)


@gluon.jit
def _producer(
    args,
    BLOCK_N: gl.constexpr,
    CONSUMERS: gl.constexpr,
    STAGES: gl.constexpr,
    CAUSAL: gl.constexpr,
    PAIRED: gl.constexpr,
):
    """Load all tiles of a program, in the order in which the consumers use them."""
    q, k, v = args[0][0], args[0][1], args[0][2]
    q_buffers, k_buffers, v_buffers = args[1][0], args[1][1], args[1][2]
    q_full, k_full, v_full = args[2]
    q_empty, k_empty, v_empty = args[3]
    items, sizes, heads, m = args[4]
    k_index = 0
    k_phase = 0
    v_index = 0
    v_phase = 0
    q_phase = 0
    half = 0
    item = gl.program_id(0)
    while item < items:
        sequence, tile = _tile_of(item, half, sizes, CAUSAL, PAIRED)
        batch = sequence // heads
        head = sequence % heads
        first = tile * (CONSUMERS * ROWS)
        last = _last_key_tile(first + CONSUMERS * ROWS, m, BLOCK_N, CAUSAL)
        _fetch(q, q_buffers, q_full, q_empty, 0, q_phase, batch, head, first)
        _fetch(k, k_buffers, k_full, k_empty, k_index, k_phase, batch, head, last * BLOCK_N)
        k_index, k_phase = _next(k_index, k_phase, STAGES)
        for c in gl.static_range(1, CONSUMERS):
            _fetch(q, q_buffers, q_full, q_empty, c, q_phase, batch, head, first + c * ROWS)
        q_phase ^= 1
        for done in range(last):
            row = (last - done) * BLOCK_N
            _fetch(k, k_buffers, k_full, k_empty, k_index, k_phase, batch, head, row - BLOCK_N)
            k_index, k_phase = _next(k_index, k_phase, STAGES)
            _fetch(v, v_buffers, v_full, v_empty, v_index, v_phase, batch, head, row)
            v_index, v_phase = _next(v_index, v_phase, STAGES)
        _fetch(v, v_buffers, v_full, v_empty, v_index, v_phase, batch, head, 0)
        v_index, v_phase = _next(v_index, v_phase, STAGES)
        item, half = _next_item(item, half, tile, sizes, CAUSAL, PAIRED)


@gluon.jit
def _scores(q, k, zeros, TAIL: gl.constexpr):
    """Issue q k^T, [ROWS, BLOCK_N]; with TAIL, over the first 64 + TAIL columns of both."""
    if TAIL == 0:
        return warpgroup_mma(q, k.permute([1, 0]), zeros, use_acc=False, is_async=True)
    else:
        s = warpgroup_mma(
            q.slice(0, FIRST, 1), k.slice(0, FIRST, 1).permute([1, 0]), zeros,
            use_acc=False, is_async=True,
        )  # fmt: skip
        return warpgroup_mma(
            q.slice(FIRST, TAIL, 1), k.slice(FIRST, TAIL, 1).permute([1, 0]), s, is_async=True
        )


@gluon.jit
def _add_values(p, v, acc, TAIL: gl.constexpr, tail_p_layout: gl.constexpr):
    """Issue acc + p v for one accumulator or, with TAIL, for both parts of v's columns."""
    if TAIL == 0:
        return (warpgroup_mma(p, v, acc[0], is_async=True),)
    else:
        first = warpgroup_mma(p, v.slice(0, FIRST, 1), acc[0], is_async=True)
        p = gl.convert_layout(p, tail_p_layout)
        return (first, warpgroup_mma(p, v.slice(FIRST, TAIL, 1), acc[1], is_async=True))


@gluon.jit
def _scaled(acc, factors, TAIL: gl.constexpr):
    """The accumulators, each row multiplied by its factor."""
    first = gl.convert_layout(factors, gl.SliceLayout(1, acc[0].type.layout))
    if TAIL == 0:
        return (acc[0] * first[:, None],)
    else:
        second = gl.convert_layout(factors, gl.SliceLayout(1, acc[1].type.layout))
        return (acc[0] * first[:, None], acc[1] * second[:, None])


@gluon.jit
def _partial_sums(p):
    """Row sums [ROWS, 4], one over the columns of each of the four threads that share a row."""
    return gl.sum(gl.sum(p.reshape([p.shape[0], p.shape[1] // 8, 4, 2]), 3), 1)


@gluon.jit
def _softmax(s, maximum, total, scale_log2):
    """One step of the online softmax (Dao 2023): p, correction, new maximum, new row sums."""
    new_maximum = gl.maximum(maximum, gl.max(s, 1) * scale_log2)
    p = gl.exp2(s * scale_log2 - new_maximum[:, None])
    correction = gl.exp2(maximum - new_maximum)
    sums = _partial_sums(p)
    by_thread = gl.convert_layout(correction, gl.SliceLayout(1, sums.type.layout))
    return p, correction, new_maximum, total * by_thread[:, None] + sums


@gluon.jit
def _consumer(
    args,
    BLOCK_N: gl.constexpr,
    CONSUMERS: gl.constexpr,
    STAGES: gl.constexpr,
    CAUSAL: gl.constexpr,
    PAIRED: gl.constexpr,
    TAIL: gl.constexpr,
    OVERLAP: gl.constexpr,
    OWN_OUT: gl.constexpr,
    WHICH: gl.constexpr,
):
    """Compute output and logsumexp of 64 queries of every tile; maximum and scores are in base 2.

    The loop runs from the last tile of keys to the first. Only the last needs a mask: the diagonal
    of 64 queries ends within one tile of at least 64 keys.
    """
    out = args[0][3]
    q_buffers, k_buffers, v_buffers, o_buffers = args[1]
    q_full, k_full, v_full = args[2]
    q_empty, k_empty, v_empty = args[3]
    items, sizes, heads, m = args[4]
    lse, scale_log2, n = args[5]
    D: gl.constexpr = q_buffers.shape[4]
    dtype: gl.constexpr = q_buffers.dtype
    WIDTH: gl.constexpr = FIRST if TAIL else D
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    o_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDTH, 16])
    t_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, TAIL, 16])
    p_layout: gl.constexpr = gl.DotOperandLayout(0, o_layout, 2)
    tail_p_layout: gl.constexpr = gl.DotOperandLayout(0, t_layout, 2)
    row_layout: gl.constexpr = gl.SliceLayout(1, s_layout)
    zeros = gl.zeros([ROWS, BLOCK_N], gl.float32, s_layout)

    q = q_buffers.index(WHICH).reshape([ROWS, D])
    o = o_buffers.index(WHICH).reshape([ROWS, D])
    k_index = 0
    k_phase = 0
    v_index = 0
    v_phase = 0
    q_phase = 0
    half = 0
    item = gl.program_id(0)
    while item < items:
        sequence, tile = _tile_of(item, half, sizes, CAUSAL, PAIRED)
        first = tile * (CONSUMERS * ROWS) + WHICH * ROWS
        high = tile * (CONSUMERS * ROWS) + CONSUMERS * ROWS
        last = _last_key_tile(first + ROWS, m, BLOCK_N, CAUSAL)
        if CAUSAL and not (CONSUMERS == 2 and BLOCK_N == 2 * ROWS):
            # Release the tiles of keys that only consumers of later queries use.
            for _ in range(_last_key_tile(high, m, BLOCK_N, CAUSAL) - last):
                mbarrier.wait(k_full.index(k_index), k_phase)
                mbarrier.arrive(k_empty.index(k_index), count=1)
                k_index, k_phase = _next(k_index, k_phase, STAGES)
                mbarrier.wait(v_full.index(v_index), v_phase)
                mbarrier.arrive(v_empty.index(v_index), count=1)
                v_index, v_phase = _next(v_index, v_phase, STAGES)

        mbarrier.wait(q_full.index(WHICH), q_phase)
        mbarrier.wait(k_full.index(k_index), k_phase)
        s = _scores(q, k_buffers.index(k_index).reshape([BLOCK_N, D]), zeros, TAIL)
        s = warpgroup_mma_wait(0, deps=(s,))
        mbarrier.arrive(k_empty.index(k_index), count=1)
        k_index, k_phase = _next(k_index, k_phase, STAGES)
        columns = last * BLOCK_N + gl.arange(0, BLOCK_N, gl.SliceLayout(0, s_layout))
        if CAUSAL:
            rows = first + gl.arange(0, ROWS, row_layout)
            s = gl.where(columns[None, :] <= rows[:, None], s, float("-inf"))
        else:
            s = gl.where((columns < m)[None, :], s, float("-inf"))
        maximum = gl.max(s, 1) * scale_log2
        p = gl.exp2(s * scale_log2 - maximum[:, None])
        total = _partial_sums(p)
        p = gl.convert_layout(p.to(dtype), p_layout)
        if TAIL:
            acc = (
                gl.zeros([ROWS, WIDTH], gl.float32, o_layout),
                gl.zeros([ROWS, TAIL], gl.float32, t_layout),
            )
        else:
            acc = (gl.zeros([ROWS, WIDTH], gl.float32, o_layout),)

        for _ in range(last):
            k_tile = k_buffers.index(k_index).reshape([BLOCK_N, D])
            v_tile = v_buffers.index(v_index).reshape([BLOCK_N, D])
            if OVERLAP:
                mbarrier.wait(k_full.index(k_index), k_phase)
                s = _scores(q, k_tile, zeros, TAIL)
                mbarrier.wait(v_full.index(v_index), v_phase)
                acc = _add_values(p, v_tile, acc, TAIL, tail_p_layout)
                s = warpgroup_mma_wait(2 if TAIL else 1, deps=(s,))
                mbarrier.arrive(k_empty.index(k_index), count=1)
                new_p, correction, maximum, total = _softmax(s, maximum, total, scale_log2)
                new_p = gl.convert_layout(new_p.to(dtype), p_layout)
                # ptxas hoists the wait for the matmul above the softmax unless a branch keeps it
                # below: here, the wait for a barrier that has long been passed.
                mbarrier.wait(q_full.index(WHICH), q_phase)
                # Keeps the operands in registers unchanged until the matmul has read them.
                operands = (p, new_p)
                waited = warpgroup_mma_wait(0, deps=acc + operands)
                mbarrier.arrive(v_empty.index(v_index), count=1)
                p = waited[len(acc) + 1]
            else:
                mbarrier.wait(v_full.index(v_index), v_phase)
                acc = _add_values(p, v_tile, acc, TAIL, tail_p_layout)
                mbarrier.wait(k_full.index(k_index), k_phase)
                s = _scores(q, k_tile, zeros, TAIL)
                operands = (p, s)
                waited = warpgroup_mma_wait(0, deps=acc + operands)
                mbarrier.arrive(v_empty.index(v_index), count=1)
                mbarrier.arrive(k_empty.index(k_index), count=1)
                s = waited[len(acc) + 1]
                new_p, correction, maximum, total = _softmax(s, maximum, total, scale_log2)
                p = gl.convert_layout(new_p.to(dtype), p_layout)
            k_index, k_phase = _next(k_index, k_phase, STAGES)
            v_index, v_phase = _next(v_index, v_phase, STAGES)
            acc = _scaled(waited, correction, TAIL)
        if OWN_OUT:
            mbarrier.arrive(q_empty.index(WHICH), count=1)

        mbarrier.wait(v_full.index(v_index), v_phase)
        v = v_buffers.index(v_index).reshape([BLOCK_N, D])
        acc = _add_values(p, v, acc, TAIL, tail_p_layout)
        sums = gl.convert_layout(gl.sum(total, 1), row_layout)
        rows = gl.arange(0, ROWS, row_layout)
        gl.store(
            lse + sequence.to(gl.int64) * n + first + rows,
            (maximum + gl.log2(sums)) * LN_2,
            rows < n - first,
        )
        operands = (p, sums)
        waited = warpgroup_mma_wait(0, deps=acc + operands)
        mbarrier.arrive(v_empty.index(v_index), count=1)
        v_index, v_phase = _next(v_index, v_phase, STAGES)
        acc = _scaled(waited, 1.0 / sums, TAIL)
        if OWN_OUT:
            # The previous output must have been read from its buffer.
            tma.store_wait(0)
        if TAIL:
            o.slice(0, FIRST, 1).store(acc[0].to(dtype))
            o.slice(FIRST, TAIL, 1).store(acc[1].to(dtype))
        else:
            o.store(acc[0].to(dtype))
        fence_async_shared()
        if first < n:
            tma.async_copy_shared_to_global(
                out, [sequence // heads, sequence % heads, first, 0], o_buffers.index(WHICH)
            )
        if not OWN_OUT:
            tma.store_wait(0)
            mbarrier.arrive(q_empty.index(WHICH), count=1)
        q_phase ^= 1
        item, half = _next_item(item, half, tile, sizes, CAUSAL, PAIRED)
    tma.store_wait(0)


@gluon.jit
def _barriers(COUNT: gl.constexpr, ARRIVALS: gl.constexpr):
    """Allocate [COUNT] barriers, each completed by ARRIVALS arrivals."""
    barriers = gl.allocate_shared_memory(gl.int64, [COUNT, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(COUNT):
        mbarrier.init(barriers.index(i), count=ARRIVALS)
    return barriers


@gluon.jit(
    do_not_specialize=["items", "sequences", "tiles", "together", "section", "heads", "n", "m"]
)
def forward_kernel(
    q,
    k,
    v,
    out,
    lse,
    items,
    sequences,
    tiles,
    together,
    section,
    heads,
    n,
    m,
    scale_log2,
    BLOCK_N: gl.constexpr,
    CONSUMERS: gl.constexpr,
    STAGES: gl.constexpr,
    CAUSAL: gl.constexpr,
    PAIRED: gl.constexpr,
    TAIL: gl.constexpr,
    OVERLAP: gl.constexpr,
    OWN_OUT: gl.constexpr,
    REGISTERS: gl.constexpr,
    PRODUCER: gl.constexpr,
):
    """Allocate buffers and barriers, and start the producer and the consumers.

    q, out: TMA descriptors of tiles [1, 1, ROWS, D] of [b, h, n, d]; k, v: of [1, 1, BLOCK_N, D] of
    [b, h, m, d]; D >= d, padded with zeros. lse: [b, h, n] in float32. sequences: b * h.
    tiles: of CONSUMERS * ROWS queries, of one sequence. together: sequences whose tiles are sorted
    together. section: items of such a group, rounded up to whole waves. items: of all sequences;
    pairs if PAIRED.
    """
    dtype: gl.constexpr = q.dtype
    D: gl.constexpr = q.block_type.shape[3]
    q_buffers = gl.allocate_shared_memory(dtype, [CONSUMERS, 1, 1, ROWS, D], q.layout)
    k_buffers = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, BLOCK_N, D], k.layout)
    v_buffers = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, BLOCK_N, D], v.layout)
    if OWN_OUT:
        o_buffers = gl.allocate_shared_memory(dtype, [CONSUMERS, 1, 1, ROWS, D], out.layout)
    else:
        o_buffers = q_buffers
    q_full = _barriers(CONSUMERS, 1)
    q_empty = _barriers(CONSUMERS, 1)
    k_full = _barriers(STAGES, 1)
    k_empty = _barriers(STAGES, CONSUMERS)
    v_full = _barriers(STAGES, 1)
    v_empty = _barriers(STAGES, CONSUMERS)
    # Makes the barriers visible to TMA.
    fence_async_shared()
    args = (
        (q, k, v, out),
        (q_buffers, k_buffers, v_buffers, o_buffers),
        (q_full, k_full, v_full),
        (q_empty, k_empty, v_empty),
        (items, (sequences, tiles, together, section), heads, m),
        (lse, scale_log2, n),
    )
    if CONSUMERS == 2:
        gl.warp_specialize(
            [
                (_consumer, (args, BLOCK_N, CONSUMERS, STAGES, CAUSAL, PAIRED, TAIL, OVERLAP,
                             OWN_OUT, 0)),
                (_consumer, (args, BLOCK_N, CONSUMERS, STAGES, CAUSAL, PAIRED, TAIL, OVERLAP,
                             OWN_OUT, 1)),
                (_producer, (args, BLOCK_N, CONSUMERS, STAGES, CAUSAL, PAIRED)),
            ],
            [4, 1],
            [REGISTERS, PRODUCER],
        )  # fmt: skip
    else:
        gl.warp_specialize(
            [
                (_consumer, (args, BLOCK_N, CONSUMERS, STAGES, CAUSAL, PAIRED, TAIL, OVERLAP,
                             OWN_OUT, 0)),
                (_consumer, (args, BLOCK_N, CONSUMERS, STAGES, CAUSAL, PAIRED, TAIL, OVERLAP,
                             OWN_OUT, 1)),
                (_consumer, (args, BLOCK_N, CONSUMERS, STAGES, CAUSAL, PAIRED, TAIL, OVERLAP,
                             OWN_OUT, 2)),
                (_producer, (args, BLOCK_N, CONSUMERS, STAGES, CAUSAL, PAIRED)),
            ],
            [4, 4, 1],
            [REGISTERS, REGISTERS, PRODUCER],
        )  # fmt: skip
