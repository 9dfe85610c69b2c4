"""The history of a machine's evidence: what its newest commits changed."""

from __future__ import annotations

from functools import cached_property

from lmperf.errors import UserError
from lmperf.reporting.foreign import plain, taken
from lmperf.reporting.history import Step, steps
from lmperf.reporting.sections import Section


class History(Section):
    """The newest commits of the evidence, or why Git cannot tell them."""

    newest = 5

    @cached_property
    def _read(self) -> tuple[list[Step], str]:
        machine, root = plain(self.evidence.machine), self.evidence.repository
        try:
            return steps(machine, root, most=self.newest), ""
        except UserError as error:
            return [], taken(str(error))

    @property
    def steps(self) -> list[Step]:
        return self._read[0]

    @property
    def why(self) -> str:
        """Why Git cannot tell; or nothing."""
        return self._read[1]
