"""Tables D9 and D10: steps with sharded state, and the volume of their communication."""

from lmperf.reporting.findings import Finding
from lmperf.reporting.tables import TableGroup

TABLES: tuple[TableGroup, ...] = ()
FINDINGS: tuple[Finding, ...] = ()
