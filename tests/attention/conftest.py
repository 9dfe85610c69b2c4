import pytest


@pytest.fixture(autouse=True)
def no_plans():
    """Clear cached launch plans before and after each test.

    A test may replace functions that the plans hold.
    """
    pytest.importorskip("triton")
    from lmperf.attention.triton import backward, forward

    plans = forward.plan, backward.plan
    for plan in plans:
        plan.cache_clear()
    yield
    for plan in plans:
        plan.cache_clear()
