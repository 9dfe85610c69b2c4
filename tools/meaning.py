"""What a module's code means, whatever its names are: to prove that a move changed nothing.

`meaning_of` follows a module as Python would: to every definition that its own definitions mention,
in whichever module of its package that is, and to what each module does when it is imported. Two
trees mean the same when, with the modules and definitions of the old one renamed, the same
definitions are reached and each has the same syntax tree. Import statements do not count, only what
the names that they bind stand for; nor does a definition that nothing reaches. What code learns
from its own place (`__file__`) is not seen.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from lmperf.evidence.keys import absolute_name, is_core, without_words

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_MAIN = "Compare(left=Name(id='__name__'"


@dataclass
class Module:
    """A parsed module: what it defines, what it does when imported, what its names stand for."""

    name: str
    definitions: dict[str, list[ast.stmt]] = field(default_factory=dict)
    effects: list[ast.stmt] = field(default_factory=list)
    main: list[ast.stmt] = field(default_factory=list)
    imported: dict[str, set[str]] = field(default_factory=dict)
    assigned: set[str] = field(default_factory=set)


class Tree:
    """The source below a directory.

    Args:
        root: directory that holds the package.
        package: top-level package; only what is inside it is followed.
        renamed: `package.module` or `package.module:definition` -> its name in the other tree.
    """

    def __init__(self, root: Path, package: str, renamed: Mapping[str, str] | None = None):
        self.root, self.package, self.renamed = root, package, dict(renamed or {})
        self._modules: dict[str, Module] = {}

    def new_name(self, name: str) -> str:
        """What `package.module` or `package.module:definition` is called in the other tree."""
        if name in self.renamed:
            return self.renamed[name]
        module, colon, definition = name.partition(":")
        return self.renamed.get(module, module) + colon + definition

    @cached_property
    def _paths(self) -> dict[str, str]:
        """Where each module is, below the package, in this tree and in the other."""
        base = self.root / self.package
        places = (path.relative_to(base).as_posix() for path in base.rglob("*.py"))
        return {place: self._new_place(place) for place in places}

    def _new_place(self, place: str) -> str:
        module = ".".join([self.package, *place.removesuffix(".py").split("/")])
        new = self.new_name(module)
        return place if new == module else "/".join(new.split(".")[1:]) + ".py"

    def path_of(self, module: str) -> Path | None:
        base = self.root.joinpath(*module.split("."))
        candidates = (base / "__init__.py", base.with_name(base.name + ".py"))
        return next((path for path in candidates if path.is_file()), None)

    def has(self, module: str) -> bool:
        """Whether this is a module of the package that is to be followed."""
        inside = module == self.package or module.startswith(self.package + ".")
        return inside and not is_core(module) and self.path_of(module) is not None

    def module(self, name: str) -> Module:
        if name not in self._modules:
            self._modules[name] = _parsed(name, self.path_of(name))
        return self._modules[name]

    def targets(self, module: Module, name: str) -> set[str]:
        """What a name stands for in a module: `module:definition`, or a module; none if local."""
        known = name in module.definitions or name in module.assigned
        own = {f"{module.name}:{name}"} if known else set()
        return own.union(*(self._final(target) for target in module.imported.get(name, ())))

    def attribute(self, module: str, name: str) -> set[str]:
        """What `module.name` stands for."""
        if not self.has(module):
            return {f"{module}:{name}"}
        found = self.targets(self.module(module), name)
        if not found and self.path_of(f"{module}.{name}") is not None:
            return {f"{module}.{name}"}
        return found or {f"{module}:{name}"}

    def _final(self, target: str) -> set[str]:
        module, colon, name = target.partition(":")
        return self.attribute(module, name) if colon else {module}

    def string(self, text: str) -> tuple[str, str | None]:
        """A string as the other tree has it, and the module or definition that it names."""
        if text in self._paths:
            return self._paths[text], None
        module, colon, _ = text.partition(":")
        if module == text and "." not in text:
            return text, None
        if not self.has(module):
            return text, None
        return self.new_name(text), text if colon else f"{module}:*"


def _parsed(name: str, path: Path) -> Module:
    tree = without_words(ast.parse(path.read_text()))
    module = Module(name)
    for statement in tree.body:
        _place(module, statement)
    for node in ast.walk(tree):
        for local, target in _bound(node, name, path.name == "__init__.py"):
            module.imported.setdefault(local, set()).add(target)
    return module


def _place(module: Module, statement: ast.stmt) -> None:
    """A plain definition counts when it is reached; whatever else there is runs on import."""
    if isinstance(statement, _DEFINITIONS) and not statement.decorator_list:
        module.definitions.setdefault(statement.name, []).append(statement)
    elif isinstance(statement, _DEFINITIONS):
        module.assigned.add(statement.name)
        module.effects.append(statement)
    elif isinstance(statement, ast.If) and ast.dump(statement.test).startswith(_MAIN):
        module.main.append(statement)
    elif isinstance(statement, ast.Assign) and _is_constant(statement):
        for target in statement.targets:
            module.definitions.setdefault(target.id, []).append(statement)
    else:
        stored = (n for n in ast.walk(statement) if isinstance(n, ast.Name))
        module.assigned |= {n.id for n in stored if isinstance(n.ctx, ast.Store)}
        module.effects.append(statement)


def _is_constant(statement: ast.Assign) -> bool:
    runs = (ast.Call, ast.Await, ast.NamedExpr, ast.ListComp, ast.GeneratorExp, ast.DictComp)
    plain = all(isinstance(target, ast.Name) for target in statement.targets)
    return plain and not any(isinstance(node, runs) for node in ast.walk(statement.value))


def _bound(node: ast.AST, module: str, is_package: bool) -> Iterator[tuple[str, str]]:
    """(local name, what it stands for) of an import statement."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            top = alias.name.partition(".")[0]
            yield (alias.asname, alias.name) if alias.asname else (top, top)
    elif isinstance(node, ast.ImportFrom):
        base = absolute_name(node, module, is_package)
        for alias in node.names:
            yield alias.asname or alias.name, f"{base}:{alias.name}"


