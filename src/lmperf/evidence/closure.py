"""Find the code that an entry point can reach, and compute digests of that code.

An entry is `package.module:name` or `package.module`. Inside lmperf, code is followed symbol by
symbol: a function depends on the functions, classes and constants that it names, wherever they are
defined, and on what these depend on. Other functions of the same module are not part of the digest.
A user's module is followed as a whole, with every module that it imports.

Three rules decide what a symbol depends on:

- Names are resolved by the imports of the module and of the function. Strings that hold
  `package.module:name`, or the name of a module of lmperf, count as imports: implementations and
  child processes are declared by them.
- Statements that run when a module is imported and do more than define a name (registrations,
  loops, decorators other than those of `_PURE_DECORATORS`) are dependencies of all code that
  imports the module.
- Some code is left out, because the key of a row covers it in another way (`COUNTED_ELSEWHERE`,
  `COUNTED_BY_VALUE`).

The code is parsed, never imported. Comments, docstrings and formatting change no digest, and
every supported Python version computes the same ones.
"""

from __future__ import annotations

import ast
import hashlib
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from lmperf.errors import UserError
from lmperf.sources import Place, find, tree_of

# Modules left out of digests: keys cover them by `METHOD_VERSION`, or they change no number.
COUNTED_ELSEWHERE = (
    "lmperf.benchmark",
    "lmperf.errors",
    "lmperf.gate",
    "lmperf.measuring",
    "lmperf.names",
    "lmperf.statistics",
)
# Tables left out of digests: the key of a row holds the table entry that its cell uses.
COUNTED_BY_VALUE = frozenset({("lmperf.dtypes", "DTYPES"), ("lmperf.transformer.sizes", "SIZES")})
# Packages left out of digests: the environment in the key of a row holds their versions.
_IN_ENVIRONMENT = frozenset({"torch", "triton"})
_PURE_DECORATORS = frozenset(
    {
        *("cache", "cached_property", "classmethod", "constexpr_function", "contextmanager"),
        *("dataclass", "jit", "lru_cache", "no_grad", "once_differentiable", "overload"),
        *("property", "staticmethod", "total_ordering", "wraps"),
    }
)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_WHOLE = "*"
_ENTRY = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*|lmperf\.[\w.]+")


def digest(text: str) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def canonical(node: ast.AST | list | object) -> str:
    """Return a syntax tree as text without docstrings, the same under every Python version.

    `ast.dump` would differ between Python versions: newer ones have additional empty fields.
    """
    if isinstance(node, ast.AST):
        fields = ((name, value) for name, value in _fields(node) if value not in (None, []))
        inner = ",".join(f"{name}={canonical(value)}" for name, value in fields if name != "ctx")
        return f"{type(node).__name__}({inner})"
    if isinstance(node, list):
        return "[" + ",".join(map(canonical, node)) + "]"
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
        return f"{self.module}:{self.name}" if self.name not in ("", _WHOLE) else self.module


@dataclass
class _Module:
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
            names = _bound_names(statement)
            for name in names:
                self.definitions.setdefault(name, []).append(statement)
            if not names or not _only_defines(statement):
                self.effects.append(statement)

    def bindings(self, statements: Iterable[ast.AST]) -> tuple[dict[str, Symbol], set[str]]:
        """Return (name -> symbol that it is bound to, imported modules) for import statements."""
        found: dict[str, Symbol] = {}
        modules: set[str] = set()
        for node in statements:
            for alias in node.names:
                if isinstance(node, ast.Import):
                    modules.add(alias.name)
                    target = alias.name if alias.asname else alias.name.partition(".")[0]
                    found[alias.asname or target] = Symbol(target, _WHOLE)
                else:
                    base = self.absolute(node)
                    modules.add(base)
                    found[alias.asname or alias.name] = Symbol(base, alias.name)
        return found, modules

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


