"""Cases of several ranks that seem to overlap their communication with computation."""

from lmperf.selftest.case import Case, Session
from lmperf.selftest.expectations import LEDGER_STEM, Hides

SESSION = Session(
    "overlap", {}, {}, neighbour="overlapped", limit_s=120.0, stem=LEDGER_STEM, devices=2
)
_LEDGER = "The ledger intersects the times of collectives with those of computation."
CASES = (
    Case(
        "overlap",
        "waits_in_hooks",
        "reduces each gradient asynchronously in the backward pass, and waits for it there",
        Hides(0.1),
        _LEDGER,
    ),
    Case(
        "overlap",
        "begins_after_the_backward",
        "reduces gradients asynchronously, but begins only after the backward pass",
        Hides(0.1),
        _LEDGER,
    ),
)
