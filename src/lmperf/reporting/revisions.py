"""Results to compare: the evidence of a machine, from a folder or a Git revision.

A user names a result by a folder (`report/<machine>` or a copy of it), by `MACHINE@REV` (as
committed at a Git revision), or by the name of a machine in `report/`.
"""

from __future__ import annotations

import contextlib
import io
import tarfile
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import astuple
from pathlib import Path

from lmperf.benchmarks import stems
from lmperf.errors import UserError
from lmperf.evidence import repeatability
from lmperf.evidence.facts import FILE, read_facts
from lmperf.evidence.store import EVIDENCE, read
from lmperf.machine.repository import git
from lmperf.reporting import numbers, untrusted
from lmperf.reporting.evidence import Evidence
from lmperf.reporting.files import NUMBERS


def read_result(name: str, report: Path = Path("report")) -> Evidence:
    """The evidence of this name (see the module).

    report: the folder of the reports at the top of a repository.

    Raises:
        UserError: there is no such result, or its evidence is damaged.
    """
    with folder_of(name, report) as folder:
        evidence = evidence_in(folder, name)
        damage = [
            *evidence.damaged.values(),
            *(unreadable(evidence, stem) for stem in evidence.raw),
        ]
        for why in filter(None, damage):
            raise UserError(f"{name}: {untrusted.plain(why)}")
        if not evidence.raw:
            raise UserError(f"{name}: no evidence: there is no {folder / EVIDENCE}/*.csv")
    return evidence


def numbers_of(name: str, report: Path = Path("report")) -> list[numbers.Entry]:
    """The numbers that the pages of this result print, as a terminal may have their words.

    Raises:
        UserError: there is no such result, or it has no list of them.
    """
    with folder_of(name, report, NUMBERS) as folder:
        path = folder / NUMBERS
        entries = numbers.read_csv(path.read_text(encoding="utf-8")) if path.is_file() else []
    if not entries:
        raise UserError(f"{name} has no {NUMBERS} that can be read; run lmperf report there")
    return [numbers.Entry(*map(_shown, astuple(entry))) for entry in entries]


def _shown(text: str) -> str:
    """Text of a file that somebody else wrote, with invisible characters made visible."""
    return untrusted.plain(untrusted.neutral(text, len(text)))


def evidence_in(folder: Path, name: str) -> Evidence:
    """The evidence in a folder under a name; its `damaged` says which files cannot be read."""
    facts, damage = read_facts(folder)
    raw, damaged = {}, {"machine": damage} if damage else {}
    for stem in (*stems(), repeatability.STEM):
        rows, faults = read(folder / EVIDENCE / f"{stem}.csv")
        if faults:
            damaged[stem] = faults[0].replace(f"{folder}/", "")
        elif rows:
            raw[stem] = rows
    again = defaultdict(list)
    for row in raw.pop(repeatability.STEM, ()):
        if row.get(repeatability.BENCHMARK) in raw:
            again[row[repeatability.BENCHMARK]].append(row)
    evidence = Evidence(name, facts, raw, damaged=damaged, again=again)
    try:
        for stem in again:
            evidence.rows_again(stem)
    except ValueError as error:
        damaged[repeatability.STEM] = f"{repeatability.STEM}.csv: {error}"
        return Evidence(name, facts, raw, damaged=damaged)
    return evidence


def unreadable(evidence: Evidence, stem: str) -> str:
    """Why the rows of a benchmark cannot be parsed, as a text where a number should be; or ""."""
    try:
        evidence.rows(stem)
    except ValueError as error:
        return untrusted.neutral(f"{stem}.csv: {error}")
    return ""


@contextlib.contextmanager
def folder_of(name: str, report: Path, *wanted: str) -> Iterator[Path]:
    """Yield the folder of a result; that of a Git revision is temporary, and has what is wanted.

    wanted: names below the folder; by default the evidence.

    Raises:
        UserError: there is no such result.
    """
    machine, at, revision = name.partition("@")
    if Path(name).is_dir():
        yield Path(name)
    elif at:
        with tempfile.TemporaryDirectory() as temporary:
            path = f"{report.name}/{machine}"
            _extract(report.parent, revision, path, Path(temporary), wanted or (EVIDENCE, FILE))
            yield Path(temporary) / report.name / machine
    elif (report / name).is_dir():
        yield report / name
    else:
        raise UserError(f"{name} is neither a directory nor a machine with evidence in {report}")


def _extract(root: Path, revision: str, path: str, into: Path, names: Sequence[str]) -> None:
    """Write files below a path as they were committed at a revision."""
    if not revision or revision.startswith("-"):
        raise UserError(f"{path}@{revision}: {revision or 'nothing'!r} is not a revision")
    wanted = [f"{path}/{name}" for name in names]
    try:
        content = git(root, "archive", "--format=tar", revision, "--", *wanted)
    except UserError as error:
        raise UserError(f"{path} at {revision}: not committed there ({error})") from None
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        # Skip links: they could point outside the folder.
        for member in filter(tarfile.TarInfo.isfile, archive):
            target = into / member.name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(archive.extractfile(member).read())
