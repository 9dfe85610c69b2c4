"""Write rendered files; a full disk changes none, and no file that is not lmperf's is lost.

The files that a command keeps up to date in a folder are named in a list beside them, `LIST`. Only
these are replaced or removed. The list is committed with them, so that every clone has it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from errno import EISDIR
from pathlib import Path
from typing import NoReturn

from lmperf.errors import UserError
from lmperf.evidence.store import EVIDENCE, as_written

LIST = ".lmperf-files"
# Files in the folder of a machine: what its pages print, and the record of its self-test.
NUMBERS, SELFTEST = "numbers.csv", "selftest.csv"
_HEADER = "# lmperf wrote these files here; it replaces and removes no others."

Content = str | bytes


def listed(folder: Path) -> set[str]:
    """The files that lmperf wrote in a folder, by name below it; none where there is no list."""
    try:
        names, top = names_in((folder / LIST).read_bytes()), folder.resolve()
    except OSError:
        return set()
    # The list may be somebody else's: it must not name a file outside of its folder.
    return {name for name in names if (folder / name).parent.resolve().is_relative_to(top)}


def names_in(content: bytes) -> set[str]:
    """The names in a list of files."""
    lines = as_written(content).decode(errors="replace").split("\n")
    return {line for line in lines if line and not line.startswith("#") and "\0" not in line}


def replace_files(
    folders: Mapping[Path, Mapping[str, Content]], remedy: str, force: bool = False
) -> list[Path]:
    """Write files below folders, list them there, and remove what was listed before and is not now.

    Args:
        folders: folder -> name below it -> content.
        remedy: what a user can do about files in the way: words that follow "move it, ".
        force: replace files in the way.

    Returns:
        The files in the way that were replaced.

    Raises:
        UserError: a file is in the way, which lmperf did not write, or one cannot be written.
            Nothing is changed.
    """
    files = {
        folder / name: content
        for folder, contents in folders.items()
        for name, content in contents.items()
    }
    lists, own = {}, set()
    for folder, names in folders.items():
        own |= {folder / name for name in listed(folder)}
        lists[folder / LIST] = "\n".join([_HEADER, *sorted(names)]) + "\n"
    in_the_way = [path for path in _in_the_way(files) if path not in own]
    if in_the_way and not force:
        _refuse(in_the_way, remedy)
    with _staged({**files, **lists}) as put:
        # In this order, so that whenever this process is killed, the next one knows its files.
        for path in own.difference(files):
            if path.is_file() or path.is_symlink():
                path.unlink()
        put({**lists, **files})
    return in_the_way


def is_foreign(folder: Path) -> bool:
    """Whether a folder for what lmperf writes is in use for other files, or is none."""
    if folder.is_symlink() or folder.is_file():
        return True
    ours = (LIST, f"*/{LIST}", f"*/{EVIDENCE}/*.csv")
    is_ours = any(path for pattern in ours for path in folder.glob(pattern))
    return any(folder.glob("*")) and not is_ours


def require_free(folder: Path, name: str, remedy: str) -> None:
    """Raise UserError if there is a file that lmperf did not write, where it is going to write."""
    if os.path.lexists(folder / name) and name not in listed(folder):
        _refuse([folder / name], remedy)


def write_files(files: Mapping[Path, Content], remedy: str, force: bool = False) -> list[Path]:
    """Write files that are the user's from then on, and are not listed; see `replace_files`."""
    in_the_way = _in_the_way(files)
    if in_the_way and not force:
        raise UserError(f"{_shortened(in_the_way)} exists already; {remedy}")
    with _staged(files) as put:
        put(files)
    return in_the_way


def _in_the_way(files: Mapping[Path, Content]) -> list[Path]:
    """The files that are there with another content."""

    def differs(path: Path) -> bool:
        return not path.is_file() or path.read_bytes() != _bytes(files[path])

    return [p for p in files if os.path.lexists(p) and not p.is_dir() and differs(p)]


def _refuse(paths: Sequence[Path], remedy: str) -> NoReturn:
    are, them = ("is", "it") if len(paths) == 1 else ("are", "them")
    what = f"{are} there already, and lmperf did not write {them}: move {them}, {remedy}"
    raise UserError(f"{_shortened(paths)} {what}")


def _shortened(paths: Sequence[Path], most: int = 3) -> str:
    more = f" and {len(paths) - most} more" if len(paths) > most else ""
    return ", ".join(map(str, paths[:most])) + more


@contextlib.contextmanager
def _staged(files: Mapping[Path, Content]) -> Iterator[Callable[[Iterable[Path]], None]]:
    """Write contents next to their targets; yield a function that moves them to some targets.

    Raises:
        UserError: a file cannot be written, or the body cannot remove one.
    """
    new: dict[Path, Path] = {}
    path = Path()

    def put(targets: Iterable[Path]) -> None:
        nonlocal path
        for path in targets:
            os.replace(new[path], path)

    try:
        for path, content in files.items():
            if path.is_dir():
                raise IsADirectoryError(EISDIR, os.strerror(EISDIR))
            path.parent.mkdir(parents=True, exist_ok=True)
            new[path] = path.with_name(f".{path.name}.{os.getpid()}.tmp")
            new[path].write_bytes(_bytes(content))
        yield put
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise UserError(f"{path}: cannot be written: {why}; fix this and run it again") from None
    finally:
        for temporary in new.values():
            temporary.unlink(missing_ok=True)


def _bytes(content: Content) -> bytes:
    return content.encode() if isinstance(content, str) else content


def remedy(machines: Sequence[str | None]) -> str:
    """What a user can do about a file in the way of write-ups."""
    command = " ".join(["lmperf report", *([] if None in machines else filter(None, machines))])
    other = "name another folder in the configuration (report: lmperf-report; take evidence along)"
    return f"replace it with {command} --force, or {other}"
