"""Tables D8 and D11: memory of each rank by component, predicted and measured."""

from lmperf.reporting.findings import Finding
from lmperf.reporting.tables import TableGroup

TABLES: tuple[TableGroup, ...] = ()
FINDINGS: tuple[Finding, ...] = ()
