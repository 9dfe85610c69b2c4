"""Cases with wrong results, whose times must not be reported."""

from lmperf.selftest.case import Case, Session
from lmperf.selftest.expectations import Withheld

SESSION = Session("results", {"seq_len": 512}, {"seq_len": 2048})
DIFFERS = "differs from the float64 reference"
LARGE = "differs from the float64 reference if the scores are large"
_SCORES = "The gate has a second set of inputs, whose scores are from -96 to 120."
REFERENCE = "The gate compares each row with float64, relative to the rows around it."
CASES = (
    Case("results", "zeros", "returns zeros", Withheld((DIFFERS,)), REFERENCE),
    Case(
        "results",
        "mask_dropped_in_one_head",
        "drops the causal mask in one head",
        Withheld((DIFFERS,)),
        REFERENCE,
    ),
    Case(
        "results",
        "scale_of_the_last_block",
        "scales the scores of the last 64 queries as if d were one less",
        Withheld((DIFFERS,)),
        REFERENCE,
    ),
    Case(
        "results",
        "nan_at_one_position",
        "returns NaN at one position",
        Withheld(("not finite",)),
        "An error that is not finite exceeds every bound.",
    ),
    Case(
        "results",
        "softmax_without_maximum",
        "does not subtract the maximum of each row before the exponential",
        Withheld((LARGE,)),
        _SCORES,
    ),
    Case(
        "results",
        "maximum_of_the_first_tile",
        "subtracts the maximum over the first 64 keys only",
        Withheld((LARGE,)),
        _SCORES,
    ),
    Case(
        "results",
        "in_another_dtype",
        "computes in bfloat16 for float32 inputs",
        Withheld((DIFFERS,)),
        "The bound is that of the row's dtype.",
    ),
    Case(
        "results",
        "in_float64",
        "returns float64 for float32 inputs",
        Withheld(("float64",)),
        "A result must have the dtype, shape and device of the inputs.",
    ),
    Case(
        "results",
        "changes_its_inputs",
        "changes a column of its keys",
        Withheld(("inputs",)),
        "After a checked call its inputs are drawn again and must be unchanged.",
    ),
    Case(
        "ends",
        "leaks",
        "keeps every output",
        Withheld(("grows",)),
        "Live memory after a call must not grow again and again.",
    ),
    Case(
        "ends",
        "leaks_now_and_then",
        "keeps 4 MiB in every seventh call",
        Withheld(("grows",)),
        "Memory is looked at over more calls than a slice has.",
    ),
)
