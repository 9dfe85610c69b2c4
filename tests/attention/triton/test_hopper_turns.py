"""Tests of the order of additions to dQ, whose functions run on plain integers here."""

from types import SimpleNamespace

import pytest

from lmperf.attention.triton import hopper_backward, hopper_turns


def test_each_tile_of_queries_has_the_words_that_the_kernel_reads():
    assert hopper_turns.WORDS.value == hopper_backward.WORDS


def where(condition, x, y):
    return x if condition else y


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("key_tiles, per_query", [(1, 1), (7, 1), (12, 2)])
@pytest.mark.parametrize("sequences, together, long", [(1, 1, 1), (5, 2, 0), (4, 4, 1)])
def test_each_part_waits_for_those_claimed_before(
    causal, key_tiles, per_query, sequences, together, long, monkeypatch
):
    """per_query: how many tiles of queries a tile of keys is as long as."""
    long = long * key_tiles // 2
    monkeypatch.setattr(hopper_turns, "gl", SimpleNamespace(minimum=min, maximum=max, where=where))
    sizes = (sequences, key_tiles, together, long)
    items = [hopper_turns.tile_of.fn(i, sizes) for i in range(sequences * key_tiles)]
    assert len({*items}) == len(items)
    for query_tile in range(key_tiles * per_query):
        last = query_tile // per_query if causal else key_tiles - 1
        for sequence in range(sequences):
            claimed = [tile for of, tile in items if of == sequence and tile <= last]
            turns = [hopper_turns.turn_of.fn(tile, last, long) for tile in claimed]
            assert turns == [*range(len(claimed))]
