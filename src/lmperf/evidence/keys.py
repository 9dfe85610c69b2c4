"""Keys of rows, and the digests of code that they hold.

A digest of code is equal for a comment, a docstring or a reformatting, else not. A benchmark's
fingerprint covers its module and everything that it imports, transitively, inside its own package.
The measuring core is left out: it counts by `METHOD_VERSION`, which a test holds against
`method_digest`, so that a change there is declared either harmless or a new version.

The digests are the same under every supported Python: a render elsewhere must find the same keys.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from lmperf.benchmark import Own
from lmperf.evidence.store import text_of

METHOD_VERSION = 3

_CORE = ("lmperf.benchmark", "lmperf.names", "lmperf.measuring", "lmperf.statistics")
_METHOD_MODULES = (
    "lmperf.statistics",
    *(
        f"lmperf.measuring.{name}"
        for name in (
            *("clock", "clock_settings", "faults", "footprint", "group", "guards", "memory"),
            *("prepared", "reference", "rounds", "serving", "state"),
        )
    ),
)
# Which cells there are, and how they are shown, changes no number of a cell.
_DECLARATIONS = {"title", "grids", "columns", "section", "order", "stated", "not_applicable"}


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@cache
def source_digest(source: str) -> str:
    """Digest of a module's syntax tree, without docstrings and declarations of cells and words."""
    return digest(_canonical(without_words(ast.parse(source))))


def without_words(tree: ast.Module) -> ast.Module:
    """The tree, changed in place: no docstrings, and nothing that changes no number of a cell."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:]
        if isinstance(node, ast.ClassDef):
            node.body = [statement for statement in node.body if not _is_declaration(statement)]
        # What of the core is named here: its code counts by the version of the method.
        node.body = [statement for statement in node.body if not _imports_core(statement)]
    return tree


def _imports_core(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and is_core(statement.module or "")


def _is_declaration(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.FunctionDef):
        return statement.name in _DECLARATIONS
    return isinstance(statement, ast.Assign) and all(
        isinstance(target, ast.Name) and target.id in _DECLARATIONS for target in statement.targets
    )


def _canonical(node) -> str:
    # ast.dump differs between Python versions, by fields that are empty in the older ones.
    if isinstance(node, ast.AST):
        fields = ((name, value) for name, value in ast.iter_fields(node) if value not in (None, []))
        inner = ",".join(f"{name}={_canonical(value)}" for name, value in fields if name != "ctx")
        return f"{type(node).__name__}({inner})"
    if isinstance(node, list):
        return "[" + ",".join(map(_canonical, node)) + "]"
    return repr(node)


@cache
def _source_of(module: str) -> Path | None:
    """The file of a module, found without importing its parents (which might import torch)."""
    top, *inner = module.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None:
        return None
    if not inner:
        return Path(spec.origin) if spec.origin.endswith(".py") else None
    base = Path(spec.origin).parent.joinpath(*inner)
    candidates = (base / "__init__.py", base.with_name(base.name + ".py"))
    return next((path for path in candidates if path.is_file()), None)


def _imported(tree: ast.Module, module: str, is_package: bool, package: str) -> set[str]:
    """Modules of `package` that a syntax tree imports, at any depth, by any form of import."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = absolute_name(node, module, is_package)
            found |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and ":" in node.value:
            found.add(node.value.partition(":")[0])  # "package.module:function" names an import
    inside = {name for name in found if name == package or name.startswith(package + ".")}
    return {name for name in inside if _source_of(name) is not None}


def absolute_name(node: ast.ImportFrom, module: str, is_package: bool) -> str:
    """The module that a `from ... import` in `module` names, relative or not."""
    if not node.level:
        return node.module or ""
    parts = module.split(".") if is_package else module.split(".")[:-1]
    parts = parts[: len(parts) - node.level + 1]
    return ".".join([*parts, *([node.module] if node.module else [])])


def closure(module: str) -> dict[str, Path]:
    """The module and all that it imports inside its own top-level package, the core left out."""
    package = module.partition(".")[0]
    found: dict[str, Path] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        path = _source_of(name)
        if path is None or name in found or is_core(name):
            continue
        found[name] = path
        waiting += _imports_of(name, path, package)
    return dict(sorted(found.items()))


def is_core(name: str) -> bool:
    """Whether a module counts by the version of the method, and not in fingerprints."""
    return name == "lmperf" or any(name == core or name.startswith(core + ".") for core in _CORE)


@cache
def _imports_of(name: str, path: Path, package: str) -> list[str]:
    tree = ast.parse(path.read_text())
    imported = _imported(tree, name, path.name == "__init__.py", package)
    # Importing a.b.c runs a/__init__ and a.b/__init__ too.
    parents = {name.rpartition(".")[0] for name in imported | {name}} - {""}
    return sorted(imported | parents)


@cache
def _digest_of(path: Path) -> str:
    return source_digest(path.read_text())


@cache
def code_fingerprint(module: str) -> str:
    """Digest of everything in the module's package that can change what it computes."""
    return digest("\n".join(f"{name} {_digest_of(path)}" for name, path in closure(module).items()))


def row_key(
    stem: str,
    columns: Mapping[str, object],
    axes: Iterable[str],
    environment: str,
    own: Mapping[str, Own],
) -> str:
    """The key that a row with these columns has, if it is measured by today's code.

    `own` holds the user's implementations of this benchmark by name.
    """
    code = code_fingerprint(f"lmperf.benchmarks.{stem}")
    return row_key_of(code, stem, columns, axes, environment, own)


def row_key_of(
    fingerprint: str,
    stem: str,
    columns: Mapping[str, object],
    axes: Iterable[str],
    environment: str,
    own: Mapping[str, Own],
) -> str:
    """The key of a row that was measured by a benchmark's code of this fingerprint."""
    implementation = str(columns["implementation"])
    code = [fingerprint, METHOD_VERSION]
    if implementation in own:
        declared = own[implementation]
        code += [code_fingerprint(declared.module), declared.use, declared.numerics]
    named = {axis: text_of(columns[axis]) for axis in axes}
    return digest(
        json.dumps(
            [stem, named, implementation, columns["phase"], code, environment], sort_keys=True
        )
    )


def method_digest() -> str:
    """Digest of the modules that decide how a number is taken."""
    return digest("\n".join(f"{name} {_digest_of(_source_of(name))}" for name in _METHOD_MODULES))
