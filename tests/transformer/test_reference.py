"""Tests of where the float64 reference of a model keeps its results."""

import pytest
import torch

from lmperf.transformer import reference
from lmperf.transformer.model import TransformerLM

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


def test_reference_needs_room_for_weights_and_results(monkeypatch):
    asked = []
    monkeypatch.setattr(reference, "_has_room", lambda _, size: asked.append(size) or True)
    model = TransformerLM(16, 8, 8, 1, 1, 16)
    tokens = torch.zeros(1, 8, dtype=torch.int64)
    reference.float64_reference(model, tokens, tokens)
    # float64 weights, and gradients stored in float32
    assert asked == [(8 + 4) * sum(weight.numel() for weight in model.parameters())]
