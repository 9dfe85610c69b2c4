"""Tests of where the float64 reference of a model keeps its results."""

import pytest
import torch

from lmperf.transformer import reference

GIB = 2**30


@pytest.mark.parametrize(
    ("free", "reserved", "room"), [(80, 0, True), (75, 0, False), (40, 40, True), (0, 75, False)]
)
def test_reference_may_take_half_of_free_memory(monkeypatch, free, reserved, room):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free * GIB, 80 * GIB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: reserved * GIB)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 0)
    weights = 3.4e9  # of a 3.4B model; 12 bytes each are just below 38 GiB
    assert reference._has_room(torch.device("cuda"), 12 * weights) == room
