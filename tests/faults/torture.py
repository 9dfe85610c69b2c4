"""Faults of the real pipeline at random moments, which back the promises of docs/reliability.md.

    make torture                             all faults; some hours on two cores
    python tests/faults/torture.py --tries 3 kill-job two-clones
    python tests/faults/torture.py --list

Each try measures a small grid in a fresh checkout, disturbs it, and runs `make report` again. It
passes if that run completes, if no process of the disturbed run is left and nothing was measured
twice, and if evidence and write-up equal those of an undisturbed run. The results are printed as a
table, and written to a file with `--tally FILE`.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import checkout as disturbed
from checkout import Checkout, Run
from tabulate import tabulate

Fault = Callable[[Checkout, random.Random], list[str]]
FAULTS: dict[str, tuple[str, Fault]] = {}


@functools.cache
def run_s() -> float:
    """Seconds of an undisturbed run of the small grid, from which random moments are drawn."""
    with tempfile.TemporaryDirectory(prefix="lmperf-faults-") as folder:
        checkout = Checkout(Path(folder) / "checkout")
        began = time.monotonic()
        checkout.run()
        return time.monotonic() - began


def fault(name: str, words: str) -> Callable[[Fault], Fault]:
    def register(function: Fault) -> Fault:
        FAULTS[name] = (words, function)
        return function

    return register


@dataclass
class Tally:
    """The number of tries of one fault, and what went wrong in each failed try."""

    tries: int
    broken: list[list[str]]


def completed(checkout: Checkout) -> list[str]:
    """Run `make report` after a disturbed run; returns a description of what is wrong then."""
    again = checkout.run()
    if again.code:
        return [f"the next run ends with {again.code}: {again.said[-400:]}"]
    found = checkout.faults()
    if "Nothing to be done" not in (second := checkout.run()).said:
        found.append(f"the run after that has something to do: {second.said[-300:]}")
    return found


def left_running(run: Run) -> list[str]:
    if run.gone():
        return []
    found = [f"{len(run.alive())} processes are left running"]
    run.end()
    return found


def disturb(checkout: Checkout, moment: float, strike: Callable[[Run], None]) -> list[str]:
    run = checkout.start()
    time.sleep(moment)
    if not run.is_over:
        strike(run)
    run.wait()
    return left_running(run) + completed(checkout)


@fault("kill-snakemake", "`kill -9` of snakemake")
def kill_snakemake(checkout, draw):
    return disturb(checkout, draw.uniform(0, run_s()), lambda run: _kill(run.pid))


@fault("kill-job", "`kill -9` of the measuring job")
def kill_job(checkout, draw):
    return disturb(checkout, draw.uniform(0.1, 1) * run_s(), lambda run: _kill(run.job()))


@fault("kill-worker", "`kill -9` of the worker")
def kill_worker(checkout, draw):
    run = checkout.start()
    until = time.monotonic() + draw.uniform(0.2, 1) * run_s()
    while not run.is_over and (time.monotonic() < until or not run.workers()):
        time.sleep(0.02)
    for pid in draw.sample(workers := run.workers(), min(1, len(workers))):
        _kill(pid)
    found = [] if run.wait().code == 0 else [f"the run ends with {run.code}: {run.said[-300:]}"]
    return found + left_running(run) + completed(checkout)


def _told(number: int) -> Fault:
    def tell(checkout, draw):
        return disturb(checkout, draw.uniform(0, run_s()), lambda run: run.signal_all(number))

    return tell


fault("interrupt", "SIGINT, as from a terminal")(_told(signal.SIGINT))
fault("terminate", "SIGTERM to every process of the run")(_told(signal.SIGTERM))


@fault("terminate-snakemake", "SIGTERM to snakemake alone")
def terminate_snakemake(checkout, draw):
    moment = draw.uniform(0, run_s())
    return disturb(checkout, moment, lambda run: _kill(run.pid, signal.SIGTERM))


@fault("two-runs", "two runs in one checkout")
def two_runs(checkout, draw):
    first = checkout.start()
    time.sleep(draw.uniform(0, 12))
    second = checkout.run()
    found = []
    if second.code not in (0, 2) or "Traceback" in second.said:
        found.append(f"the second run ends with {second.code}: {second.said[-300:]}")
    if first.wait().code:
        found.append(f"the first run ends with {first.code}: {first.said[-300:]}")
    return found + completed(checkout)


@fault("two-clones", "two checkouts measured at once")
def two_clones(checkout, draw):
    other = Checkout(checkout.root.parent / "other")
    runs = [checkout.start(), other.start()]
    found = [f"a run ends with {run.code}: {run.said[-300:]}" for run in runs if run.wait().code]
    spans = sorted(
        (min(r["measured_at"] for r in rows), max(r["measured_at"] for r in rows))
        for rows in (checkout.rows, other.rows)
    )
    if spans[0][1] > spans[1][0]:
        found.append(f"their measurements overlap: {spans}")
    return found + checkout.faults() + other.faults()


@fault("disk-full", "a full disk while groups are saved")
def disk_full(checkout, draw):
    report = checkout.root / "report"
    with _mounted(report, "size=2m"):
        (report / "filler").write_bytes(b"\0" * (2**21 - draw.randrange(4096, 65536, 4096)))
        run = checkout.run()
        found = [] if run.code else ["the run ends with 0 although the disk is full"]
        if "Traceback" in run.said:
            found.append(f"a traceback: {run.said[-300:]}")
        saved = _saved(checkout)
        (report / "filler").unlink()
        found += completed(checkout)
        return found + ["saved rows are lost"] * (not saved <= _saved(checkout))


@fault("read-only-report", "a report folder that cannot be written")
def read_only_report(checkout, draw):
    report = checkout.root / "report"
    with _mounted(report, "size=8m"):
        if draw.random() < 0.5:
            checkout.run()
            (checkout.root / "config/config.yaml").write_text(
                disturbed.CONFIG.replace("[32, 48, 64]", "[32, 48]")
            )
        _sh("mount", "-o", "remount,ro", str(report))
        run = checkout.run()
        _sh("mount", "-o", "remount,rw", str(report))
        found = [] if run.code else ["the run ends with 0 although nothing could be written"]
        found += [f"a traceback: {run.said[-300:]}"] * ("Traceback" in run.said)
        (checkout.root / "config/config.yaml").write_text(disturbed.CONFIG)
        return found + completed(checkout)


@fault("read-only-memory", "a `.snakemake` that cannot be written")
def read_only_memory(checkout, draw):
    memory = checkout.root / ".snakemake"
    with _mounted(memory, "size=8m"):
        _sh("mount", "-o", "remount,ro", str(memory))
        run = checkout.run()
        _sh("mount", "-o", "remount,rw", str(memory))
        found = [] if run.code else ["the run ends with 0 although Snakemake cannot write"]
        return found + completed(checkout)


@fault("no-home", "no HOME, and a TMPDIR and caches that cannot be written")
def no_home(checkout, draw):
    nowhere = "/proc/nowhere"
    caches = dict.fromkeys(("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "MPLCONFIGDIR"), nowhere)
    run = checkout.run(HOME="", TMPDIR=nowhere, **caches)
    if run.code == 0:
        return checkout.faults()
    plain = "Traceback" not in run.said
    return [] if plain and not completed(checkout) else [f"ends with {run.code}: {run.said[-400:]}"]


@fault("future", "files from the future, and a clock set back")
def future(checkout, draw):
    checkout.run()
    later = time.time() + draw.choice([3600, 86400 * 400])
    found = sorted(path for path in checkout.root.rglob("*") if path.is_file())
    for path in draw.sample(found, len(found) // draw.choice([1, 2, 10])):
        _touch(path, later)
    changed = draw.choice(["report/here/report.md", "report/report.md", "report/here/attention.md"])
    (checkout.root / changed).unlink()
    return completed(checkout)


@fault("lost-file", "evidence, facts, pages or their digests deleted, cut or edited")
def lost_file(checkout, draw):
    checkout.run()
    folders = ("report/here", "report/here/evidence", ".lmperf", "report/here/store")
    found = [p for f in folders for p in sorted((checkout.root / f).glob("*")) if p.is_file()]
    path = draw.choice([*found, checkout.root / "report/report.md"])
    _damage(path, draw)
    return completed(checkout)


def _damage(path: Path, draw: random.Random) -> None:
    content = path.read_bytes()
    match draw.randrange(6):
        case 0:
            path.unlink()
        case 1:
            path.write_bytes(content[: draw.randrange(len(content))])
        case 2:
            path.write_bytes(b"")
        case 3:
            at = draw.randrange(len(content))
            flipped = content[at] ^ (1 << draw.randrange(8))
            path.write_bytes(content[:at] + bytes([flipped]) + content[at + 1 :])
        case 4:
            path.write_bytes(content.replace(b"\n", b"\r\n"))
        case 5:
            path.unlink()
            path.mkdir()


def _saved(checkout: Checkout) -> set[str]:
    path = checkout.root / "report/here/store/attention.csv"
    return (
        {line.rpartition(",")[2] for line in path.read_text().splitlines()}
        if path.exists()
        else set()
    )


class _mounted:
    """Mount a small file system at a path."""

    def __init__(self, path: Path, options: str):
        self.path, self.options = path, options

    def __enter__(self):
        self.path.mkdir(exist_ok=True)
        _sh("mount", "-t", "tmpfs", "-o", self.options, "tmpfs", str(self.path))

    def __exit__(self, *_):
        _sh("umount", "--lazy", str(self.path))


def _sh(*command: str) -> None:
    subprocess.run(command, check=True)


def _kill(pid: int | None, number: int = signal.SIGKILL) -> None:
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _touch(path: Path, when: float) -> None:
    os.utime(path, (when, when))


def tried(name: str, tries: int, seed: int, show: bool) -> Tally:
    tally = Tally(0, [])
    for number in range(tries):
        with tempfile.TemporaryDirectory(prefix="lmperf-faults-") as folder:
            checkout = Checkout(Path(folder) / "checkout")
            try:
                found = FAULTS[name][1](checkout, random.Random(f"{name} {seed + number}"))
            except Exception:
                found = [traceback.format_exc()]
        tally.tries += 1
        if found:
            tally.broken.append(found)
        if show:
            words = "held" if not found else "; ".join(found)
            print(f"{name} {seed + number}: {words}", file=sys.stderr, flush=True)
    return tally


def table(tallies: dict[str, Tally]) -> str:
    lines = [
        [FAULTS[name][0], tally.tries, tally.tries - len(tally.broken)]
        for name, tally in tallies.items()
    ]
    return tabulate(lines, ["fault", "tries", "held"], tablefmt="pipe")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("faults", nargs="*", metavar="FAULT", help="default: all")
    parser.add_argument("--tries", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tally", type=Path, help="a file that gets the table")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if options.list:
        print("\n".join(f"{name:22}{words}" for name, (words, _) in FAULTS.items()))
        return 0
    if unknown := set(options.faults) - set(FAULTS):
        parser.error(f"no such fault: {', '.join(sorted(unknown))}")
    names = options.faults or list(FAULTS)
    tallies = {name: tried(name, options.tries, options.seed, True) for name in names}
    print(table(tallies))
    if options.tally:
        options.tally.write_text(table(tallies) + "\n")
    return int(any(tally.broken for tally in tallies.values()))


if __name__ == "__main__":
    sys.exit(main())
