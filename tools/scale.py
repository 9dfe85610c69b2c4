"""Measure how no-op, dry run, rendering and diff grow with the number of benchmarks and cells.

    python tools/scale.py                              100 benchmarks x 1,000 cells, and smaller
    python tools/scale.py 10x100 100x100 --only dry

writes checkouts with synthetic benchmarks and evidence to a temporary folder and runs the commands
of a user there: `snakemake` with nothing due, `snakemake -n` with every case stale, `lmperf report`
and `lmperf diff`. Prints the CPU time (user and system, of the command and the processes it
started), the wall time and the peak memory of the largest process, then the exponents of the CPU
time: 1 is linear growth. The time of the first checkout counts as start-up and is subtracted for
the exponents.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
COPIED = ("config", "profiles", "rules", "templates", "src")
STEPS = ("1x10", "100x10", "100x100", "10x1000", "100x1000")
MACHINE, OTHER = "here", "other"
DTYPES, WIDTHS = ("float32", "bfloat16"), (16, 32, 64, 128, 256)
LMPERF = (sys.executable, "-m", "lmperf.cli")
SNAKEMAKE = (sys.executable, "-m", "snakemake", "--cores", "1")
COMMANDS = {
    "report": (*LMPERF, "report"),
    "noop": (*SNAKEMAKE, "report/report.md"),
    "dry": (*SNAKEMAKE, "--dry-run", "report/report.md"),
    "diff": (*LMPERF, "diff", f"report/{OTHER}", f"report/{MACHINE}"),
}
_CONFIG = "preset: cpu\nmachine: {machine}\nbenchmarks: [{stems}]\n"
_BENCHMARK = """\
from lmperf.benchmark import Axis, Case, Implementation, Phase, Timed, Workload

SCALE = 1


class Synthetic(Timed):
    title = "Synthetic {number}"
    order = {order}
    axes = (
        Axis("seq_len", int, length=True),
        Axis("d_head", int),
        Axis("dtype", str, {dtypes}),
    )
    implementations = (Implementation("eager"),)
    grids = {{
        "cpu": [
            {{
                "seq_len": [*range(128, 128 * {lengths} + 1, 128)],
                "d_head": {widths},
                "dtype": {dtypes},
                "implementation": ["eager"],
            }}
        ]
    }}

    def prepare(self, case: Case, device: str, seed: int, shared: dict) -> Workload:
        return Workload({{"forward": Phase(lambda _: SCALE)}})
