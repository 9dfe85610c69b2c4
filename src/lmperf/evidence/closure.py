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
  loops, decorators other than those of `PURE_DECORATORS`) are dependencies of all code that
  imports the module.
- Some code is left out, because the key of a row covers it in another way (`COUNTED_ELSEWHERE`,
  `COUNTED_BY_VALUE`), or because it changes no number (`DECLARATIONS`).

The code is parsed, never imported. Comments, docstrings and formatting change no digest, and
every supported Python version computes the same ones.
"""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from lmperf.errors import UserError
from lmperf.evidence.syntax import WHOLE, Module, References, Symbol, bound_names, canonical, digest
from lmperf.sources import find, tree_of

# Modules left out of digests: keys cover them by `METHOD_VERSION`, or they change no number.
COUNTED_ELSEWHERE = (
    "lmperf.benchmark",
    "lmperf.errors",
    "lmperf.gate",
    "lmperf.measuring",
    "lmperf.names",
    "lmperf.own",
    "lmperf.statistics",
)
# Tables left out of digests: the key of a row holds the table entry that its cell uses.
COUNTED_BY_VALUE = frozenset({("lmperf.dtypes", "DTYPES"), ("lmperf.transformer.sizes", "SIZES")})
# Attributes left out of the classes of benchmarks: which cells there are, and how they are shown.
DECLARATIONS = frozenset(
    {
        *("axes", "check", "columns", "grids", "head", "implementations", "least_devices"),
        *("not_applicable", "order", "phases_of", "repeated", "results", "section"),
        *("stated", "takes", "title", "trials"),
    }
)
# Packages left out of digests: the environment in the key of a row holds their versions.
_IN_ENVIRONMENT = frozenset({"torch", "triton"})


@dataclass(frozen=True)
class Closure:
    """The code that an entry reaches.

    Attributes:
        digests: `module:name` -> digest of that symbol's code; for a user's code, `module` ->
            digest.
    """

    digests: dict[str, str]

    @cached_property
    def fingerprint(self) -> str:
        """One digest of all code that the entry reaches."""
        return digest("\n".join(f"{name} {code}" for name, code in self.digests.items()))


@dataclass(frozen=True)
class _Node:
    """The digest of a symbol's code, and the symbols that it directly refers to."""

    code: str
    targets: tuple[Symbol, ...]


class Code:
    """Finds and parses source code, each file once, and follows what it refers to."""

    def __init__(self) -> None:
        self._modules: dict[tuple, Module | None] = {}
        self._nodes: dict[tuple, _Node | None] = {}
        self._closures: dict[tuple, Closure] = {}

    def closure(self, entry: str) -> Closure:
        """Return the digests of all code that an entry reaches.

        Raises:
            UserError: a file of lmperf is not valid Python.
        """
        key = (entry, _search_path(entry))
        if key not in self._closures:
            self._closures[key] = self._reached(entry)
        return self._closures[key]

    def _reached(self, entry: str) -> Closure:
        module, _, name = entry.partition(":")
        is_ours = module.partition(".")[0] == "lmperf"
        nodes: dict[Symbol, _Node] = {}
        waiting = [Symbol(module, (is_ours and name) or WHOLE)]
        while waiting:
            symbol = waiting.pop()
            if symbol in nodes:
                continue
            if (node := self._node(symbol)) is not None:
                nodes[symbol] = node
                waiting += node.targets
        codes = {str(symbol): node.code for symbol, node in sorted(nodes.items())}
        return Closure({symbol: code for symbol, code in codes.items() if code})

    def _node(self, symbol: Symbol) -> _Node | None:
        """Return the digest and the dependencies of a symbol; None if its module has no source."""
        key = (symbol, _search_path(symbol.module))
        if key not in self._nodes:
            module = self._module(symbol.module)
            self._nodes[key] = self._node_in(module, symbol) if module else None
        return self._nodes[key]

    def _node_in(self, module: Module, symbol: Symbol) -> _Node:
        statements = self._statements(module, symbol.name)
        if symbol.module.startswith("lmperf.benchmarks."):
            statements = [_without_declarations(statement) for statement in statements]
        references = self._references(module, symbol, statements)
        targets = (self._target(reference, symbol.module) for reference in references)
        code = _digest_of(statements, module) if statements else ""
        return _Node(code, tuple(filter(None, targets)))

    def _statements(self, module: Module, name: str) -> list[ast.stmt]:
        if name == WHOLE:
            return module.tree.body
        if not name:
            return module.effects
        return module.definitions.get(name, [])

    def _references(
        self, module: Module, symbol: Symbol, statements: list[ast.stmt]
    ) -> set[Symbol]:
        """The symbols that the statements of a module directly refer to."""
        names = References(statements)
        local, imported = module.bindings(names.imports)
        bound = {**module.imports, **local}
        symbols = {Symbol(module_name, "") for module_name in imported}
        if symbol.name in ("", WHOLE):
            symbols |= {Symbol(module_name, "") for module_name in module.imported}
        symbols |= {Symbol(name, "") for name in (*_parents(module.name), module.name)}
        if symbol.name in bound and (symbol.name in local or not statements):
            symbols.add(bound[symbol.name])
        if not module.name.startswith("lmperf."):
            symbols |= set(local.values())
        symbols |= {Symbol(module_name, WHOLE) for module_name in names.modules}
        for text in names.strings:
            where, _, what = text.partition(":")
            symbols.add(Symbol(where, what.partition(".")[0] or WHOLE))
        for root, *attributes in names.chains:
            if root in bound:
                symbols.add(self._resolve(bound[root], attributes))
            elif root in module.definitions:
                symbols.add(Symbol(module.name, root))
        return symbols - {symbol}

    def _resolve(self, symbol: Symbol, attributes: list[str]) -> Symbol:
        """The symbol that `name.attribute.attribute...` refers to, for an imported name."""
        module, name = symbol.module, symbol.name
        if name not in ("", WHOLE) and self._is_module(f"{module}.{name}"):
            module, name = f"{module}.{name}", WHOLE
        for attribute in attributes if name == WHOLE else ():
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
        return resolved if is_ours else Symbol(resolved.module, WHOLE)

    def _follows(self, module: str, source: str) -> bool:
        top = module.partition(".")[0]
        if top == "lmperf":
            return module != "lmperf" and not is_counted_elsewhere(module)
        if source.partition(".")[0] == "lmperf" or top in _IN_ENVIRONMENT:
            return False
        place = find(module)
        return place is not None and (top == source.partition(".")[0] or not place.is_environment)

    def _is_module(self, name: str) -> bool:
        place = find(name)
        return place is not None and (place.source is not None or bool(place.folders))

    def _module(self, name: str) -> Module | None:
        key = (name, _search_path(name))
        if key not in self._modules:
            place = find(name)
            source = place.source if place else None
            tree = _tree(name, source) if source else None
            self._modules[key] = Module(name, place, tree) if tree else None
        return self._modules[key]


def _digest_of(statements: list[ast.stmt], module: Module) -> str:
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


def _without_declarations(statement: ast.stmt) -> ast.stmt:
    """Return a class without its DECLARATIONS, and other statements as they are."""
    if not isinstance(statement, ast.ClassDef):
        return statement
    body = [
        inner
        for inner in statement.body
        if not bound_names(inner) or bound_names(inner) - DECLARATIONS
    ]
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
    return any(
        module == counted or module.startswith(f"{counted}.") for counted in COUNTED_ELSEWHERE
    )


@cache
def _running() -> Code:
    return Code()


def closure_of(entry: str) -> Closure:
    """Return the code that an entry reaches today; see `Code.closure`."""
    return _running().closure(entry)
