"""md_lrpe_cosine against PyTorch and against a copy of as many bytes."""

from lmperf.reporting.sections.lrpe import claims, growth
from lmperf.reporting.sections.lrpe.figure import figure
from lmperf.reporting.sections.lrpe.tables import tables

CLAIMS = (*claims.CLAIMS, *growth.CLAIMS)

__all__ = ["CLAIMS", "figure", "tables"]
