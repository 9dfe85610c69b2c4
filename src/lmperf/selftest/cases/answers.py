"""Cases that return results without doing the work, or that work outside the timed interval."""

from lmperf.reporting.words import percent
from lmperf.selftest.case import Case, Session
from lmperf.selftest.cases.results import DIFFERS
from lmperf.selftest.expectations import Marked, Perhaps, Withheld
from lmperf.selftest.planted import WRONG_SHARE

SESSION = Session("answers", {"seq_len": 512}, {"seq_len": 2048})
_TIMED_CALL = "a timed call"
_FRESH = (
    "Every call has fresh inputs in the same memory, and the results of randomly chosen timed calls"
    " are compared with the reference for their inputs."
)
CASES = (
    Case(
        "answers",
        "by_address",
        "returns the result of its first call with tensors at these addresses",
        Withheld((_TIMED_CALL, DIFFERS), ("forward",)),
        _FRESH,
    ),
    Case(
        "answers",
        "gradients_by_address",
        "returns the gradients of its first call with tensors at these addresses",
        Withheld((_TIMED_CALL, DIFFERS), ("backward", "forward_backward")),
        "The output gradient, too, is fresh for every call.",
    ),
    Case(
        "answers",
        "by_shape",
        "returns the result of its first call with tensors of this shape",
        Withheld((_TIMED_CALL, DIFFERS), ("forward",)),
        _FRESH,
    ),
    Case(
        "answers",
        "after_twenty_calls",
        "is correct for 20 calls, then repeats the last result",
        Withheld((_TIMED_CALL,), ("forward",)),
        "The last round has a checked call, too.",
    ),
    Case(
        "answers",
        "idle_at_the_start",
        "does no work in the first calls after a pause, with which every slice begins",
        Withheld((_TIMED_CALL,), ("forward",)),
        "Every call of a slice may be the checked one: slices end at random lengths.",
    ),
    Case(
        "answers",
        "for_the_seed",
        "has precomputed the result for the inputs of the group's seed",
        Withheld((_TIMED_CALL, DIFFERS), ("forward",)),
        "Timed calls draw their seeds from the system's generator when they need them.",
    ),
    Case(
        "answers",
        "turned",
        "transforms its first result as the inputs seem to be transformed",
        Withheld((_TIMED_CALL, DIFFERS), ("forward",)),
        "Every call draws its inputs anew.",
    ),
    Case(
        "answers",
        "lazy",
        "returns a tensor subclass that computes when it is read",
        Withheld(("plain tensor", "must be a torch.Tensor"), ("forward",)),
        "Results must be of type torch.Tensor itself.",
    ),
    Case(
        "answers",
        "static_buffer",
        "returns every result in the same memory",
        Marked("reused_output"),
        "Two results that are both in use must not share memory. It is no wrong result by itself.",
    ),
    Case(
        "answers",
        "wrong_now_and_then",
        f"doubles its result in {percent(WRONG_SHARE, 0)} of its calls, at random",
        Perhaps((_TIMED_CALL, DIFFERS), often=0.7),
        "Only some calls are checked: two before the timing, and at least two timed ones a phase.",
    ),
    Case(
        "elsewhere",
        "early_backward",
        "computes the backward pass in the forward pass",
        Withheld((_TIMED_CALL, DIFFERS), ("backward",)),
        "The gradient of the output is drawn after the forward pass.",
    ),
    Case(
        "elsewhere",
        "in_thread",
        "returns a tensor that a thread is still filling",
        Withheld((_TIMED_CALL, DIFFERS, "outlives", "grows"), ("forward",)),
        "The result is copied when the clock stops.",
    ),
    Case(
        "elsewhere",
        "on_stream",
        "works on another stream without a dependency of the current one",
        Withheld((_TIMED_CALL, DIFFERS, "outlives"), ("forward",)),
        "The device must be idle after the last event of a slice.",
        needs="cuda",
    ),
)
