"""Expected outcomes of planted faults, tried on rows that meet them and rows that do not."""

import pandas as pd
import pytest

from lmperf.selftest.expectations import OK, Expected, in_words

PHASES = ("forward", "backward", "forward_backward")


def rows(status="ok", reason=None, **columns):
    """A row for each phase."""
    ms = 1.0 if status == "ok" else None
    row = {"status": status, "state": None if ms else status, "reason": reason, "marks": None}
    return pd.DataFrame([{**row, "median_ms": ms, **columns}] * 3, index=PHASES)


NONE = rows().iloc[:0]


WRONG = "a timed call returned a wrong out"
WITHHELD = Expected(("a timed call", "inputs"))
MARKED, HIDES = Expected(is_marked=True), Expected(most_hidden=0.1)
SOME = pd.concat([rows("failed_check", "inputs changed")[:1], rows()[1:]])


@pytest.mark.parametrize(
    ("expect", "found", "held"),
    [
        (WITHHELD, rows("failed_check", WRONG), True),
        (WITHHELD, rows("nan", "the result is not finite"), False),
        (WITHHELD, rows("crash", WRONG), False),
        (WITHHELD, rows("failed_check", WRONG, median_ms=1.0), False),
        (WITHHELD, rows(), False),
        (WITHHELD, NONE, False),
        (WITHHELD, SOME, False),
        (Expected(("inputs",), ("forward",)), SOME, True),
        (OK, rows(marks="capped;loaded"), True),
        (OK, rows(marks="reused_output"), False),
        (OK, rows("crash", "it broke"), False),
        (OK, NONE, False),
        (MARKED, rows(marks="loaded;reused_output"), True),
        (MARKED, rows(), False),
        (HIDES, rows(hidden_share=0.02, exposed_ms=5.0), True),
        (HIDES, rows(hidden_share=0.9, exposed_ms=5.0), False),
        (HIDES, rows(hidden_share=0.0, exposed_ms=0.0), False),
        (HIDES, rows("crash", "it broke"), False),
    ],
)
def test_outcome_holds_for_the_expected_rows_only(expect, found, held):
    assert expect.is_met(found) is held


def test_phases_with_the_same_words_are_joined():
    found = pd.concat([rows("crash", "it broke")[:1], rows()[1:]])
    assert in_words(found) == "forward: crash: it broke; backward and forward + backward: ok"
