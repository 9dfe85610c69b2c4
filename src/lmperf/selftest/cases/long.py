"""Cases that drop one tile of many: an error that a norm over the whole result would hide."""

from lmperf.selftest.case import Case, Session
from lmperf.selftest.cases.results import DIFFERS, REFERENCE
from lmperf.selftest.expectations import Reads, Withheld
from lmperf.statistics import SAME, SLOWER, UNRESOLVED

SESSION = Session(
    "long",
    {"heads": 1, "seq_len": 2048},
    {"heads": 1, "seq_len": 65536, "dtype": "bfloat16"},
    neighbour="sdpa",
)
CASES = (
    Case(
        "results",
        "no_tile_dropped",
        "computes one tile of 64 queries separately",
        Reads((SAME, UNRESOLVED, SLOWER), "sdpa"),
        "It is correct: key_tile_dropped is compared with it.",
    ),
    Case(
        "results",
        "key_tile_dropped",
        "does the same but drops one tile of 64 keys there",
        Withheld((DIFFERS,)),
        REFERENCE,
    ),
)
