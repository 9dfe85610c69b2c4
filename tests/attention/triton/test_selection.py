import dataclasses

import pytest
import torch

from lmperf.attention.triton import configurations, selection
from lmperf.attention.triton.configurations import FUSED, Configuration
from lmperf.attention.triton.forward import FORWARD
from lmperf.attention.triton.key_gradients import KEY_GRADIENTS
from lmperf.attention.triton.query_gradients import QUERY_GRADIENTS
from lmperf.attention.triton.selection import choose_fused

SMS = 132
DEVICE = torch.device("cuda", 0)


def choose(n, causal, sequences=1, d=64, kernel=FORWARD):
    selection._chosen.cache_clear()
    return selection.choose(kernel, causal, torch.bfloat16, n, n, d, sequences, DEVICE)


@pytest.fixture
def hopper(monkeypatch):
    monkeypatch.setattr(selection, "INTERPRETED", False)
    monkeypatch.setattr(selection, "device_facts", lambda index: (True, SMS))


def test_small_tiles_are_chosen_when_large_ones_leave_sms_idle(hopper, monkeypatch):
    causal, full, small = (Configuration(128, n, 4, 3) for n in (64, 128, 32))
    monkeypatch.setitem(configurations.HOPPER, ("forward", "half", 64), (causal, full, small))
    busy = SMS * selection.FEW_WARPS // 4
    for tiles, expected in [(busy - 1, (small, small)), (busy, (full, causal))]:
        for mask in (False, True):
            got = choose(tiles * 128, mask)
            assert dataclasses.replace(got, chunk=0) == expected[mask]


@pytest.mark.parametrize("kernel", [FORWARD, KEY_GRADIENTS, QUERY_GRADIENTS], ids=lambda k: k.name)
@pytest.mark.parametrize("causal", [False, True])
def test_loops_are_split_until_programs_fill_the_device(hopper, kernel, causal):
    for n in (1000, 2048, 8192, 16384):
        c = choose(n, causal, kernel=kernel)
        if not c.chunk:
            continue
        assert c.chunk % max(c.block_m, c.block_n) == 0
        assert c.chunk >= selection.SHORTEST_CHUNK
        pairs = -(-n // c.owned(kernel.name)) * -(-n // c.chunk)
        assert pairs * c.num_warps <= 2 * selection.MANY_WARPS * SMS
    assert choose(4096, causal, kernel=kernel).chunk
    assert not choose(4096, causal, sequences=128, kernel=kernel).chunk
    assert not choose(256, causal, kernel=kernel).chunk


@pytest.mark.parametrize("precision", ["half", "tf32", "float32"])
@pytest.mark.parametrize("d", [1, 40, 256])
def test_hopper_table_covers_every_precision_and_width(hopper, precision, d):
    selection._chosen.cache_clear()
    for kernel in (FORWARD, KEY_GRADIENTS, QUERY_GRADIENTS):
        assert selection._chosen(kernel, True, precision, 4096, 4096, d, 16, DEVICE.index)


def test_fused_backward_is_chosen_where_it_was_faster(hopper, monkeypatch):
    assert choose_fused(4096, 4096, 64, 64, DEVICE) == FUSED[64]
    assert choose_fused(4096, 4096, 80, 64, DEVICE) == FUSED[128]
    assert choose_fused(512, 512, 64, 512, DEVICE) is None  # short
    assert choose_fused(8192, 8192, 128, 1, DEVICE) is None  # one head
    assert choose_fused(4096, 4096, 65, 64, DEVICE) is None  # rows that TMA cannot write
    assert choose_fused(4096, 4096, 32, 64, DEVICE) is None
    monkeypatch.setattr(selection, "device_facts", lambda index: (False, SMS))
    assert choose_fused(4096, 4096, 64, 64, DEVICE) is None
