import pytest


@pytest.fixture(autouse=True)
def no_plans():
    """Forgets what launches were worked out while a test had replaced a part of the kernels."""
    pytest.importorskip("triton")
    from lmperf.attention.triton import backward, forward

    yield
    forward.plan.cache_clear()
    backward.plan.cache_clear()
