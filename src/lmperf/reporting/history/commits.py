"""The commits of a machine's evidence, and the files that they hold, read from Git."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from lmperf.benchmarks import stems
from lmperf.errors import UserError
from lmperf.evidence.facts import FILE
from lmperf.evidence.store import EVIDENCE
from lmperf.reporting.diff.results import REPORT


@dataclass(frozen=True)
class Commit:
    """A commit that changed evidence.

    Attributes:
        hash: in full.
        date: of the commit, YYYY-MM-DD.
        subject: first line of its message.
        csvs: stem of a benchmark -> (blob of its CSV, blob of the digest or None).
        facts: blob of machine.json; None without one.
    """

    hash: str
    date: str
    subject: str
    csvs: Mapping[str, tuple[str, str | None]]
    facts: str | None


def commits_of(machine: str, root: Path = Path()) -> list[Commit]:
    """The commits that changed a machine's CSVs, oldest first.

    Raises:
        UserError: `root` is not in a Git repository, or Git cannot be run.
    """
    folder = f"{REPORT}/{machine}"
    log = _git(
        root, "log", "--reverse", "--format=%H%x00%cs%x00%s", "--", f"{folder}/{EVIDENCE}/*.csv"
    )
    lines = (line.split("\0") for line in log.decode(errors="replace").splitlines())
    return [_commit(root, folder, *line) for line in lines]


def _commit(root: Path, folder: str, hash: str, date: str, subject: str) -> Commit:
    tree = _git(root, "ls-tree", "-r", "-z", hash, "--", f"{folder}/{EVIDENCE}", f"{folder}/{FILE}")
    blobs = {}
    for line in filter(None, tree.decode(errors="replace").split("\0")):
        about, _, path = line.partition("\t")
        mode, kind, blob = about.split()
        if kind == "blob" and mode != "120000":  # no links
            blobs[PurePosixPath(path).name] = blob
    csvs = {
        stem: (blobs[f"{stem}.csv"], blobs.get(f"{stem}.sha256"))
        for stem in stems()
        if f"{stem}.csv" in blobs
    }
    return Commit(hash, date, subject, csvs, blobs.get(FILE))


def contents_of(blobs: Iterable[str], root: Path = Path()) -> dict[str, bytes]:
    """Blob -> content, read by one process of Git."""
    wanted = list(dict.fromkeys(blobs))
    out = _git(root, "cat-file", "--batch", given="\n".join(wanted).encode())
    found, place = {}, 0
    for blob in wanted:
        end = out.index(b"\n", place)
        size = int(out[place:end].split()[2])
        found[blob] = out[end + 1 : end + 1 + size]
        place = end + size + 2
    return found


def _git(root: Path, *arguments: str, given: bytes = b"") -> bytes:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], input=given, capture_output=True
        )
    except OSError as error:
        raise UserError(f"git cannot be run: {error.strerror}") from None
    if done.returncode:
        why = " ".join(done.stderr.decode(errors="replace").split())
        raise UserError(f"the history of the evidence cannot be read: {why}")
    return done.stdout
