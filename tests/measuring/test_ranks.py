"""Ranks measure together; a fault of one rank is the row of its case."""

import pytest
import toys

from lmperf.measuring import supervisor

pytestmark = pytest.mark.process


def test_ranks_measure_and_fail_together(measured, monkeypatch):
    monkeypatch.setattr(supervisor, "_MOST_ENDED", 1)
    names = [name for name in toys.RANKED if name != "hangs"]  # ended as any silent worker is
    rows = measured(names, toys.Ranked)
    found = {name: (of[0]["status"], of[0].get("reason", "")) for name, of in rows.items()}
    assert found == {
        "right": ("ok", ""),
        "right_too": ("ok", ""),
        "is_wrong_on_rank_1": ("failed_check", "out differs from the float64 reference"),
        "is_unsupported": ("unsupported", "needs four nodes"),
        "ends": ("crash", "a rank failed: process 1 terminated with exit code 3"),
        "raises": ("crash", found["raises"][1]),
    }
    assert "RuntimeError: no route to the other rank" in found["raises"][1]
    assert "rank 1, but not every rank" in found["raises"][1]
    assert float(rows["right"][0]["median_ms"]) >= 20  # of the slower rank
