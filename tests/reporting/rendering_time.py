"""Measure how the time to render a report grows with the number of rows.

python tests/reporting/rendering_time.py
"""

import time

import synthetic

from lmperf.reporting.pages import composed, machine_files

ROWS = (1_000, 10_000, 100_000)


def seconds(rows: int) -> tuple[int, float]:
    """Render at least ``rows`` rows; return the number of rows and the CPU seconds taken."""
    evidence = synthetic.grown(synthetic.gpu_evidence(), rows)
    start = time.process_time()
    machine_files(evidence, composed(evidence, synthetic.TEMPLATES), synthetic.TEMPLATES)
    return sum(map(len, evidence.frames.values())), time.process_time() - start


if __name__ == "__main__":
    seconds(ROWS[0])
    base = None
    for asked in ROWS:
        rows, taken = seconds(asked)
        base = base or taken
        print(f"{rows:>7,} rows: {taken:6.2f} s, {taken / base:5.2f} times the first")
