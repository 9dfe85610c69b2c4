import pytest


@pytest.fixture(autouse=True)
def no_plans():
    """Forgets the launches that were worked out with what a test has replaced, and without."""
    pytest.importorskip("triton")
    from lmperf.attention.triton import backward, forward

    plans = forward.plan, backward.plan
    for plan in plans:
        plan.cache_clear()
    yield
    for plan in plans:
        plan.cache_clear()
