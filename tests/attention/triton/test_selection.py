import pytest
import torch

from lmperf.attention.triton import selection
from lmperf.attention.triton.configurations import FUSED
from lmperf.attention.triton.forward import FORWARD
from lmperf.attention.triton.key_gradients import KEY_GRADIENTS
from lmperf.attention.triton.query_gradients import QUERY_GRADIENTS
from lmperf.attention.triton.selection import choose_fused

SMS = 132
DEVICE = torch.device("cuda", 0)


@pytest.fixture
def hopper(monkeypatch):
    monkeypatch.setattr(selection, "INTERPRETED", False)
    monkeypatch.setattr(selection, "device_facts", lambda index: (True, SMS))


@pytest.mark.parametrize("precision", ["half", "tf32", "float32"])
@pytest.mark.parametrize("d", [1, 40, 256])
def test_hopper_table_covers_every_precision_and_width(hopper, precision, d):
    selection._chosen.cache_clear()
    for kernel in (FORWARD, KEY_GRADIENTS, QUERY_GRADIENTS):
        assert selection._chosen(kernel, True, precision, 4096, 4096, d, 16, DEVICE.index)


def test_fused_backward_is_chosen_where_it_was_faster(hopper, monkeypatch):
    assert choose_fused(4096, 4096, 64, 64, DEVICE) == FUSED[64]
    assert choose_fused(4096, 4096, 80, 64, DEVICE) == FUSED[128]
    assert choose_fused(128, 128, 64, 2048, DEVICE) is None  # short
    assert choose_fused(8192, 8192, 128, 1, DEVICE) is None  # one head
    assert choose_fused(4096, 4096, 65, 64, DEVICE) is None  # rows that TMA cannot write
    assert choose_fused(4096, 4096, 32, 64, DEVICE) is None
    monkeypatch.setattr(selection, "device_facts", lambda index: (False, SMS))
    assert choose_fused(4096, 4096, 64, 64, DEVICE) is None
