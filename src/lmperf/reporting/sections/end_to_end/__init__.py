"""End to end: a training step of Transformer language models, by phase."""

from lmperf.reporting.sections.end_to_end.claims import CLAIMS
from lmperf.reporting.sections.end_to_end.figure import figure
from lmperf.reporting.sections.end_to_end.tables import tables

__all__ = ["CLAIMS", "figure", "tables"]
