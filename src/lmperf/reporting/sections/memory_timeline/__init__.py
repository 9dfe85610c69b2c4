"""Memory over the course of a forward pass and of a train step, tensor by tensor."""

from lmperf.reporting.sections.memory_timeline.claims import CLAIMS
from lmperf.reporting.sections.memory_timeline.figure import figure
from lmperf.reporting.sections.memory_timeline.tables import tables

__all__ = ["CLAIMS", "figure", "tables"]
