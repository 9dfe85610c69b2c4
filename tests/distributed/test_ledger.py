"""Arithmetic of the overlap ledger: what is hidden, exposed and waited for in made-up steps."""

import random

import pytest

from lmperf.distributed.ledger import (
    Collective,
    RankStep,
    common,
    entry,
    length,
    pauses,
    summary,
    union,
    unless_waiting,
)

SPAN = (0.0, 10.0)


def rank(computing, *collectives, span=SPAN):
    return RankStep(span, [Collective("all_reduce", *one) for one in collectives], computing)


def on_a_grid(intervals):
    """The cells of a grid of 1,000 over SPAN whose middle lies in one of the intervals."""
    middles = [(n + 0.5) / 100 for n in range(1000)]
    return {n for n, at in enumerate(middles) if any(a < at < b for a, b in intervals)}


@pytest.mark.slow
def test_interval_arithmetic_equals_that_of_a_fine_grid():
    draw = random.Random(7)
    for _ in range(50):
        one, other = (
            [tuple(sorted(draw.randrange(1001) / 100 for _ in range(2))) for _ in range(8)]
            for _ in range(2)
        )
        a, b = union(one), union(other)
        assert on_a_grid(a) == on_a_grid(one)
        assert on_a_grid(common(a, b)) == on_a_grid(one) & on_a_grid(other)
        assert on_a_grid(pauses(a, SPAN)) == set(range(1000)) - on_a_grid(one)
        assert length(a) == pytest.approx(len(on_a_grid(one)) / 100)


def test_communication_is_split_into_hidden_and_exposed():
    found = entry([rank([(0, 6)], (4, 9)), rank([(0, 6)], (4, 9))])
    assert (found.communication_ms, found.hidden_ms, found.exposed_ms) == (5, 2, 3)
    assert (found.step_ms, found.compute_ms, found.waited_ms) == (10, 6, 0)


def test_weights_that_come_late_are_told_from_gradients():
    collectives = [Collective("all_gather", 4, 8), Collective("reduce_scatter", 7, 9)]
    step = RankStep(SPAN, collectives, [(0, 6)])
    made = entry([step, step])
    assert (made.exposed_ms, made.late_ms) == (3, 2)


def test_waiting_for_the_last_rank_is_kept_apart():
    early, late = rank([(0, 2)], (2, 9)), rank([(0, 7)], (7, 9))
    found = entry([early, late])
    assert (found.communication_ms, found.exposed_ms, found.waited_ms) == (2, 2, 5)
    busy_meanwhile = entry([rank([(0, 6)], (2, 9)), late])
    assert busy_meanwhile.waited_ms == 1, "waiting under computation costs nothing"


def test_rank_with_most_exposed_communication_decides():
    found = entry([rank([(0, 9)], (5, 9)), rank([(0, 5)], (5, 9))])
    assert (found.hidden_ms, found.exposed_ms) == (0, 4)


def test_same_collective_is_found_by_kind_and_number():
    def step(*named):
        return RankStep(SPAN, [Collective(*one) for one in named], [])

    one = step(("all_gather", 0, 2), ("reduce_scatter", 1, 3), ("all_gather", 3, 4))
    other = step(("reduce_scatter", 0, 3), ("all_gather", 1, 2), ("all_gather", 3.5, 4))
    found = entry([one, other])
    assert found.communication_ms == 2.5
    with pytest.raises(ValueError, match="different collectives"):
        entry([one, step(("all_gather", 0, 2))])


def test_pause_of_a_host_is_waiting_only_if_a_collective_ends_in_it():
    busy = [(0.0, 2.0), (3.0, 4.0), (7.0, 10.0)]
    assert unless_waiting(busy, SPAN, [6.0], 0.1) == [(0.0, 4.0), (7.0, 10.0)]
    assert unless_waiting(busy, SPAN, [7.05], 0.1) == [(0.0, 4.0), (7.0, 10.0)]
    assert unless_waiting(busy, SPAN, [7.5], 0.1) == [SPAN]


def test_hidden_share_needs_communication():
    assert summary([entry([rank([(0, 6)], (4, 9))])])["hidden_share"] == pytest.approx(2 / 5)
    assert "hidden_share" not in summary([entry([rank([(0, 6)])])])
