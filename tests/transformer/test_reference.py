"""Tests of where the float64 reference of a model keeps its results."""

from types import SimpleNamespace

import pytest
import torch

from lmperf.transformer import reference

GIB = 2**30


@pytest.mark.parametrize(("memory", "parameters"), [(80, "0.97B"), (141, "2.0B")])
def test_reference_of_large_models_stays_on_the_host(monkeypatch, memory, parameters):
    of = SimpleNamespace(total_memory=memory * GIB)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: of)
    sizes = {"0.13B": 0.13e9, "0.97B": 0.97e9, "2.0B": 2.0e9, "3.4B": 3.4e9}
    kept = [n for n, size in sizes.items() if reference._has_room(torch.device("cuda"), 4 * size)]
    assert kept[-1] == parameters
