"""Copies of one implementation on a busy machine: no verdict may rest on their times."""

from lmperf.selftest.case import Case, Session
from lmperf.selftest.cases import pace
from lmperf.selftest.expectations import Reads
from lmperf.statistics import UNRESOLVED

SESSION = Session("busy", pace.SESSION.cpu, pace.SESSION.cuda, neighbour="sdpa", busy=True)
CASES = tuple(
    Case(
        "pace",
        name,
        "runs the code of the implementation beside it, while other processes use every core",
        Reads((UNRESOLVED,), "sdpa", marked="loaded"),
        "A row of a loaded machine is never better than unresolved.",
    )
    for name in ("copy_of_sdpa", "second_copy_of_sdpa", "third_copy_of_sdpa", "fourth_copy_of_sdpa")
)
