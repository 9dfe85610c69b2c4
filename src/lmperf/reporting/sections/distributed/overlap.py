"""Tables D5 and D12: communication in all, hidden under computation, and exposed."""

from lmperf.reporting.findings import Finding
from lmperf.reporting.tables import TableGroup

TABLES: tuple[TableGroup, ...] = ()
FINDINGS: tuple[Finding, ...] = ()
