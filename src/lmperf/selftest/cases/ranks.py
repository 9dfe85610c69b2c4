"""Cases of several ranks that reduce gradients wrongly, whose times must not be reported."""

from lmperf.selftest.case import Case, Session
from lmperf.selftest.expectations import RANKED_STEM, Withheld

SESSION = Session(
    "ranks", {}, {}, neighbour="one_by_one", limit_s=120.0, stem=RANKED_STEM, devices=2
)
_DIFFERS = Withheld(("differs from the float64 reference",))
_FIVE_STEPS = "The gate compares weights and gradients of five steps with those of one process."
CASES = (
    Case(
        "reductions",
        "averages_over_one_too_many",
        "divides the sum of the gradients by one more than the number of ranks",
        _DIFFERS,
        _FIVE_STEPS,
    ),
    Case(
        "reductions",
        "leaves_out_a_bucket",
        "reduces all buckets of gradients but the last",
        _DIFFERS,
        _FIVE_STEPS,
    ),
    Case(
        "reductions",
        "sums_one_bucket",
        "leaves the sum of the ranks in one bucket of gradients",
        _DIFFERS,
        _FIVE_STEPS,
    ),
)
