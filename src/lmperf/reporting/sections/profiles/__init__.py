"""Profiles: kernels and their classes, the inside of attention, the traces."""

from lmperf.reporting.sections.profiles import claims, shares
from lmperf.reporting.sections.profiles.tables import tables

CLAIMS = (*claims.CLAIMS, *shares.CLAIMS)

__all__ = ["CLAIMS", "tables"]
