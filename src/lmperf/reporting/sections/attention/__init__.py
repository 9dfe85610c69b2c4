"""Plain PyTorch attention, eager and compiled."""

from lmperf.reporting.sections.attention.claims import CLAIMS
from lmperf.reporting.sections.attention.figure import figure
from lmperf.reporting.sections.attention.tables import tables

__all__ = ["CLAIMS", "figure", "tables"]
