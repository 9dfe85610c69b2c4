"""Sections: what a template shows of which rows. Their sentences are in `templates/`.

A module has the stem of its template and one subclass of `Section`. In any template
`section("lrpe")` is the section of the evidence at hand. A template without a module has a plain
`Section`.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable

import pandas as pd

from lmperf.reporting.evidence import Evidence, cached_by_evidence
from lmperf.reporting.rows import Rows


class Section:
    """The rows and calculations of one template.

    Attributes of subclasses are cached properties, so that a template pays for what it names. One
    whose rows are missing raises `NotMeasured`: the sentence around it is left out, and a condition
    is false. So does one that can say nothing, or a number that would explain something else.
    """

    def __init__(self, evidence: Evidence):
        self.evidence = evidence

    def rows(self, stem: str, frame: pd.DataFrame | None = None) -> Rows:
        """The rows of a benchmark, or a frame that was made from them."""
        return Rows(self.evidence, stem, self.evidence.rows(stem) if frame is None else frame)

    def traces(self, stem: str) -> list[tuple[str]]:
        """The names of the published traces of a benchmark."""
        names = self.evidence.rows(stem)["trace"].dropna().unique()
        return [(name,) for name in names if name in self.evidence.traces]

    def of(self, stem: str) -> Section:
        """The section of another template."""
        return section(self.evidence, stem)

    def table_rows(self, records: Iterable[dict]) -> Rows:
        """Lines of a table that are no rows of evidence, such as one size with its best times."""
        return self.rows("", pd.DataFrame(list(records)))


@cached_by_evidence
def section(evidence: Evidence, stem: str) -> Section:
    """The section of a stem for this evidence."""
    name = f"{__package__}.{stem}"
    if not stem.isidentifier() or importlib.util.find_spec(name) is None:
        return Section(evidence)
    members = [*vars(importlib.import_module(name)).values()]
    classes = [kind for kind in members if isinstance(kind, type) and issubclass(kind, Section)]
    return next(kind for kind in classes if kind.__module__ == name)(evidence)
