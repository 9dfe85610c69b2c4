"""One tile of many: the fault that a norm over the whole result does not show."""

from lmperf.selftest.case import Case, Session
from lmperf.selftest.cases.results import DIFFERS, REFERENCE
from lmperf.selftest.expectations import Reads, Withheld
from lmperf.statistics import SAME, SLOWER, UNRESOLVED

SESSION = Session(
    "long",
    {"heads": 1, "seq_len": 2048},
    {"heads": 1, "seq_len": 65536, "dtype": "bfloat16"},
    peer="sdpa",
)
CASES = (
    Case(
        "results",
        "no_tile_dropped",
        "works out one tile of 64 queries apart",
        Reads((SAME, UNRESOLVED, SLOWER), "sdpa"),
        "It is right: what key_tile_dropped is held against.",
    ),
    Case(
        "results",
        "key_tile_dropped",
        "does the same, and drops one tile of 64 keys there",
        Withheld((DIFFERS,)),
        REFERENCE,
    ),
)
