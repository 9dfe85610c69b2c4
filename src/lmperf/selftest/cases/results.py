"""Wrong results, of which no time may be shown."""

from lmperf.selftest.case import Case, Session
from lmperf.selftest.expectations import Withheld

SESSION = Session("results", {"seq_len": 512}, {"seq_len": 2048})
DIFFERS = "differs from the float64 reference"
REFERENCE = "The gate holds each row against float64, beside the rows around it."
CASES = (
    Case("results", "zeros", "gives back zeros", Withheld((DIFFERS,)), REFERENCE),
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
        "gives back NaN at one position",
        Withheld(("not finite",)),
        "An error that is not finite is over every bound.",
    ),
    Case(
        "results",
        "in_another_dtype",
        "works in bfloat16 where it is given float32",
        Withheld((DIFFERS,)),
        "The bound is that of the row's own numerics.",
    ),
    Case(
        "results",
        "in_float64",
        "gives back float64 where it is given float32",
        Withheld(("float64",)),
        "Dtype, shape and device of a result must be those of the inputs.",
    ),
    Case(
        "results",
        "changes_its_inputs",
        "changes a column of the keys that it is given",
        Withheld(("inputs",)),
        "After a call that is checked its inputs are drawn once more, and must be the same.",
    ),
    Case(
        "ends",
        "leaks",
        "keeps every output",
        Withheld(("grows",)),
        "What is alive after a call must not grow from call to call.",
    ),
)
