"""The syntax of a module, read without importing it: what it defines, imports and refers to.

`lmperf.evidence.closure` follows these references from module to module.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from lmperf.sources import Place

PURE_DECORATORS = frozenset(
    {
        *("cache", "cached_property", "classmethod", "constexpr_function", "contextmanager"),
        *("dataclass", "jit", "lru_cache", "no_grad", "once_differentiable", "overload"),
        *("property", "staticmethod", "total_ordering", "wraps"),
    }
)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
WHOLE = "*"
# Most levels of nodes and lists of a syntax tree; hand-written code has 30 or fewer.
LEVELS = 150
ENTRY = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*|lmperf\.[\w.]+")


def digest(text: str) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of a text."""
    return hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()[:16]


def canonical(node: ast.AST | list | object, levels: int = LEVELS) -> str:
    """Return a syntax tree as text without docstrings, the same under every Python version.

    `ast.dump` would differ between Python versions: newer ones have additional empty fields.

    Raises:
        RecursionError: the tree has more levels of nodes and lists. The interpreter's own limit
            would depend on the caller and on what is imported, and so would the digest.
    """
    if not levels:
        raise RecursionError("the code is nested too deeply")
    if isinstance(node, ast.AST):
        fields = ((name, value) for name, value in _fields(node) if value not in (None, []))
        inner = ",".join(
            f"{name}={canonical(value, levels - 1)}" for name, value in fields if name != "ctx"
        )
        return f"{type(node).__name__}({inner})"
    if isinstance(node, list):
        return "[" + ",".join(canonical(each, levels - 1) for each in node) + "]"
    return repr(node)


def _fields(node: ast.AST) -> Iterator[tuple[str, object]]:
    documented = isinstance(
        node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    )
    for name, value in ast.iter_fields(node):
        if name == "body" and documented and ast.get_docstring(node, clean=False) is not None:
            yield name, value[1:]
        else:
            yield name, value


@dataclass(frozen=True, order=True)
class Symbol:
    """A part of a module's code.

    name: a top-level name; "*": the whole module; "": the statements with effects that run when the
    module is imported.
    """

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}:{self.name}" if self.name not in ("", WHOLE) else self.module


