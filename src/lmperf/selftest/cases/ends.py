"""Processes that are lost: each becomes a row, and its peers are measured all the same."""

from lmperf.selftest.case import Case, Session
from lmperf.selftest.expectations import Ended

SESSION = Session("ends", {"seq_len": 512}, {"seq_len": 2048}, limit_s=8.0)
_LOST = "The supervisor turns a worker that it loses into a row, and goes on with another one."
CASES = (
    Case(
        "ends",
        "raises",
        "raises an exception",
        Ended("crash", "RuntimeError"),
        "What an implementation raises becomes the reason of its row.",
    ),
    Case("ends", "exits", "ends its process", Ended("crash", "exit code 3"), _LOST),
    Case("ends", "segfaults", "ends by a segmentation fault", Ended("crash", "SIGSEGV"), _LOST),
    Case(
        "ends",
        "hangs",
        "does not come back from its backward pass",
        Ended("timeout", "no answer within", ("backward", "forward_backward")),
        "Every step has a limit in time, after which its worker is ended.",
    ),
)
