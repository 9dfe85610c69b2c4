"""Collectives of one call."""

from contextlib import contextmanager

import pytest

from lmperf.measuring import coalesced


class Calls:
    waits = 0

    def wait(self):
        self.waits += 1


@pytest.mark.parametrize(("backend", "waits"), [("gloo", 1), ("nccl", 0)])
def test_calls_of_gloo_alone_have_ended(monkeypatch, backend, waits):
    @contextmanager
    def manager(async_ops):
        yield Calls()

    monkeypatch.setattr(coalesced, "_coalescing_manager", manager)
    monkeypatch.setattr(coalesced.dist, "get_backend", lambda: backend)
    with coalesced.coalesced(async_ops=True) as calls:
        assert calls.waits == 0
    assert calls.waits == waits
