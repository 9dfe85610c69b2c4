"""Carries keys of evidence over a change of names: rows stay fresh where nothing else changed.

    python tools/carry_keys.py eb326e0 tools/renames/layout.txt --keys lmperf.fingerprint

A row's key covers the code that measured it, by module. Where modules were renamed or moved, every
key is another one, though no number can have changed. For each benchmark this holds the code of the
revision, with its names changed as the file says, against the code at hand (`meaning.py`). Where
both mean the same, rows that were fresh under the old code get the key of the new; all others stay
as they are, and are stale.

The file has a line for each module or definition: `package.old package.new`, or
`package.old:definition package.new:definition`. Its lines that begin with # say why.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from meaning import Tree, meaning_of

from lmperf.benchmark import Benchmark, load, stems
from lmperf.evidence.keys import METHOD_VERSION, code_fingerprint, row_key_of
from lmperf.evidence.plan import evidence_of
from lmperf.evidence.store import Evidence, Row

ROOT = Path(__file__).parents[1]
PACKAGE = "lmperf"
_ASK = (
    "import importlib, json, sys; keys = importlib.import_module(sys.argv[1]);"
    "found = {name: keys.code_fingerprint(name) for name in sys.argv[2:]};"
    "print(json.dumps([keys.METHOD_VERSION, found]))"
)


@dataclass(frozen=True)
class Carried:
    """The rows of a benchmark: how many were carried, how many are stale, and what differs."""

    carried: int
    stale: int
    differing: list[str]


def read_renames(path: Path) -> dict[str, str]:
    """Old name -> new name, by line."""
    lines = (line.split() for line in path.read_text().splitlines() if not line.startswith("#"))
    return {words[0]: words[1] for words in lines if words}


def differing(old: Tree, new: Tree, module: str) -> list[str]:
    """Names, as the new tree has them, of all that does not mean the same; none when all does."""
    before, after = meaning_of(old, module), meaning_of(new, old.new_name(module))
    return sorted(name for name in {*before, *after} if before.get(name) != after.get(name))


def carry(
    evidence: Evidence,
    benchmark: Benchmark,
    fingerprints: tuple[str, str],
    differences: list[str],
) -> Carried:
    """Give rows that were fresh under the old of two fingerprints the key of the new one.

    Only if nothing differs; a row of a user's own implementation stays as it is.
    """
    axes = [axis.name for axis in benchmark.axes]

    def key(row: Row, fingerprint: str) -> str:
        code = (fingerprint, METHOD_VERSION)
        return row_key_of(code, benchmark.stem, row, axes, row["environment"])

    old, new = fingerprints
    carried = 0
    if old != new and not differences:
        carried = sum(row["key"] == key(row, old) for row in evidence.read())
        evidence.rekey(lambda row: key(row, new) if row["key"] == key(row, old) else row["key"])
    stale = sum(row["key"] != key(row, new) for row in evidence.read())
    return Carried(carried, stale, differences)


def source_at(revision: str, directory: Path) -> Path:
    """`src` of a revision, unpacked into a directory."""
    command = ["git", "-C", str(ROOT), "archive", revision, "src"]
    archive = subprocess.run(command, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(directory, filter="data")
    return directory / "src"


def fingerprints_of(source: Path, keys: str, modules: Iterable[str]) -> dict[str, str]:
    """What the code of a source tree says its modules' fingerprints are.

    Raises:
        ValueError: it measured by another method, so that no key can be carried.
    """
    done = subprocess.run(
        [sys.executable, "-c", _ASK, keys, *modules],
        env={**os.environ, "PYTHONPATH": str(source)},
        check=True,
        capture_output=True,
        text=True,
    )
    method, found = json.loads(done.stdout)
    if method != METHOD_VERSION:
        raise ValueError(f"the method was version {method} then, and is {METHOD_VERSION} now")
    return found


def carry_all(
    source: Path, keys: str, renamed: Mapping[str, str], machine: Path
) -> dict[str, Carried]:
    """`carry` of every benchmark that a machine (`report/<machine>`) has evidence of."""
    old, new = Tree(source, PACKAGE, renamed), Tree(ROOT / "src", PACKAGE)
    evidences = {stem: evidence_of(load(stem), machine) for stem in stems()}
    known = [stem for stem, evidence in evidences.items() if evidence.path.exists()]
    modules = {stem: f"{PACKAGE}.benchmarks.{stem}" for stem in known}
    before = fingerprints_of(source, keys, modules.values())
    return {
        stem: carry(
            evidences[stem],
            load(stem),
            (before[module], code_fingerprint(module)),
            differing(old, new, module),
        )
        for stem, module in modules.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("revision", help="of the code that measured")
    parser.add_argument("renames", type=Path, nargs="?", help="the file of old and new names")
    parser.add_argument("--keys", default="lmperf.evidence.keys", help="its module of fingerprints")
    arguments = parser.parse_args()
    renamed = read_renames(arguments.renames) if arguments.renames else {}
    with tempfile.TemporaryDirectory() as directory:
        source = source_at(arguments.revision, Path(directory))
        for machine in sorted(path.parent for path in ROOT.glob("report/*/machine.json")):
            for stem, found in carry_all(source, arguments.keys, renamed, machine).items():
                print(f"{machine.name}/{stem}: {found.carried} carried, {found.stale} left stale")
                for name in found.differing:
                    print(f"  differs: {name}")


if __name__ == "__main__":
    main()
