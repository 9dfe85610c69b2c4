"""Write rendered files; a full disk changes none."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from errno import EISDIR
from pathlib import Path

from lmperf.errors import UserError


def replace_files(folder: Path, files: Mapping[str, str | bytes], globs: Iterable[str]) -> None:
    """Write files below a folder, then remove the other files that the globs match there.

    All contents are first written next to their targets, so that a full disk changes no file.

    files: name below the folder -> content. globs: patterns of files of an earlier call.

    Raises:
        UserError: a file cannot be written.
    """
    new: dict[Path, Path] = {}
    path = folder
    try:
        for name, content in files.items():
            path = folder / name
            if path.is_dir():
                raise IsADirectoryError(EISDIR, os.strerror(EISDIR))
            path.parent.mkdir(parents=True, exist_ok=True)
            new[path] = path.with_name(f".{path.name}.{os.getpid()}.tmp")
            new[path].write_bytes(content.encode() if isinstance(content, str) else content)
        for path, temporary in new.items():
            os.replace(temporary, path)
        for path in {path for glob in globs for path in folder.glob(glob)}.difference(new):
            if path.is_file():
                path.unlink()
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise UserError(f"{path}: cannot be written: {why}; fix this and run it again") from None
    finally:
        for temporary in new.values():
            temporary.unlink(missing_ok=True)
