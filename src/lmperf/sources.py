"""Find the source file of a module without importing the module or its parent packages."""

from __future__ import annotations

import ast
import importlib.util
import sys
import sysconfig
from dataclasses import dataclass
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from lmperf.errors import UserError

_INSTALLED = {"site-packages", "dist-packages"}
_STANDARD_LIBRARY = [Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")]


@dataclass(frozen=True)
class Place:
    """The location of a module.

    Attributes:
        file: the file that an import runs; None for namespace packages and built-in modules.
        folders: the folders of the submodules; empty unless the module is a package.
    """

    file: Path | None
    folders: tuple[Path, ...] = ()

    @property
    def source(self) -> Path | None:
        """The Python source file of the module, or None."""
        return self.file if self.file and self.file.suffix == ".py" else None

    @property
    def is_closed(self) -> bool:
        """Whether a module has no readable source: a C extension, an archive or a built-in one."""
        return self.source is None and not self.folders

    @property
    def is_environment(self) -> bool:
        """Whether a module belongs to Python or to a package that is not an editable install."""
        if self.file is None:
            return not self.folders
        path = self.file.resolve()
        within = any(path.is_relative_to(folder) for folder in _STANDARD_LIBRARY)
        return within or not _INSTALLED.isdisjoint(path.parts)


def find(module: str) -> Place | None:
    """Return the location of `package.module` on `sys.path`, or None if there is no such module."""
    return _find(module, tuple(sys.path))


def how_to_install(module: str) -> str:
    """What to do about a module that is not there, in words for a message.

    The words name a folder below the current one that has the module, and never a package of an
    index: one of the same name may be another.
    """
    name = module.partition(".")[0]
    patterns = (f"{parent}{name}{end}" for parent in ("", "*/", "*/*/") for end in ("", ".py"))
    there = sorted(path for pattern in patterns for path in Path().glob(pattern))
    folders = [up for path in there for up in path.parents if _is_project(up)]
    if folders:
        return f"pip install -e {'.' if folders[0] == Path() else f'./{folders[0]}'}"
    if _is_project(Path()):
        return "pip install -e . installs what this repository needs"
    return f"install it, or put it below {Path.cwd()}"


def _is_project(folder: Path) -> bool:
    """Whether a folder can be installed."""
    return any((folder / name).is_file() for name in ("pyproject.toml", "setup.py"))


@cache
def _find(module: str, search_path: tuple[str, ...]) -> Place | None:
    names = module.split(".")
    if not all(name.isidentifier() for name in names):
        return None
    place = _top(names[0])
    for name in names[1:]:
        if place is None or place.is_closed:
            return place
        place = _inside(place.folders, name)
    return place


def _top(name: str) -> Place | None:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    file = Path(spec.origin) if spec.has_location and spec.origin else None
    return Place(file, tuple(map(Path, spec.submodule_search_locations or ())))


def _inside(folders: tuple[Path, ...], name: str) -> Place | None:
    for folder in folders:
        files = (folder / f"{name}{suffix}" for suffix in (*EXTENSION_SUFFIXES, ".py"))
        for file in (folder / name / "__init__.py", *files):
            if file.is_file():
                return Place(file, (file.parent,) if file.name == "__init__.py" else ())
    portions = tuple(folder / name for folder in folders if (folder / name).is_dir())
    return Place(None, portions) if portions else None


def tree_of(path: Path) -> ast.Module:
    """Parse a Python file.

    Raises:
        UserError: the file cannot be read or is not valid Python.
    """
    try:
        return ast.parse(path.read_bytes())
    except SyntaxError as error:
        raise UserError(f"{path}:{error.lineno or 1}: not valid Python: {error.msg}") from None
    except (RecursionError, MemoryError):
        raise UserError(f"{path}: its expressions are nested too deeply to parse") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: not valid Python: {error}") from None
