"""Peak memory, measured and predicted."""

from lmperf.reporting.sections.memory.claims import CLAIMS
from lmperf.reporting.sections.memory.figure import figure
from lmperf.reporting.sections.memory.tables import tables

__all__ = ["CLAIMS", "figure", "tables"]
