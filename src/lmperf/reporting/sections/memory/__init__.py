"""Peak memory, measured and predicted."""

from lmperf.reporting.sections.memory import claims, growth
from lmperf.reporting.sections.memory.figure import figure
from lmperf.reporting.sections.memory.tables import tables

CLAIMS = (*claims.CLAIMS, *growth.CLAIMS)

__all__ = ["CLAIMS", "figure", "tables"]
