"""Several machines side by side."""

import planted
from planted_steps import step

from lmperf.reporting.render import Page


def test_steps_of_two_machines_stand_side_by_side():
    """The machine with more rows comes first, on whichever machine the page is written."""
    cell = {"size": "0.97B", "dtype": "float32"}
    steps = [step(**cell, implementation=name, ms=ms) for name, ms in (("eager", 200), ("sdpa", 9))]
    other = planted.evidence(*steps, machine="other")
    here = planted.evidence(step(**cell, implementation="eager", ms=100), others=(other,))
    page = Page("machines", here)
    page.render()
    [table] = [table for table in page.tables if table.id == "E5"]
    assert [column.cells[0].value for column in table.columns[-2:]] == [200, 100]


def test_gpu_is_not_compared_with_a_cpu_that_emulates_bf16():
    def matmuls(*both):
        about = {"operation": "matmul", "load": "burst"}
        rates = zip(("bfloat16", "float32"), both, strict=True)
        return [planted.row("ceilings", 1.0, dtype=of, tflops=rate, **about) for of, rate in rates]

    cell = {"size": "0.97B", "dtype": "float32", "implementation": "eager"}
    facts = {"facts": planted.CPU, "machine": "cpu"}
    cpu = planted.evidence(step(**cell, ms=900), *matmuls(0.01, 0.2), **facts)
    here = planted.evidence(step(**cell, ms=100), *matmuls(800, 50), others=(cpu,))
    page = Page("machines", here)
    page.render()
    assert "bf16 is emulated on cpu, " in page.text and "## Ratios" not in page.text