def _bound_names(statement: ast.stmt) -> set[str]:
    if isinstance(statement, (*_FUNCTIONS, ast.ClassDef)):
        return {statement.name}
    nodes = list(ast.walk(statement))
    # The variable of a comprehension is local to the comprehension.
    local = {id(n) for c in nodes if isinstance(c, ast.comprehension) for n in ast.walk(c.target)}
    stored = (n for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    names = {node.id for node in stored if id(node) not in local}
    if isinstance(statement, ast.If | ast.Try | ast.With):
        inner = (one for node in ast.walk(statement) for one in getattr(node, "names", ()))
        names |= {one.asname or one.name for one in inner if isinstance(one, ast.alias)}
        defined = (n for n in ast.walk(statement) if isinstance(n, (*_FUNCTIONS, ast.ClassDef)))
        names |= {node.name for node in defined}
    return names


def _only_defines(statement: ast.stmt) -> bool:
    if isinstance(statement, (*_FUNCTIONS, ast.ClassDef)):
        return all(_last_name(one) in _PURE_DECORATORS for one in statement.decorator_list)
    if isinstance(statement, ast.Assign):
        return all(isinstance(one, ast.Name | ast.Tuple) for one in statement.targets)
    return isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)


def _last_name(node: ast.expr) -> str:
    """The last part of a dotted name or of a call's function: `jit` for `triton.jit(...)`."""
    if isinstance(node, ast.Call):
        node = node.func
    return getattr(node, "attr", getattr(node, "id", ""))


class _References:
    """The names, imports and strings that some statements refer to.

    Attributes:
        chains: dotted names, as tuples of their parts.
        imports: import statements, in the order of the source.
        strings: string literals that may name an entry or a module of lmperf.
        modules: string literals passed to `import_module` or `__import__`.
        computed: calls of these two functions whose argument is not a literal.
    """

    def __init__(self, nodes: Iterable[ast.AST]) -> None:
        self.chains: set[tuple[str, ...]] = set()
        self.imports: list[ast.Import | ast.ImportFrom] = []
        self.strings: set[str] = set()
        self.modules: set[str] = set()
        self.computed: set[str] = set()
        waiting = [*nodes][::-1]
        while waiting:  # an ast.NodeVisitor would recurse too deeply in long expressions
            waiting += self._add(waiting.pop())[::-1]

    def _add(self, node: ast.AST) -> list[ast.AST]:
        """Add the names that a node refers to; return its child nodes that are still to visit."""
        if isinstance(node, ast.Attribute):
            return self._add_chain(node)
        if isinstance(node, ast.Name):
            self.chains.add((node.id,))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            self.imports.append(node)
        elif isinstance(node, ast.Constant):
            if isinstance(node.value, str) and _ENTRY.fullmatch(node.value):
                self.strings.add(node.value)
        elif isinstance(node, ast.Call) and _last_name(node) in ("import_module", "__import__"):
            first = node.args[0] if node.args else None
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                self.modules.add(first.value)
            else:
                self.computed.add(f"{_last_name(node)}(...)")
        return [*ast.iter_child_nodes(node)]

    def _add_chain(self, node: ast.Attribute) -> list[ast.AST]:
        attributes: list[str] = []
        inner: ast.expr = node
        while isinstance(inner, ast.Attribute):
            attributes.append(inner.attr)
            inner = inner.value
        if not isinstance(inner, ast.Name):
            return [inner]
        self.chains.add((inner.id, *reversed(attributes)))
        return []


@dataclass(frozen=True)
class Closure:
    """The code that an entry reaches.

    Attributes:
        digests: `module:name` -> digest of that symbol's code; for a user's code, `module` ->
            digest.
        missing: imports whose source cannot be followed: modules that do not exist here, C
            extensions outside the environment, `import_module` of a computed name.
    """

    digests: dict[str, str]
    missing: frozenset[str]

    @property
    def fingerprint(self) -> str:
        """One digest of all code that the entry reaches."""
        return digest("\n".join(f"{name} {code}" for name, code in self.digests.items()))


@dataclass(frozen=True)
class _Node:
    """The digest of a symbol's code, and the symbols and missing imports it directly refers to."""

    code: str
    targets: tuple[Symbol, ...]
    missing: frozenset[str]


