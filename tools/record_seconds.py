"""Record how long measuring takes, from the evidence of a machine, for the time left of a run.

    python tools/record_seconds.py report/nvidia-h200

replaces the lines of this machine's kind of device (cuda or cpu) in
`src/lmperf/measuring/seconds.csv`. The evidence should be of a whole run on an idle machine. A
group gets a line of its own if it differs from the mean of its benchmark by at least 0.05 % of the
run.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from statistics import median

from lmperf.benchmark import Benchmark
from lmperf.benchmarks import load, stems
from lmperf.evidence.cost import Cost
from lmperf.evidence.plan import evidence_of
from lmperf.evidence.store import Row
from lmperf.measuring import forecast

SHARE = 0.0005
COLUMNS = ("device", "benchmark", "group", "seconds")
TABLE = Path(forecast.__file__).with_name("seconds.csv")


def groups_of(benchmark: Benchmark, rows: list[Row], jobs: list[Row]) -> Iterator[tuple]:
    """Yield (job, group, cases, seconds) for each group that a job of `jobs` measured last.

    The rows of a group are saved together: its seconds are those since the group before it, or
    since the start of the job.
    """
    saved: dict[str, float] = {}
    cases: dict[str, set] = {}
    for row in rows:
        axes = {axis.name: row[axis.name] for axis in benchmark.axes}
        name = benchmark.group_name(axes.items())
        saved[name] = max(saved.get(name, 0.0), _seconds(row["measured_at"]))
        cases.setdefault(name, set()).add((*axes.values(), row["implementation"]))
    for job in jobs:
        since = _seconds(job["started_at"]) + float(job["start_s"])
        end = _seconds(job["finished_at"]) + 1  # `measured_at` has whole seconds
        within = [name for name, at in saved.items() if since - 1 <= at <= end]
        for name in sorted(within, key=saved.get):
            yield job, name, len(cases[name]), max(0.0, saved[name] - since)
            since = saved[name]


def lines(device: str, directory: Path) -> list[dict[str, str]]:
    """Return the lines of the table for a machine; `directory`: `report/<machine>`."""
    jobs = Cost(directory).read()
    found = {}
    for stem in stems():
        benchmark, own = load(stem), [job for job in jobs if job["stem"] == stem]
        rows = evidence_of(benchmark, directory).read()
        if groups := [*groups_of(benchmark, rows, own)]:
            found[stem] = median(float(job["start_s"]) for job in own), groups
    total = sum(seconds for _, groups in found.values() for *_, seconds in groups)
    table = []
    for stem, (start, groups) in found.items():
        mean = sum(seconds for *_, seconds in groups) / sum(cases for _, _, cases, _ in groups)
        apart = {
            name: seconds / cases
            for _, name, cases, seconds in groups
            if abs(seconds - mean * cases) >= SHARE * total
        }
        for group, seconds in {forecast.START: start, forecast.OTHERS: mean, **apart}.items():
            table.append(dict(zip(COLUMNS, (device, stem, group, f"{seconds:.3g}"), strict=True)))
    return table


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def main() -> None:
    directory = Path(sys.argv[1])
    facts = json.loads((directory / "machine.json").read_text())["environments"].values()
    (device,) = {environment["kind"] for environment in facts}
    with TABLE.open() as old:
        kept = [row for row in csv.DictReader(old) if row["device"] != device]
    with TABLE.open("w") as out:
        writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted([*kept, *lines(device, directory)], key=lambda row: row["device"]))
    print(TABLE)


if __name__ == "__main__":
    main()
