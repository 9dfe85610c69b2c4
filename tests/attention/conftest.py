import pytest


@pytest.fixture(autouse=True)
def no_plans():
    """Clear the cached launch plans before and after a test: a test may replace what they hold."""
    pytest.importorskip("triton")
    from lmperf.attention.triton import backward, forward

    plans = forward.plan, backward.plan
    for plan in plans:
        plan.cache_clear()
    yield
    for plan in plans:
        plan.cache_clear()
