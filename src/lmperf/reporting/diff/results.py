"""Results for a comparison: the evidence of one machine, from a directory or a Git revision.

A user names a result by a directory (``report/<machine>`` or a copy of it), by ``MACHINE@REV`` (as
committed at a Git revision), or by the slug of a machine in ``report/``.
"""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pandas as pd

from lmperf.benchmark import COMMON_COLUMNS, Benchmark
from lmperf.benchmarks import load, stems
from lmperf.errors import UserError
from lmperf.evidence import cost, repeatability
from lmperf.evidence.as_read import as_read
from lmperf.evidence.consistent import contradictions
from lmperf.evidence.plan import former_names
from lmperf.evidence.store import DamagedEvidence, Row, read_rows
from lmperf.measuring.state import DRIFT
from lmperf.reporting import gates
from lmperf.reporting.evidence import axes, completed, typed_rows
from lmperf.reporting.facts import facts_of
from lmperf.reporting.foreign import taken, taken_frame
from lmperf.reporting.marks import CONTRADICTS, with_mark

REPORT = "report"
# Files of evidence that hold no results: the cost of measuring, and rows measured a second time.
_NO_RESULTS = frozenset((cost.STEM, repeatability.STEM))


@dataclass(frozen=True)
class Result:
    """The rows of one machine by benchmark.

    Attributes:
        name: the name that the user gave.
        machine: slug of the machine.
        facts: machine.json (see ``facts_of``).
        frames: stem -> rows. Axes are text, so that rows of two versions of the code compare equal.
            The column ``state`` is the status, or ``failed_check`` if the gate is red.
    """

    name: str
    machine: str
    facts: dict
    frames: dict[str, pd.DataFrame]

    @property
    def environments(self) -> list[dict]:
        """The recorded facts of the environments that rows were measured in."""
        known = self.facts.get("environments", {})
        used = {name for frame in self.frames.values() for name in frame["environment"].unique()}
        return [facts for name, facts in known.items() if name in used]

    def known(self, fact: str) -> list[str]:
        """The distinct values of a fact, as text, over all environments of the result."""
        return sorted({str(facts[fact]) for facts in self.environments if facts.get(fact)})


def read_result(name: str, root: Path = Path()) -> Result:
    """Read the result of this name (see the module) in the project at ``root``.

    Raises:
        UserError: there is no such result, or its evidence is damaged.
    """
    with _directory(name, root) as directory:
        paths = sorted((directory / "evidence").glob("*.csv"))
        paths = [path for path in paths if path.stem not in _NO_RESULTS]
        if not paths:
            raise UserError(f"{name}: no evidence: there is no {directory / 'evidence'}/*.csv")
        facts = facts_of(_facts(directory / "machine.json"))
        try:
            kinds = {name: of.get("kind") for name, of in facts["environments"].items()}
            frames = {path.stem: read_frame(path, kinds) for path in paths}
        except (DamagedEvidence, ValueError) as damage:
            raise UserError(f"{name}: {damage}") from None
        machine = facts.get("machine")
        machine = machine if machine and isinstance(machine, str) else taken(directory.name)
        return Result(taken(name), machine, facts, frames)


def _facts(path: Path) -> Any:
    try:
        return json.loads(path.read_text()) if path.exists() else {}
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not valid JSON: {error}") from None


def read_frame(path: Path, kinds: Mapping[str, str | None] = MappingProxyType({})) -> pd.DataFrame:
    """The rows of a CSV of evidence, whose digest must lie beside it, as `Result.frames` has them.

    kinds: environment -> kind of its device. Rows of these environments that contradict another
    cell, also when measured again, get the mark ``contradicts``, as in a report. Sustained
    steps that waited for a slow host get the mark ``host`` (`evidence.as_read`).

    Raises:
        DamagedEvidence, ValueError: the file is damaged.
    """
    # Rows of older versions get today's names; a benchmark may no longer exist.
    benchmark = load(path.stem) if path.stem in stems() else None
    rows = read_rows(path, former_names(benchmark) if benchmark else {})
    if benchmark:  # the columns of a file written by other means may have any order
        rows = [{**dict.fromkeys(benchmark.identity, ""), **as_read(row)} for row in rows]
        rows = _with_contradictions(benchmark, rows, kinds)
    names = list(rows[0]) if rows else ["implementation"]
    kinds = {name: str for name in names[: names.index("implementation")]}
    kinds |= {column.name: column.kind for column in COMMON_COLUMNS}
    frame = completed(taken_frame(typed_rows(rows, kinds, str(path))), path.stem)
    frame[axes(frame)] = frame[axes(frame)].fillna("")
    return frame.assign(state=frame["status"].mask(gates.red(frame), "failed_check"))


def _with_contradictions(
    benchmark: Benchmark, rows: Sequence[Row], kinds: Mapping[str, str | None]
) -> list[Row]:
    timed = [row for row in rows if all(map(row.get, ("median_ms", "p20_ms", "p80_ms")))]
    marked = {
        id(row)
        for name, kind in kinds.items()
        if kind in DRIFT
        for one in contradictions(
            benchmark, [row for row in timed if row["environment"] == name], kind
        )
        if one.is_settled
        for row in one.rows
    }
    return [with_mark(row, CONTRADICTS) if id(row) in marked else row for row in rows]


@contextlib.contextmanager
def _directory(name: str, root: Path) -> Iterator[Path]:
    """Yield the directory of a result; a Git revision is extracted to a temporary directory."""
    machine, at, revision = name.partition("@")
    if Path(name).is_dir():
        yield Path(name)
    elif not at:
        if not (root / REPORT / name).is_dir():
            raise UserError(
                f"{name} is neither a directory nor a machine with evidence in {REPORT}"
            )
        yield root / REPORT / name
    else:
        with tempfile.TemporaryDirectory() as temporary:
            _extract(root, revision, f"{REPORT}/{machine}", Path(temporary))
            yield Path(temporary) / REPORT / machine


def _extract(root: Path, revision: str, path: str, into: Path) -> None:
    """Write the evidence below a path as it was committed at a revision."""
    if not revision or revision.startswith("-"):
        raise UserError(f"{path}@{revision}: {revision or 'nothing'!r} is not a revision")
    wanted = [f"{path}/evidence", f"{path}/machine.json"]
    command = ["git", "-C", str(root), "archive", "--format=tar", revision, "--", *wanted]
    try:
        done = subprocess.run(command, capture_output=True)
    except OSError as error:
        raise UserError(f"{path}@{revision}: git cannot be run: {error}") from None
    if done.returncode:
        why = " ".join(done.stderr.decode(errors="replace").split())
        raise UserError(f"{path} at {revision}: not committed there ({why})")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        # Skip links: they could point outside the folder.
        for member in filter(tarfile.TarInfo.isfile, archive):
            target = into / member.name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(archive.extractfile(member).read())
