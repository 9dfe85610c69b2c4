"""Take over the evidence of another person's machine, `report/<machine>` of another repository.

Only files with a digest are taken: `machine.json` and the evidence. They are copied first, so that
what was checked is what is added. A machine with any fault is refused.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from lmperf.config import is_slug
from lmperf.errors import UserError, shown
from lmperf.evidence.facts import FILE, PERMISSIONS, read_facts, write_facts
from lmperf.evidence.project import Project
from lmperf.evidence.review import review
from lmperf.evidence.store import EVIDENCE, DamagedEvidence, read_signed

_TAKEN = (FILE, "machine.sha256", f"{EVIDENCE}/*.csv", f"{EVIDENCE}/*.sha256")
_MOST_BYTES = 50_000_000


def machine_in(source: Path) -> str:
    """Return the name of the machine whose evidence lies in a folder.

    Raises:
        UserError: the folder is not that of a machine, or `machine.json` does not match its digest.
    """
    path = source / FILE
    try:
        content = read_signed(path)
        if content is None:
            raise UserError(f"{path} does not exist; give the folder report/<machine> of a clone")
        name = json.loads(content)["machine"]
    except DamagedEvidence as damage:
        raise UserError(str(damage)) from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UserError(f"{path} does not name its machine") from None
    if not isinstance(name, str) or not is_slug(name):
        raise UserError(f"{path}: the name {shown(name)} cannot be that of a machine")
    return name


def add(project: Project, source: Path, name: str, replace: bool = False) -> list[str]:
    """Add the evidence in a folder as the machine `name`; return its faults, one line each.

    With faults, nothing is added.

    Args:
        source: `report/<machine>` of another repository.
        name: what the machine is called here.
        replace: whether a machine of this name is replaced.

    Raises:
        UserError: see `machine_in`; there is a machine of this name; or it is the machine at hand.
    """
    theirs = machine_in(source)
    target = project.report_directory / name
    if project.is_here(name):
        raise UserError(f"{name} is the name of this machine; give theirs another with --as NAME")
    if target.exists() and not replace:
        raise UserError(f"{target} exists; replace it with --replace, or choose a name with --as")
    if target.resolve() == source.resolve():
        raise UserError(f"{source} is already in this report")
    with tempfile.TemporaryDirectory() as folder:
        staged = Path(folder) / "report" / name
        if faults := _copied(source, staged):
            return faults
        try:
            facts = read_facts(staged, theirs)
        except DamagedEvidence as damage:
            return [_at(source, staged, str(damage))]
        facts = {key: value for key, value in facts.items() if key not in PERMISSIONS}
        write_facts(staged, facts | {"machine": name})
        found = review(Project(project.config, Path(folder)), name)
        unknown = [f"{path} is of no benchmark of this version" for path in found.unknown]
        if faults := [*found.lost.values(), *found.damaged.values(), *unknown]:
            return [_at(source, staged, words) for words in faults]
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(staged, target)
    return []


def _at(source: Path, staged: Path, words: str) -> str:
    return words.replace(str(staged), str(source))


def _copied(source: Path, staged: Path) -> list[str]:
    """Copy what is taken; return a line for each file that cannot be."""
    faults = []
    for path in sorted(path for pattern in _TAKEN for path in source.glob(pattern)):
        if path.is_symlink() or not path.is_file():
            faults.append(f"{path} is not a plain file")
        elif path.stat().st_size > _MOST_BYTES:
            faults.append(f"{path} is larger than {_MOST_BYTES:,} bytes")
        else:
            copy = staged / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    if not faults and not any(staged.glob(f"{EVIDENCE}/*.csv")):
        faults.append(f"{source / EVIDENCE} has no CSV")
    return faults
