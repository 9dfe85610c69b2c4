"""Cases with correct results: only those that differ in speed may get the verdict slower."""

from lmperf.selftest.case import Case, Session
from lmperf.selftest.expectations import Reads
from lmperf.selftest.planted import FIRST_CALL_S
from lmperf.statistics import SAME, SLOWER, UNRESOLVED

SESSION = Session(
    "pace", {"heads": 20, "seq_len": 256}, {"heads": 20, "seq_len": 2048}, patient=True
)
CASES = (
    Case(
        "pace",
        "copy_of_eager",
        "runs the code of the implementation beside it",
        Reads((SAME, UNRESOLVED), "eager"),
        "A verdict needs an interval that excludes 1 and a ratio beyond the noise floor.",
    ),
    Case(
        "pace",
        "twin",
        "works on copies of its inputs",
        Reads((SAME, UNRESOLVED, SLOWER), "eager"),
        "It is correct: tenth_more is compared with it.",
    ),
    Case(
        "pace",
        "tenth_more",
        "does the same but computes a tenth of its heads twice",
        Reads((SLOWER, UNRESOLVED), "twin", seen=SLOWER),
        "Both are timed in turn, with more rounds until the verdict is decided.",
    ),
    Case(
        "pace",
        "slow_first_call",
        f"sleeps for {FIRST_CALL_S:g} s in its first call",
        Reads((SAME, UNRESOLVED), "eager", FIRST_CALL_S),
        "The first call is timed separately, before warm-up and slices.",
    ),
)
