"""Tests of where the float64 reference of a model keeps its results."""

from types import SimpleNamespace

import pytest
import torch

from lmperf.transformer import reference
from lmperf.transformer.sizes import SIZES, SWEPT

GIB = 2**30


@pytest.mark.parametrize(("memory", "largest"), [(80, "0.97B"), (141, "2.0B")])
def test_reference_of_larger_models_goes_to_the_host(monkeypatch, memory, largest):
    of = SimpleNamespace(total_memory=memory * GIB)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: of)
    sizes = {name: 4 * SIZES[name].parameters() for name in SWEPT}
    kept = [name for name in SWEPT if reference._has_room(torch.device("cuda"), sizes[name])]
    assert kept == SWEPT[: SWEPT.index(largest) + 1]
