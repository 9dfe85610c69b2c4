"""Tables D2 to D4 and D6: train steps by the way in which ranks exchange gradients."""

from lmperf.reporting.findings import Finding
from lmperf.reporting.tables import TableGroup

TABLES: tuple[TableGroup, ...] = ()
FINDINGS: tuple[Finding, ...] = ()
