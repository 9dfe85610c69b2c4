"""Rows of the overlap ledger, from observed steps that are made up."""

from lmperf.benchmarks import load
from lmperf.benchmarks.distributed_overlap import row_of
from lmperf.distributed.ledger import Collective, RankStep
from lmperf.instruments.overlap import Observed


def seen(exposed):
    """A step of two ranks that begins at 100 ms, with 4 ms of communication."""
    end = 108.0 + exposed
    collectives = [Collective("all_reduce", end - 4, end)]
    return Observed([RankStep((100.0, 110.0), collectives, [(100.0, 108.0)])] * 2, 1, 800.0)


STEPS = [seen(exposed) for exposed in (1, 3, 2, 0, 4, 2, 2)]


def test_ledger_is_one_row_with_declared_columns_only():
    row = row_of(STEPS, None)
    assert (row["exposed_ms"], row["hidden_ms"], row["steps"]) == (2, 2, 7)
    assert row["exposed_low_ms"] == 0 and row["exposed_high_ms"] == 4
    assert (row["calls"], row["sent_bytes"], row["hidden_share"]) == (1, 800, 0.5)
    declared = {column.name for column in load("distributed_overlap").declared_columns}
    assert set(row) <= declared
