"""Keys of rows, and the digests of code that they hold.

A digest of code is equal for a comment, a docstring or a reformatting, else not. A benchmark's
fingerprint covers its module and everything that it imports, transitively, inside its own package;
that of a user's implementation also what it imports of other code of theirs (`closure`).
The measuring core is left out: it counts by `METHOD_VERSION`, which a test holds against
`method_digest`, so that a change there is declared either harmless or a new version.

The digests are the same under every supported Python: a render elsewhere must find the same keys.
"""

from __future__ import annotations

import ast
import hashlib
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from lmperf.benchmark import Own
from lmperf.errors import UserError
from lmperf.evidence.store import text_of
from lmperf.sources import find, tree_of

METHOD_VERSION = 5

_CORE = ("lmperf.benchmark", "lmperf.gate", "lmperf.names", "lmperf.measuring", "lmperf.statistics")
_METHOD_MODULES = (
    "lmperf.gate",
    "lmperf.statistics",
    *(
        f"lmperf.measuring.{name}"
        for name in (
            *("clock", "clock_settings", "faults", "footprint", "group", "guards", "memory"),
            *("prepared", "reference", "rounds", "seat", "serving", "state"),
        )
    ),
)
# Of what a key holds already: the benchmark's fingerprint, and versions in the environment.
_COVERED = {"lmperf", "torch", "triton"}
# Which cells there are, and how they are shown, changes no number of a cell.
_DECLARATIONS = {"title", "grids", "columns", "section", "order", "stated", "not_applicable"}
_DECLARATIONS |= {"takes"}


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def without_words(tree: ast.Module, declares: bool = True) -> ast.Module:
    """The tree, changed in place: no docstrings, and nothing that changes no number of a cell.

    declares: whether its classes can be benchmarks, whose titles and grids are none of its code.
    """
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:]
        if declares and isinstance(node, ast.ClassDef):
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


def _named(tree: ast.Module, module: str, is_package: bool) -> tuple[set[str], set[str]]:
    """Modules that a tree imports, at any depth and by any form; and names that may be one."""
    modules: set[str] = set()
    perhaps: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = absolute_name(node, module, is_package)
            modules.add(base)
            perhaps |= {f"{base}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and _called(node) in ("import_module", "__import__"):
            modules.add(_text_of(node) or f"{_called(node)}(...) in {module}")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and ":" in node.value:
            perhaps.add(node.value.partition(":")[0])  # "package.module:function" names an import
    return modules, perhaps


def _called(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def _text_of(call: ast.Call) -> str | None:
    first = call.args[0] if call.args else None
    text = first.value if isinstance(first, ast.Constant) else None
    return text if isinstance(text, str) else None


def absolute_name(node: ast.ImportFrom, module: str, is_package: bool) -> str:
    """The module that a `from ... import` in `module` names, relative or not."""
    if not node.level:
        return node.module or ""
    parts = module.split(".") if is_package else module.split(".")[:-1]
    parts = parts[: len(parts) - node.level + 1]
    return ".".join([*parts, *([node.module] if node.module else [])])


def closure(module: str) -> dict[str, Path]:
    """The module and all that it imports, transitively, by name; nothing is imported for it.

    Inside its own top-level package all is followed, but for the core. Of a module of the user's
    own, so is every other import whose Python source lies neither in the standard library nor among
    the installed packages, nor in what a key covers otherwise. That leaves out what has no source
    or no name here (`not_followed`), and files that are read and not imported.
    """
    package = module.partition(".")[0]
    found: dict[str, Path] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        place = find(name)
        if place is None or place.source is None or name in found or is_core(name):
            continue
        found[name] = place.source
        modules, perhaps = _imports_of(name, place.source)
        imported = {one for one in modules | perhaps if _followed(one, package)}
        # Importing a.b.c runs a/__init__ and a.b/__init__ too.
        waiting += imported | {one.rpartition(".")[0] for one in imported | {name}}
    return dict(sorted(found.items()))


def _followed(name: str, package: str) -> bool:
    top = name.partition(".")[0]
    if top != package and (package == "lmperf" or top in _COVERED):
        return False
    place = find(name)
    has_source = place is not None and place.source is not None
    return has_source and (top == package or not place.is_environment)


def not_followed(module: str) -> list[str]:
    """What the module and its closure import, outside the environment, that no key can cover.

    That is a name that leads nowhere here, C extensions, and `import_module` of a computed name.
    """
    names: set[str] = set()
    for name, path in closure(module).items():
        modules, perhaps = _imports_of(name, path)
        places = {one: find(one) for one in modules | perhaps}
        names |= {one for one in modules if places[one] is None}
        closed = {one for one, place in places.items() if place and place.is_closed}
        names |= {one for one in closed if not places[one].is_environment}
    return sorted(name for name in names if name.partition(".")[0] not in sys.stdlib_module_names)


def is_core(name: str) -> bool:
    """Whether a module counts by the version of the method, and not in fingerprints."""
    return name == "lmperf" or any(name == core or name.startswith(core + ".") for core in _CORE)


@cache
def _imports_of(name: str, path: Path) -> tuple[set[str], set[str]]:
    return _named(_tree(name, path), name, path.name == "__init__.py")


def _tree(name: str, path: Path) -> ast.Module:
    """The syntax tree of a module; where a user's own is no Python, one that holds its text: what
    is wrong with it is said where it is imported, in a row of its own."""
    try:
        return tree_of(path)
    except UserError:
        if name.startswith("lmperf."):
            raise
        return ast.Module([ast.Expr(ast.Constant(path.read_bytes()))], [])


@cache
def _digest_of(name: str, path: Path) -> str:
    try:
        return digest(_canonical(without_words(_tree(name, path), name.startswith("lmperf."))))
    except RecursionError:
        return digest(path.read_bytes().hex())  # too deeply nested for more than its text


@cache
def code_fingerprint(module: str) -> str:
    """Digest of the code of the module's closure: what can change what it computes.

    Raises:
        UserError: a file of lmperf's is not Python.
    """
    return digest("\n".join(f"{name} {of_code}" for name, of_code in digests(module).items()))


def digests(module: str) -> dict[str, str]:
    """The digest of each module of the closure's code, by name."""
    return {name: _digest_of(name, path) for name, path in closure(module).items()}


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
    code = code_of(stem, str(columns["implementation"]), own)
    return row_key_of(code, stem, columns, axes, environment)


def code_of(stem: str, implementation: str, own: Mapping[str, Own]) -> list[str | int]:
    """What a key holds of today's code: the benchmark's fingerprint and the version of the method;
    of a user's own implementation its fingerprint and declaration as well."""
    code: list[str | int] = [code_fingerprint(f"lmperf.benchmarks.{stem}"), METHOD_VERSION]
    if implementation in own:
        declared = own[implementation]
        code += [code_fingerprint(declared.module), declared.use, declared.numerics]
        code += [declared.version] if declared.version else []
    return code


def row_key_of(
    code: Sequence[str | int],
    stem: str,
    columns: Mapping[str, object],
    axes: Iterable[str],
    environment: str,
) -> str:
    """The key of a row that was measured by some code (see `code_of`) in some environment."""
    named = {axis: text_of(columns[axis]) for axis in axes}
    implementation, phase = str(columns["implementation"]), columns["phase"]
    held = [stem, named, implementation, phase, list(code), environment]
    return digest(json.dumps(held, sort_keys=True))


def method_digest() -> str:
    """Digest of the modules that decide how a number is taken."""
    files = [(name, find(name).source) for name in _METHOD_MODULES]
    return digest("\n".join(f"{name} {_digest_of(name, path)}" for name, path in files))
