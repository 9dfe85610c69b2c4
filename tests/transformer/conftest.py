"""Small models, and a problem for tests of the gate."""

import sys
from pathlib import Path

import pytest

from lmperf.transformer import sizes
from lmperf.transformer.sizes import ModelSize

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="module")
def small_problem():
    """A problem of three layers of width 128, 1,000 words and two sequences of 64 tokens.

    Tests share it and must not change it.
    """
    from lmperf.transformer.model_problem import ModelProblem

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sizes.SIZES, "for tests", ModelSize(128, 256, 3, 4))
        patch.setattr("lmperf.transformer.model_problem.VOCAB_SIZE", 1000)
        yield ModelProblem("for tests", 64, 2, "cpu", seed=0)


@pytest.fixture
def small_models(monkeypatch):
    """Make `for tests` a size of models with 1,000 words; forget what other tests compiled."""
    from lmperf.transformer import fused_adamw, fused_loss

    monkeypatch.setitem(sizes.SIZES, "for tests", ModelSize(64, 128, 2, 4))
    monkeypatch.setattr("lmperf.transformer.model_problem.VOCAB_SIZE", 1000)
    caches = fused_loss._loss_and_gradient, fused_adamw._compiled
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()
