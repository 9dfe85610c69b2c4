"""Tests that a fault of an implementation on a GPU costs only its own rows."""

import pytest
from owner import rows_of

from lmperf.measuring.supervisor import Supervisor

pytestmark = [
    pytest.mark.process,
    pytest.mark.gpu,
]


@pytest.fixture(scope="module")
def supervisor():
    with Supervisor("cuda") as supervisor:
        yield supervisor


@pytest.mark.parametrize(
    ("name", "status", "words"),
    [
        ("writes_where_nothing_is", "crash", "illegal memory access"),
        ("asks_for_more_than_is_free", "oom", None),
        ("fills_the_memory", "oom", None),
        ("is_not_finite", "nan", "not finite"),
        ("ends", "crash", "exit code 3"),
        ("segfaults", "crash", "SIGSEGV"),
        ("hangs_with_a_grandchild", "timeout", "no answer within"),
        ("forks_a_daemon", "ok", None),
        ("writes_a_megabyte", "ok", None),
    ],
)
def test_fault_costs_only_its_own_rows(supervisor, name, status, words):
    rows = rows_of(supervisor, name, preset="gpu", limit_s=15.0)
    assert rows[name, "forward"]["status"] == status, said(rows)
    assert words is None or words in rows[name, "forward"]["reason"]
    beside = {rows["eager", phase]["status"] for phase in ("forward", "backward")}
    assert beside == {"ok"}, said(rows)
    after = rows_of(supervisor, "is_right", preset="gpu")
    assert {row["status"] for row in after.values()} == {"ok"}, said(after)


def said(rows):
    """Status and reason of each row."""
    return {name: (row["status"], row.get("reason")) for name, row in rows.items()}