def meaning_of(tree: Tree, module: str) -> dict[str, str]:
    """Syntax trees of all that a module reaches, by their names in the other tree."""
    return _Walk(tree).from_module(module)


class _Walk:
    def __init__(self, tree: Tree):
        self._tree = tree
        self._said: dict[str, str] = {}
        self._seen: set[str] = set()
        self._waiting: list[str] = []

    def from_module(self, module: str) -> dict[str, str]:
        self._waiting = [f"{module}:*"]
        while self._waiting:
            name = self._waiting.pop()
            if name not in self._seen and self._tree.has(name.partition(":")[0]):
                self._seen.add(name)
                self._reach(*name.partition(":")[::2])
        return self._said

    def _reach(self, name: str, definition: str) -> None:
        module = self._tree.module(name)
        if not definition:
            self._waiting.append(name.rpartition(".")[0])  # importing a.b.c runs a and a.b, too
            self._say(module, name, module.effects)
            return
        self._waiting.append(name)
        if definition in module.definitions:
            self._say(module, f"{name}:{definition}", module.definitions[definition])
        elif definition not in module.assigned:  # all of it, or what only running it would tell
            self._waiting += [f"{name}:{known}" for known in module.definitions]
            self._say(module, f"{name}:*", module.main)

    def _say(self, module: Module, name: str, statements: Iterable[ast.stmt]) -> None:
        said = "".join(self._canonical(statement, module, top=True) for statement in statements)
        if said:
            self._said[self._tree.new_name(name)] = said

    def _canonical(self, node, module: Module, top: bool = False) -> str:
        if isinstance(node, list):
            return "[" + ",".join(self._canonical(item, module) for item in node) + "]"
        if isinstance(node, ast.Import | ast.ImportFrom):
            self._load(node, module)
            return ""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text, named = self._tree.string(node.value)
            self._waiting += [named] if named else []
            return f"Constant({text!r})"
        if isinstance(node, ast.Name | ast.Attribute):
            targets = self._targets(node, module)
            if targets:
                self._waiting += targets
                return f"Target({sorted(map(self._tree.new_name, targets))})"
        if not isinstance(node, ast.AST):
            return repr(node)
        left_out = {"ctx", "name"} if top and isinstance(node, _DEFINITIONS) else {"ctx"}
        fields = (
            f"{field}={self._canonical(value, module)}"
            for field, value in ast.iter_fields(node)
            if field not in left_out and value not in (None, [])
        )
        return f"{type(node).__name__}({','.join(fields)})"

    def _load(self, node: ast.Import | ast.ImportFrom, module: Module) -> None:
        for alias in node.names:
            names = [alias.name]
            if isinstance(node, ast.ImportFrom):
                is_package = self._tree.path_of(module.name).name == "__init__.py"
                base = absolute_name(node, module.name, is_package)
                names = [base, f"{base}.{alias.name}"]
            self._waiting += names

    def _targets(self, node: ast.expr, module: Module) -> set[str]:
        """What a name, or an attribute of a module, stands for; none for anything else."""
        if isinstance(node, ast.Name):
            return self._tree.targets(module, node.id)
        if not isinstance(node, ast.Attribute):
            return set()
        bases = self._targets(node.value, module)
        if not bases or any(":" in base for base in bases):
            return set()
        return set().union(*(self._tree.attribute(base, node.attr) for base in bases))
