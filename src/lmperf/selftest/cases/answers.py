"""Answers without the work, and work where the clock does not look."""

from lmperf.selftest.case import Case, Session
from lmperf.selftest.cases.results import DIFFERS
from lmperf.selftest.expectations import Withheld

SESSION = Session("answers", {"seq_len": 512}, {"seq_len": 2048})
_TIMED_CALL = "a timed call"
_FRESH = (
    "Every call has other inputs in the same memory, and results of timed calls, chosen at random,"
    " are held against the reference of their inputs."
)
CASES = (
    Case(
        "answers",
        "by_address",
        "gives the answer of its first call with tensors at these addresses",
        Withheld((_TIMED_CALL,), ("forward",)),
        _FRESH,
    ),
    Case(
        "answers",
        "gradients_by_address",
        "gives the gradients of its first call with tensors at these addresses",
        Withheld((_TIMED_CALL, DIFFERS), ("backward", "forward_backward")),
        "The gradient of the output is another one for every call, too.",
    ),
    Case(
        "answers",
        "by_shape",
        "gives the answer of its first call with tensors of this shape",
        Withheld((_TIMED_CALL,), ("forward",)),
        _FRESH,
    ),
    Case(
        "answers",
        "after_twenty_calls",
        "is right for 20 calls, then gives the answer of the last of them",
        Withheld((_TIMED_CALL,), ("forward",)),
        "A timed call of the last round is checked, too.",
    ),
    Case(
        "answers",
        "for_the_seed",
        "has the answer ready for the inputs that the group's seed gives",
        Withheld((_TIMED_CALL,), ("forward",)),
        "The seeds of timed calls are drawn when they are needed, by the system's generator.",
    ),
    Case(
        "answers",
        "turned",
        "turns its first answer as the inputs seem to be turned",
        Withheld((_TIMED_CALL,), ("forward",)),
        "Every call has a draw of its own.",
    ),
    Case(
        "answers",
        "lazy",
        "gives back a tensor of a subclass that works when it is looked at",
        Withheld(("plain tensor", "must be a torch.Tensor"), ("forward",)),
        "What a call returns must be of the type Tensor itself.",
    ),
    Case(
        "elsewhere",
        "early_backward",
        "works out the backward pass in the forward pass",
        Withheld((_TIMED_CALL, DIFFERS), ("backward",)),
        "The gradient of the output is drawn after the forward pass.",
    ),
    Case(
        "elsewhere",
        "in_thread",
        "gives back a tensor that a thread is still filling",
        Withheld((_TIMED_CALL, DIFFERS, "outlives", "grows"), ("forward",)),
        "A result is copied as it is when its clock stops.",
    ),
    Case(
        "elsewhere",
        "on_stream",
        "works on another stream, for which the current one does not wait",
        Withheld((_TIMED_CALL, DIFFERS, "outlives"), ("forward",)),
        "The device must be idle when the last event of a slice has passed.",
        needs="cuda",
    ),
)
