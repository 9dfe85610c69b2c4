"""Cases that raise, hang or end their process: each gets a row, its neighbour is measured."""

from lmperf.selftest.case import Case, Session
from lmperf.selftest.expectations import Ended

SESSION = Session("ends", {"seq_len": 512}, {"seq_len": 2048}, limit_s=8.0)
_LOST = "The supervisor records a lost worker as a row and continues with a new one."
CASES = (
    Case(
        "ends",
        "raises",
        "raises an exception",
        Ended("crash", "RuntimeError"),
        "An exception becomes the reason of its row.",
    ),
    Case("ends", "exits", "ends its process", Ended("crash", "exit code 3"), _LOST),
    Case("ends", "segfaults", "ends with a segmentation fault", Ended("crash", "SIGSEGV"), _LOST),
    Case(
        "ends",
        "hangs",
        "hangs in its backward pass",
        Ended("timeout", "no answer within", ("backward", "forward_backward")),
        "Every step has a timeout, after which its worker is ended.",
    ),
)
