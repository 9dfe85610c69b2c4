"""Memory over the course of a forward pass and of a train step, tensor by tensor."""

from lmperf.reporting.coverage import Rests, observing
from lmperf.reporting.sections.memory_timeline.claims import CLAIMS
from lmperf.reporting.sections.memory_timeline.figure import figure
from lmperf.reporting.sections.memory_timeline.tables import tables

TABLES = {
    "Y2": Rests(where=observing("table", "curve", "phase")),
    "Y3": Rests(where=observing("table", "block")),
    "Y4": Rests(where=observing("table", "stream")),
    "Y5": Rests(where=observing("table", "category")),
}

__all__ = ["CLAIMS", "TABLES", "figure", "tables"]
