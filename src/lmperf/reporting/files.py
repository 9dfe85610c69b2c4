"""Write rendered files: either all are replaced or none."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from lmperf.errors import UserError


def replace_files(directory: Path, files: Mapping[str, str | bytes], globs: Sequence[str]) -> None:
    """Write files below a directory, then remove the other files that the globs match there.

    All contents are first written to temporary files next to their targets, so that a full disk
    leaves the old files unchanged.

    Args:
        directory: the folder of the files.
        files: name below the directory -> content.
        globs: patterns of former files to remove; directories stay.

    Raises:
        UserError: a file cannot be written; the old files are unchanged.
    """
    contents = {
        directory / name: content.encode() if isinstance(content, str) else content
        for name, content in files.items()
    }
    temporaries: dict[Path, Path] = {}
    try:
        for path, content in contents.items():
            _require_place(path, directory)
            path.parent.mkdir(parents=True, exist_ok=True)
            temporaries[path] = path.with_name(f".{path.name}.{os.getpid()}.tmp")
            temporaries[path].write_bytes(content)
        _put(temporaries)
        for path in {path for glob in globs for path in directory.glob(glob)} - set(contents):
            if path.is_file() or path.is_symlink():
                path.unlink()
    except OSError as error:
        raise UserError(_words(error, Path(error.filename2 or path))) from None
    finally:
        for temporary in temporaries.values():
            temporary.unlink(missing_ok=True)


def _require_place(path: Path, directory: Path) -> None:
    """Raise UserError if the path is a directory or leads through a symbolic link."""
    for place in (path, *(up for up in path.parents if directory in up.parents)):
        if place.is_symlink():
            raise UserError(f"{place} is a symbolic link; remove it: lmperf report writes there")
    if path.is_dir():
        raise UserError(f"{path} is a directory; remove it: lmperf report writes a file there")


def _put(temporaries: Mapping[Path, Path]) -> None:
    """Move every temporary file to its target; after an error restore the former files."""
    replaced: dict[Path, bytes | None] = {}
    try:
        for path, temporary in temporaries.items():
            old = path.read_bytes() if path.exists() else None
            os.replace(temporary, path)
            replaced[path] = old
    except OSError:
        for path, old in replaced.items():
            _restore(path, temporaries[path], old)
        raise


def _restore(path: Path, temporary: Path, old: bytes | None) -> None:
    if old is None:
        path.unlink()
    else:
        temporary.write_bytes(old)
        os.replace(temporary, path)


def _words(error: OSError, path: Path) -> str:
    why = (error.strerror or str(error)).lower()
    return f"{path}: cannot be written: {why}; fix this and run lmperf report again"
