"""Plain PyTorch attention, eager and compiled, and where it runs out of memory."""

from lmperf.reporting.coverage import Rests, having
from lmperf.reporting.sections.attention.claims import CLAIMS as TIMING_CLAIMS
from lmperf.reporting.sections.attention.figure import figure
from lmperf.reporting.sections.attention.growth import CLAIMS as GROWTH_CLAIMS
from lmperf.reporting.sections.attention.limit import CLAIMS as LIMIT_CLAIMS
from lmperf.reporting.sections.attention.tables import tables

CLAIMS = (*TIMING_CLAIMS, *GROWTH_CLAIMS, *LIMIT_CLAIMS)
TABLES = {
    "A1": Rests(where=having(implementation=("eager",))),
    "A3": Rests(stem="attention_limit"),
    "A4": Rests(where=having(implementation=("eager",))),
}

__all__ = ["CLAIMS", "TABLES", "figure", "tables"]
