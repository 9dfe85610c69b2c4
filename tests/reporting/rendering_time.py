"""How long rendering takes as evidence grows: ``python tests/reporting/rendering_time.py``."""

import tempfile
import time
from pathlib import Path

import synthetic

from lmperf.reporting.render import render_machine

ROWS = (1_000, 10_000, 100_000)
TEMPLATES = Path(__file__).parents[2] / "templates"


def seconds(rows: int) -> tuple[int, float]:
    """The number of rows, at least as many as asked, and the processor time of rendering them."""
    evidence = synthetic.grown(synthetic.gpu_evidence(), rows)
    start = time.process_time()
    with tempfile.TemporaryDirectory() as directory:
        render_machine(evidence, Path(directory), TEMPLATES)
    return sum(map(len, evidence.frames.values())), time.process_time() - start


if __name__ == "__main__":
    seconds(ROWS[0])
    base = None
    for asked in ROWS:
        rows, taken = seconds(asked)
        base = base or taken
        print(f"{rows:>7,} rows: {taken:6.2f} s, {taken / base:5.2f} times the first")
