"""md_lrpe_cosine against PyTorch and against a copy of as many bytes."""

from lmperf.reporting.sections.lrpe.claims import CLAIMS
from lmperf.reporting.sections.lrpe.figure import figure
from lmperf.reporting.sections.lrpe.tables import tables

__all__ = ["CLAIMS", "figure", "tables"]