"""


@dataclass(frozen=True)
class Cost:
    """What a command took: CPU and wall time in seconds, and peak memory in MiB."""

    cpu_s: float
    wall_s: float
    peak_mib: float

    def __str__(self) -> str:
        return f"{self.cpu_s:7.1f} s CPU {self.wall_s:7.1f} s {self.peak_mib:6.0f} MiB"


def checkout(root: Path, benchmarks: int, cells: int) -> None:
    """Write a copy of this checkout with synthetic benchmarks, their evidence and their report."""
    root.mkdir(parents=True)
    shutil.copy(ROOT / "Snakefile", root)
    for folder in COPIED:
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / folder, root / folder, ignore=ignored)
    per_length = len(DTYPES) * len(WIDTHS)
    stems = [f"synthetic_{number}" for number in range(benchmarks)]
    for number, stem in enumerate(stems):
        text = _BENCHMARK.format(
            number=number,
            order=2000 + number,
            dtypes=DTYPES,
            widths=list(WIDTHS),
            lengths=-(-cells // per_length),
        )
        (root / f"src/lmperf/benchmarks/{stem}.py").write_text(text)
    config = root / "config/config.yaml"
    for machine in (OTHER, MACHINE):
        config.write_text(_CONFIG.format(machine=machine, stems=", ".join(stems)))
        spend(root, (sys.executable, __file__, "--fill"))
    shutil.move(root / f"report/{OTHER}", root / f"aside/{OTHER}")


def fill() -> None:
    """Write a row for each case of the configured benchmarks; runs in the folder of a checkout."""
    from lmperf.config import load_config
    from lmperf.evidence.cost import Cost as Jobs
    from lmperf.evidence.facts import write_facts
    from lmperf.evidence.project import Project
    from lmperf.evidence.store import STORE

    project = Project(load_config(Path("config/config.yaml")))
    noise = random.Random(project.machine.slug)
    facts, _ = project.known_facts()
    measured = {"commit": "0" * 40, "dirty": False, "measured_at": "2026-01-02T03:04:05+00:00"}
    facts["environments"][project.machine.environment] = {**project.machine.facts, **measured}
    for directory in (project.directory, project.store):
        write_facts(directory, facts)
    window = {"started_at": "2026-01-02T03:00:00", "finished_at": "2026-01-02T03:30:00"}
    jobs = [{"stem": stem, **window, "wall_s": "60.0"} for stem in project.plans]
    for folder in ("evidence", STORE):
        Jobs(project.directory, folder).hold(jobs)
    for plan in project.plans.values():
        rows = [_row(plan, case, number, noise) for number, case in enumerate(plan.cases)]
        for file in (plan.store, plan.evidence):
            file.replace(rows)


def _row(plan, case, number: int, noise: random.Random) -> dict:
    ms = 1e-4 * case.axes["seq_len"] * case.axes["d_head"]
    times, again = ([ms * noise.gauss(1, 0.01) for _ in range(7)] for _ in range(2))
    row = {**case.axes, "implementation": case.implementation, "phase": "forward"}
    return {
        **row,
        "status": "ok",
        "median_ms": sorted(times)[3],
        "mean_ms": sum(times) / 7,
        "std_ms": 0.02 * ms,
        "p20_ms": min(times),
        "p80_ms": max(times),
        "repetitions": 100,
        "rounds_ms": ";".join(map(repr, times)),
        "again_ms": ";".join(map(repr, again)),
        "together": f"group{number}",
        "seed": 1,
        "environment": plan.environment,
        "commit": "0" * 12,
        "measured_at": f"2026-01-02T03:04:{number % 60:02}.{number // 60 % 1000:03}+00:00",
        "key": plan.key(row),
    }


def spend(root: Path, command: tuple[str, ...], codes: tuple[int, ...] = (0,)) -> Cost:
    """Run a command in a checkout and return its cost.

    Raises:
        RuntimeError: it ends with a code other than `codes`.
    """
    environment = {**os.environ, "PYTHONPATH": str(root / "src"), "LMPERF_COMMIT": "0" * 40}
    environment["LMPERF_LOCK"] = str(root / "lock")
    with (root / "output.txt").open("w+") as output:
        start = time.monotonic()
        process = subprocess.Popen(
            command, cwd=root, env=environment, stdout=output, stderr=subprocess.STDOUT
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in codes:
            output.seek(0)
            raise RuntimeError(
                f"{' '.join(command)}: {process.returncode}: {output.read()[-2000:]}"
            )
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return Cost(used.ru_utime + used.ru_stime, time.monotonic() - start, used.ru_maxrss / unit)


def measured(root: Path, names: list[str]) -> dict[str, Cost]:
    """Return what each command takes in a checkout with a current report."""
    costs = {"report": spend(root, COMMANDS["report"])}
    if "noop" in names:
        spend(root, COMMANDS["noop"])  # the first run of Snakemake writes its records
        costs["noop"] = spend(root, COMMANDS["noop"])
        said = (root / "output.txt").read_text()
        if "Nothing to be done" not in said:
            raise RuntimeError(f"there was something to do: {said[-2000:]}")
    if "diff" in names:
        shutil.move(root / f"aside/{OTHER}", root / f"report/{OTHER}")
        costs["diff"] = spend(root, COMMANDS["diff"], (0, 1))
        shutil.move(root / f"report/{OTHER}", root / f"aside/{OTHER}")
    if "dry" in names:
        for path in (root / "src/lmperf/benchmarks").glob("synthetic_*.py"):
            path.write_text(path.read_text().replace("SCALE = 1", "SCALE = 2"))
        costs["dry"] = spend(root, COMMANDS["dry"])
    return {name: costs[name] for name in names}


def exponents(found: dict[tuple[int, int], Cost]) -> list[str]:
    """Return a line for each two checkouts that differ in one number only: the growth between them.

    found: (benchmarks, cells) -> cost of one command; the first is the start-up.
    """
    (_, base), *rest = found.items()
    lines = []
    for ((b, c), one), ((more_b, more_c), more) in itertools.combinations(rest, 2):
        if (b == more_b) == (c == more_c) or one.cpu_s <= base.cpu_s:
            continue
        grown = math.log((more.cpu_s - base.cpu_s) / (one.cpu_s - base.cpu_s))
        exponent = grown / math.log(more_b * more_c / (b * c))
        lines.append(f"{b}x{c} -> {more_b}x{more_c}: {exponent:.2f}")
    return lines


def _step(text: str) -> tuple[int, int]:
    benchmarks, cells = map(int, text.split("x"))
    if cells % (len(DTYPES) * len(WIDTHS)):
        raise argparse.ArgumentTypeError("the number of cells must be a multiple of 10")
    return benchmarks, cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("steps", nargs="*", type=_step, default=[*map(_step, STEPS)])
    parser.add_argument("--only", nargs="+", choices=COMMANDS, default=list(COMMANDS))
    parser.add_argument("--keep", type=Path, help="write the checkouts here and keep them")
    parser.add_argument("--fill", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.fill:
        return fill()
    found: dict[str, dict[tuple[int, int], Cost]] = {name: {} for name in arguments.only}
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or Path(temporary)
        for step in arguments.steps:
            root = folder / "x".join(map(str, step))
            checkout(root, *step)
            for name, cost in measured(root, arguments.only).items():
                found[name][step] = cost
                print(f"{root.name}: {name:8} {cost}", flush=True)
            if not arguments.keep:
                shutil.rmtree(root)
    for name, costs in found.items():
        print(name, *exponents(costs), sep="\n  ")


if __name__ == "__main__":
    main()
