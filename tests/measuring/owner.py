"""A small attention group with implementations from `faulty`.

Run as a script, this is a process that owns workers, for a test to end. It measures the group,
prints each step before it takes the step, and exits with 130 when interrupted.
"""

import sys

from lmperf.benchmarks import load
from lmperf.measuring.supervisor import Supervisor

GRID = {"batch": [2], "seq_len": [32], "d_head": [16], "dtype": ["float32"], "causal": [False]}


def small_group(*names, limit_s=60.0, d_heads=(16,), preset="cpu"):
    """The attention benchmark and a small group of its cases: eager and some from `faulty`."""
    benchmark = load("attention", {name: f"faulty:{name}" for name in names})
    benchmark.limit_s = limit_s
    grid = {**GRID, "d_head": list(d_heads), "implementation": ["eager"]}
    return benchmark, benchmark.cases(preset, grid)


def rows_of(supervisor, *names, **of_group):
    """The rows of the group as a dictionary by implementation and phase."""
    rows = supervisor.measure(*small_group(*names, **of_group), seed=1)
    return {(row["implementation"], row["phase"]): row for row in rows}


def main(name):
    def say(words, case, phase):
        print(words, case.implementation, flush=True)

    print("starting", flush=True)
    with Supervisor("cpu", say) as supervisor:
        rows_of(supervisor, name, limit_s=600.0)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(130)
