"""Several machines side by side."""

import planted
from planted_steps import step

from lmperf.reporting.render import Page


def test_steps_of_two_machines_stand_side_by_side():
    cell = {"size": "0.97B", "dtype": "float32"}
    steps = [step(**cell, implementation=name, ms=ms) for name, ms in (("eager", 200), ("sdpa", 9))]
    other = planted.evidence(*steps, machine="other")
    here = planted.evidence(step(**cell, implementation="eager", ms=100), others=(other,))
    page = Page("machines", here)
    page.render()
    [table] = [table for table in page.tables if table.id == "E5"]
    assert [column.cells[0].value for column in table.columns[-2:]] == [100, 200]
