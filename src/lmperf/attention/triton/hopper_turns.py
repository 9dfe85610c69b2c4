"""The order in which a fused backward kernel takes tiles of keys and adds their parts of dQ.

The sum of a tile of queries has the same bits in every run if its parts are added in one order. Its
turn, an integer in device memory, counts the additions so far; the program with the part of that
number adds it, and then passes the turn on. The first part is stored, so nothing zeroes dQ.

A part never waits for one of a tile of keys that is claimed later. Programs claim tiles one by one,
from a counter: the earliest tile that is not finished is always being computed by some program and
waits for nobody. So there is no deadlock, whatever else keeps programs from running.

Under a causal mask, a sequence's tiles with few steps are claimed first, the last keys before all
others: tile j starts at queries j, which tile j + 1 does not see, and comes to queries j + 1 one
step after tile j + 1. So programs that start together need not wait. The `long` first tiles of keys
come last, the longest of them first, so that no program runs alone at the end: by then programs no
longer start together. Without a mask all tiles start at the first queries, and programs that start
together run a step behind each other.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

# int32 words for each tile of queries, zeros at first: turns of its two parts, and those of
# the first tile also have the counter of claims.
WORDS = gl.constexpr(4)
_COUNTER = gl.constexpr(2)


@gluon.jit
def claim(turns):
    """The number of the next work item: 0, 1, ... over all programs."""
    return gl.atomic_add(turns + _COUNTER, 1, sem="relaxed")


@gluon.jit
def tile_of(item, sizes):
    """(sequence, tile of keys) of a work item; sizes: sequences, key tiles, together, long.

    Tiles of `together` sequences are claimed in turn: these fit into the L2 cache, and the fewer
    programs share a sequence, the less they wait.
    """
    sequences, key_tiles, together, long = sizes
    first = item // (together * key_tiles) * together
    width = gl.minimum(together, sequences - first)
    within = item - first * key_tiles
    rank = within // width
    behind = key_tiles - 1 - rank
    return first + within % width, gl.where(behind >= long, behind, long - 1 - behind)


@gluon.jit
def turn_of(key_tile, last, long):
    """How many tiles of keys up to `last`, the last one that adds to it, add before `key_tile`."""
    return gl.where(key_tile >= long, last - key_tile, gl.maximum(last + 1 - long, 0) + key_tile)


@gluon.jit
def await_turn(turn, number):
    """Wait until `turn`, a pointer to int32, holds `number`; TMA may then add in this order."""
    gl.inline_asm_elementwise(
        """{
        .reg .pred is_other;
        .reg .b32 found;
        again:
        ld.acquire.gpu.global.b32 found, [$1];
        setp.ne.b32 is_other, found, $2;
        @is_other bra again;
        fence.proxy.async.global;
        mov.b32 $0, found;
        }""",
        "=r,l,r",
        [turn.to(gl.int64), number],
        dtype=gl.int32,
        is_pure=False,
        pack=1,
    )


@gluon.jit
def pass_turn(turn, number):
    """Wait until this warp's TMA stores and additions are visible, and set `turn` to `number`.

    The wait of Gluon is for their reads of shared memory only. The leader of the warp is the thread
    that has issued them.
    """
    gl.inline_asm_elementwise(
        """{
        .reg .pred leader;
        cp.async.bulk.wait_group 0;
        fence.proxy.async.global;
        elect.sync _|leader, 0xffffffff;
        @leader st.release.gpu.global.b32 [$1], $2;
        mov.b32 $0, 0;
        }""",
        "=r,l,r",
        [turn.to(gl.int64), number],
        dtype=gl.int32,
        is_pure=False,
        pack=1,
    )
