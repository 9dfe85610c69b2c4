"""Profiles: kernels and their classes, the inside of attention, the traces."""

from lmperf.reporting.coverage import Rests, observing
from lmperf.reporting.sections.profiles import claims, shares
from lmperf.reporting.sections.profiles.tables import tables

CLAIMS = (*claims.CLAIMS, *shares.CLAIMS)
TABLES = {
    "P1": Rests(where=observing("table", "kernel")),
    "P2": Rests(where=observing("table", "class")),
    "P3": Rests(where=observing("table", "attention")),
}

__all__ = ["CLAIMS", "TABLES", "tables"]