class Code:
    """Finds and parses source code, each file once, and follows what it refers to.

    Args:
        lmperf: the folder of the package lmperf; None: the folder of the running package.
    """

    def __init__(self, lmperf: Path | None = None) -> None:
        self._lmperf = lmperf
        self._modules: dict[tuple, _Module | None] = {}
        self._nodes: dict[tuple, _Node | None] = {}
        self._closures: dict[tuple, Closure] = {}

    def closure(self, entry: str, leave_out: frozenset[str] = frozenset()) -> Closure:
        """Return the digests of all code that an entry reaches.

        leave_out: names of class attributes that are not part of the digests; this holds for
            classes in the entry's own package only.

        Raises:
            UserError: a file of lmperf is not valid Python.
        """
        known = (entry, leave_out, _search_path(entry))
        if known not in self._closures:
            self._closures[known] = self._reached(entry, leave_out)
        return self._closures[known]

    def _reached(self, entry: str, leave_out: frozenset[str]) -> Closure:
        module, _, name = entry.partition(":")
        package = module.rpartition(".")[0]
        is_ours = module.partition(".")[0] == "lmperf"
        nodes: dict[Symbol, _Node] = {}
        waiting = [Symbol(module, (is_ours and name) or _WHOLE)]
        while waiting:
            symbol = waiting.pop()
            if symbol in nodes:
                continue
            within = symbol.module.rpartition(".")[0] == package
            node = self._node(symbol, leave_out if within else frozenset())
            if node is not None:
                nodes[symbol] = node
                waiting += node.targets
        digests = {str(symbol): node.code for symbol, node in sorted(nodes.items()) if node.code}
        return Closure(digests, frozenset().union(*(node.missing for node in nodes.values())))

    def _node(self, symbol: Symbol, leave_out: frozenset[str]) -> _Node | None:
        """Return the digest and the dependencies of a symbol; None if its module has no source."""
        known = (symbol, leave_out, _search_path(symbol.module))
        if known not in self._nodes:
            module = self._module(symbol.module)
            self._nodes[known] = self._node_in(module, symbol, leave_out) if module else None
        return self._nodes[known]

    def _node_in(self, module: _Module, symbol: Symbol, leave_out: frozenset[str]) -> _Node:
        statements = [_without(one, leave_out) for one in self._statements(module, symbol.name)]
        missing: set[str] = set()
        references = self._references(module, symbol, statements, missing)
        targets = (self._target(one, symbol.module) for one in references)
        code = _digest_of(statements, module) if statements else ""
        return _Node(code, tuple(one for one in targets if one), frozenset(missing))

    def _statements(self, module: _Module, name: str) -> list[ast.stmt]:
        if name == _WHOLE:
            return module.tree.body
        if not name:
            return module.effects
        return module.definitions.get(name, [])

    def _references(
        self, module: _Module, symbol: Symbol, statements: list[ast.stmt], missing: set[str]
    ) -> set[Symbol]:
        """The symbols that the statements of a module directly refer to; adds to `missing`."""
        names = _References(statements)
        local, imported = module.bindings(names.imports)
        bound = {**module.imports, **local}
        found = {Symbol(one, "") for one in imported}
        if symbol.name in ("", _WHOLE):
            found |= {Symbol(one, "") for one in module.imported}
        found |= {Symbol(one, "") for one in (*_parents(module.name), module.name)}
        if symbol.name in bound and (symbol.name in local or not statements):
            found.add(bound[symbol.name])
        if not module.name.startswith("lmperf."):
            found |= set(local.values())
            missing |= {f"{one} in {module.name}" for one in names.computed}
            missing |= {one for one in imported | names.modules if self._is_missing(one)}
            # The name after `import` in a `from ... import` may be an extension module.
            inside = (one for one in local.values() if not self._is_missing(one.module))
            parts = (f"{one.module}.{one.name}" for one in inside)
            missing |= {part for part in parts if find(part) and self._is_missing(part)}
        found |= {Symbol(one, _WHOLE) for one in names.modules}
        for text in names.strings:
            where, _, what = text.partition(":")
            found.add(Symbol(where, what.partition(".")[0] or _WHOLE))
        for root, *attributes in names.chains:
            if root in bound:
                found.add(self._resolve(bound[root], attributes))
            elif root in module.definitions:
                found.add(Symbol(module.name, root))
        return found - {symbol}

    def _resolve(self, symbol: Symbol, attributes: list[str]) -> Symbol:
        """The symbol that `name.attribute.attribute...` refers to, for an imported name."""
        module, name = symbol.module, symbol.name
        if name not in ("", _WHOLE) and self._is_module(f"{module}.{name}"):
            module, name = f"{module}.{name}", _WHOLE
        for attribute in attributes if name == _WHOLE else ():
            if not self._is_module(f"{module}.{attribute}"):
                return Symbol(module, attribute)
            module = f"{module}.{attribute}"
        return Symbol(module, name)

    def _target(self, symbol: Symbol, source: str) -> Symbol | None:
        """The symbol to follow for one that the module `source` refers to; None: do not follow it.

        Outside lmperf this is the whole module.
        """
        if (symbol.module, symbol.name) in COUNTED_BY_VALUE:
            return None
        resolved = self._resolve(symbol, [])
        if not self._follows(resolved.module, source) or not self._module(resolved.module):
            return None
        is_ours = resolved.module.partition(".")[0] == "lmperf"
        return resolved if is_ours else Symbol(resolved.module, _WHOLE)

    def _follows(self, module: str, source: str) -> bool:
        top = module.partition(".")[0]
        if top == "lmperf":
            return module != "lmperf" and not is_counted_elsewhere(module)
        if source.partition(".")[0] == "lmperf" or top in _IN_ENVIRONMENT:
            return False
        place = find(module)
        return place is not None and (top == source.partition(".")[0] or not place.is_environment)

    def _is_missing(self, module: str) -> bool:
        top = module.partition(".")[0]
        if top in {"lmperf", *_IN_ENVIRONMENT, *sys.stdlib_module_names}:
            return False
        place = find(module)
        return place is None or (place.is_closed and not place.is_environment)

    def _is_module(self, name: str) -> bool:
        place = self._place(name)
        return place is not None and (place.source is not None or bool(place.folders))

    def _place(self, module: str) -> Place | None:
        if self._lmperf is None or module.partition(".")[0] != "lmperf":
            return find(module)
        path = self._lmperf.joinpath(*module.split(".")[1:])
        if (path / "__init__.py").is_file():
            return Place(path / "__init__.py", (path,))
        file = path.with_suffix(".py")
        return Place(file) if file.is_file() else None

    def _module(self, name: str) -> _Module | None:
        known = (name, _search_path(name))
        if known not in self._modules:
            place = self._place(name)
            source = place.source if place else None
            tree = _tree(name, source) if source else None
            self._modules[known] = _Module(name, place, tree) if tree else None
        return self._modules[known]


