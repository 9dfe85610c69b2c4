import pytest
import torch
import triton

from lmperf.attention.triton import autotune, configurations, forward, selection
from lmperf.attention.triton.configurations import Configuration
from lmperf.attention.triton.forward import FORWARD


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setattr(triton.knobs.cache, "dir", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: f"GPU {index}")
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)


def test_cached_configuration_is_used(cache, monkeypatch):
    found = [Configuration(128, 64, 8, 2), Configuration(64, 64, 4, 3)]
    searched = []
    monkeypatch.setattr(
        autotune, "_search", lambda *a: searched.append(a) or found[len(searched) - 1]
    )
    first, second = ((FORWARD, True, "half", 64, index) for index in (0, 1))
    assert [autotune.tuned(*of) for of in (first, first, second, second)] == sorted(
        2 * found, key=found.index
    )
    assert searched == [first, second]


def test_kernel_is_not_tuned_during_a_capture(cache, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    found = autotune.tuned(FORWARD, True, "half", 64, 0)
    assert found == configurations.portable("half", 64)


@pytest.mark.gpu
def test_unknown_device_is_tuned_once(monkeypatch, tmp_path):
    from lmperf.attention.triton import flash_attention

    monkeypatch.setattr(triton.knobs.cache, "dir", str(tmp_path))
    monkeypatch.setattr(selection, "device_facts", lambda index: (False, 40))
    searched, search = [], autotune._search
    monkeypatch.setattr(autotune, "_search", lambda *a: searched.append(a) or search(*a))
    q, k, v = (torch.randn(1, 2, 512, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    found = []
    for _ in range(2):
        selection._chosen.cache_clear()
        forward.plan.cache_clear()
        found.append(flash_attention(q, k, v, True))
    selection._chosen.cache_clear()
    assert len(searched) == 1 and torch.equal(*found)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(found[0], expected, rtol=2e-2, atol=2e-2)
