"""Tests of `cost.csv`, the costs of measuring jobs."""

import pytest

from lmperf.evidence.cost import Cost
from lmperf.evidence.store import DamagedEvidence
from lmperf.measuring.stopwatch import Stopwatch


def test_writing_a_job_twice_leaves_one_cost_row(tmp_path):
    stopwatch = Stopwatch()
    cost = Cost(tmp_path)
    cost.replace([stopwatch.row("attention", "cpu", 1, 4)])
    stopwatch.enter("timing")
    cost.replace([stopwatch.row("attention", "cpu", 2, 8)])
    cost.replace([{**stopwatch.row("memory", "cpu", 1, 1), "started_at": "another"}])
    assert [(row["stem"], row["rows"]) for row in cost.read()] == [
        ("attention", "8"),
        ("memory", "1"),
    ]
    cost.path.write_text(cost.path.read_text().replace("memory", "attention"))
    with pytest.raises(DamagedEvidence):
        cost.read()