def _digest_of(statements: list[ast.stmt], module: _Module) -> str:
    try:
        return digest(canonical(statements))
    except RecursionError:  # the expressions are nested too deeply
        return digest(module.place.file.read_bytes().hex())


def _search_path(module: str) -> tuple[str, ...]:
    """The folders searched for a module; part of the cache keys. Empty for lmperf's modules."""
    return () if module.startswith("lmperf.") else tuple(sys.path)


def _parents(module: str) -> list[str]:
    parts = module.split(".")[:-1]
    return [".".join(parts[:end]) for end in range(1, len(parts) + 1)]


def _without(statement: ast.stmt, names: frozenset[str]) -> ast.stmt:
    """Return a class without the attributes and methods of these names, other statements as is."""
    if not names or not isinstance(statement, ast.ClassDef):
        return statement
    body = [one for one in statement.body if not (_bound_names(one) and _bound_names(one) <= names)]
    kept = {name: getattr(statement, name) for name in statement._fields}
    return ast.copy_location(ast.ClassDef(**{**kept, "body": body}), statement)


def _tree(name: str, path: Path) -> ast.Module:
    """Return the syntax tree of a module.

    If a user's file cannot be parsed, the tree is one constant with the bytes of the file. The rows
    of the implementation report the syntax error.
    """
    try:
        return tree_of(path)
    except UserError:
        if name.startswith("lmperf."):
            raise
        return ast.Module([ast.Assign([], ast.Constant(path.read_bytes()))], [])


def is_counted_elsewhere(module: str) -> bool:
    """Whether a module of lmperf is left out of digests (see `COUNTED_ELSEWHERE`)."""
    return any(module == one or module.startswith(f"{one}.") for one in COUNTED_ELSEWHERE)


@cache
def _running() -> Code:
    return Code()


def fingerprint(entry: str, leave_out: frozenset[str] = frozenset()) -> str:
    """Return one digest of all code that an entry reaches; see `Code.closure`."""
    return _running().closure(entry, leave_out).fingerprint


def digests(entry: str, leave_out: frozenset[str] = frozenset()) -> dict[str, str]:
    """Return `module:name` -> digest for each symbol that an entry reaches; see `Code.closure`."""
    return _running().closure(entry, leave_out).digests


def not_followed(entry: str) -> list[str]:
    """Return the imports of a user's code that no key covers, since their source is not found."""
    return sorted(_running().closure(entry).missing)


def module_digest(module: str) -> str:
    """Return the digest of one module's whole file, without the modules that it imports."""
    place = find(module)
    if place is None or place.source is None:
        raise ValueError(f"no module {module}")
    return digest(canonical(tree_of(place.source)))
