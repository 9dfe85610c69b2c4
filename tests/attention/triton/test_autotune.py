import json

import pytest
import torch

from lmperf.attention.triton import autotune, configurations, selection
from lmperf.attention.triton.configurations import Configuration
from lmperf.attention.triton.forward import FORWARD


@pytest.fixture
def unknown_device(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(selection, "device_facts", lambda index: (False, 40))
    selection._chosen.cache_clear()
    yield tmp_path
    selection._chosen.cache_clear()


def test_cached_configuration_is_used(monkeypatch, tmp_path):
    path = tmp_path / "deep" / "cache.json"
    monkeypatch.setattr(autotune, "cache_path", lambda index: path)
    known = {"block_m": 128, "block_n": 64, "num_warps": 8, "num_stages": 2, "chunk": 0}
    autotune._write(path, {"forward half 64 causal": {"configuration": known, "seconds": 9.0}})
    assert autotune.tuned(FORWARD, True, "half", 64, 0) == Configuration(128, 64, 8, 2)
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("content", ["{", "\udcff"])
def test_unreadable_cache_counts_as_empty(tmp_path, content):
    path = tmp_path / "cache.json"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    assert autotune._read(path) == {}


@pytest.mark.parametrize("d", [16, 256])
def test_portable_configuration_is_first_candidate(d):
    for precision in ("half", "tf32", "float32"):
        found = autotune.candidates(precision, d)
        assert found[0] == configurations.portable(precision, d) and len(found) > 1


@pytest.mark.gpu
def test_unknown_device_is_tuned_once(unknown_device):
    from lmperf.attention.triton import flash_attention

    q, k, v = (torch.randn(1, 2, 512, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    out = flash_attention(q, k, v, True)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(out, expected, rtol=2e-2, atol=2e-2)
    path = autotune.cache_path(0)
    found = json.loads(path.read_text())
    assert list(found) == ["forward half 64 causal"]
    assert found["forward half 64 causal"]["seconds"] > 0
    before = path.stat().st_mtime_ns
    selection._chosen.cache_clear()
    torch.testing.assert_close(flash_attention(q, k, v, True), out, rtol=0, atol=0)
    assert path.stat().st_mtime_ns == before
