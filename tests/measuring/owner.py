"""Measures implementations into a store, as a job does: `owner.py FOLDER NAME,... [SIZE]`."""

import sys
from datetime import UTC, datetime
from pathlib import Path

import toys

from lmperf.evidence.store import Evidence
from lmperf.measuring.lock import locked
from lmperf.measuring.progress import Progress
from lmperf.measuring.supervisor import Supervisor


def main(folder: str, names: str, size: str = "") -> None:
    made = toys.Short("toy")
    evidence = Evidence(Path(folder), "toy", made.identity)
    chosen = [
        case
        for case in made.cases("cpu")
        if case.implementation in names.split(",") and size in ("", str(case.axes["size"]))
    ]
    say = lambda line: print(line, file=sys.stderr, flush=True)  # noqa: E731
    with locked("cpu", 1, say) as (locks, gpus):
        known = {(row["size"], row["implementation"]) for row in evidence.known()[0]}
        cases = [c for c in chosen if (str(c.axes["size"]), c.implementation) not in known]

        def save(rows):
            now = datetime.now(UTC).isoformat()
            evidence.append([{**row, "measured_at": now} for row in rows])

        if cases:
            progress = Progress("toy", len(cases), say)
            Supervisor(made, "cpu", progress, locks, gpus).measure(made.groups(cases), save)


if __name__ == "__main__":
    main(*sys.argv[1:])