@dataclass
class Module:
    """The top level of a parsed module.

    Attributes:
        definitions: name -> the statements that bind it.
        imports: name -> the symbol that an import binds it to.
        imported: names of all imported modules.
        effects: statements that do more on import than define a name.
    """

    name: str
    place: Place
    tree: ast.Module
    definitions: dict[str, list[ast.stmt]] = field(default_factory=dict)
    imports: dict[str, Symbol] = field(default_factory=dict)
    imported: set[str] = field(default_factory=set)
    effects: list[ast.stmt] = field(default_factory=list)

    def __post_init__(self) -> None:
        for statement in self.tree.body:
            self._add(statement)

    @property
    def is_package(self) -> bool:
        return bool(self.place.folders)

    def _add(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            bindings, modules = self.bindings([statement])
            self.imports |= bindings
            self.imported |= modules
        elif not _never_runs(statement):
            names = bound_names(statement)
            for name in names:
                self.definitions.setdefault(name, []).append(statement)
            if not names or not _only_defines(statement):
                self.effects.append(statement)

    def bindings(self, statements: Iterable[ast.AST]) -> tuple[dict[str, Symbol], set[str]]:
        """Return (name -> symbol that it is bound to, imported modules) for import statements."""
        symbols: dict[str, Symbol] = {}
        modules: set[str] = set()
        for node in statements:
            for alias in node.names:
                if isinstance(node, ast.Import):
                    modules.add(alias.name)
                    target = alias.name if alias.asname else alias.name.partition(".")[0]
                    symbols[alias.asname or target] = Symbol(target, WHOLE)
                else:
                    base = self.absolute(node)
                    modules.add(base)
                    symbols[alias.asname or alias.name] = Symbol(base, alias.name)
        return symbols, modules

    def absolute(self, node: ast.ImportFrom) -> str:
        """The absolute name of the module in a `from ... import`, relative or not."""
        if not node.level:
            return node.module or ""
        parts = self.name.split(".") if self.is_package else self.name.split(".")[:-1]
        parts = parts[: len(parts) - node.level + 1]
        return ".".join([*parts, *([node.module] if node.module else [])])


def _never_runs(statement: ast.stmt) -> bool:
    """Whether importing a module skips a statement.

    True for docstrings, `if TYPE_CHECKING:` and `if __name__ == "__main__":`.
    """
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    if not isinstance(statement, ast.If):
        return False
    names = {node.id for node in ast.walk(statement.test) if isinstance(node, ast.Name)}
    return bool(names & {"TYPE_CHECKING", "__name__"})


def bound_names(statement: ast.stmt) -> set[str]:
    if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
        return {statement.name}
    nodes = list(ast.walk(statement))
    # The variable of a comprehension is local to the comprehension.
    local = {id(n) for c in nodes if isinstance(c, ast.comprehension) for n in ast.walk(c.target)}
    stored = (n for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    names = {node.id for node in stored if id(node) not in local}
    if isinstance(statement, ast.If | ast.Try | ast.With):
        inner = (alias for node in ast.walk(statement) for alias in getattr(node, "names", ()))
        names |= {alias.asname or alias.name for alias in inner if isinstance(alias, ast.alias)}
        defined = (n for n in ast.walk(statement) if isinstance(n, (*FUNCTIONS, ast.ClassDef)))
        names |= {node.name for node in defined}
    return names


def _only_defines(statement: ast.stmt) -> bool:
    if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
        return all(_last_name(part) in PURE_DECORATORS for part in statement.decorator_list)
    if isinstance(statement, ast.Assign):
        return all(isinstance(part, ast.Name | ast.Tuple) for part in statement.targets)
    return isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)


def _last_name(node: ast.expr) -> str:
    """The last part of a dotted name or of a call's function: `jit` for `triton.jit(...)`."""
    if isinstance(node, ast.Call):
        node = node.func
    return getattr(node, "attr", getattr(node, "id", ""))


class References:
    """The names, imports and strings that some statements refer to.

    Attributes:
        chains: dotted names, as tuples of their parts.
        imports: import statements, in the order of the source.
        strings: string literals that may name an entry or a module of lmperf.
        modules: string literals passed to `import_module` or `__import__`.
    """

    def __init__(self, statements: Iterable[ast.AST]) -> None:
        # An ast.NodeVisitor would recurse too deeply in long expressions.
        nodes = [node for statement in statements for node in ast.walk(statement)]
        imports = (node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom))
        self.imports = sorted(imports, key=lambda node: (node.lineno, node.col_offset))
        self.chains = _chains(nodes)
        self.strings = set(filter(ENTRY.fullmatch, _texts(nodes)))
        calls = (node for node in nodes if isinstance(node, ast.Call))
        loading = (call for call in calls if _last_name(call) in ("import_module", "__import__"))
        self.modules = {text for call in loading for text in _texts(call.args[:1])}


def _chains(nodes: Iterable[ast.AST]) -> set[tuple[str, ...]]:
    """The dotted names among all nodes of some statements, each as long as it is written."""
    names = [node for node in nodes if isinstance(node, ast.Name | ast.Attribute)]
    parts = {id(node.value) for node in names if isinstance(node, ast.Attribute)}
    chains: set[tuple[str, ...]] = set()
    for node in names:
        attributes: list[str] = []
        inner: ast.expr = node
        while isinstance(inner, ast.Attribute):
            attributes.append(inner.attr)
            inner = inner.value
        if id(node) not in parts and isinstance(inner, ast.Name):
            chains.add((inner.id, *reversed(attributes)))
    return chains


def _texts(nodes: Iterable[ast.AST]) -> Iterator[str]:
    constants = (node.value for node in nodes if isinstance(node, ast.Constant))
    return (value for value in constants if isinstance(value, str))
