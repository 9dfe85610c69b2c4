"""Find the implementations of a solution of Stanford's CS336, assignment 2, by its adapters.

`tests/adapters.py` of the course has functions of known names that return a class or wrap a module.
The model, its optimizer and its loss are those of assignment 1, in a package of the repository.
The files are parsed, and a child process imports what is found: see `lmperf.own.check.entries_of`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from lmperf.errors import UserError
from lmperf.own.check import entries_of
from lmperf.own.kinds import KINDS
from lmperf.own.signatures import HOOKS
from lmperf.sources import find, how_to_install, tree_of

# The sizes of buckets, in MB, that the hand-out asks for.
BUCKETS = [1, 10, 100, 1000]
# Function of the adapters -> the kind of implementation, its name here, and its options.
_ADAPTERS: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {
    "get_flashattention_autograd_function_pytorch": ("attention", "flash_pytorch", {}),
    "get_flashattention_autograd_function_triton": ("attention", "flash_triton", {}),
    "get_ddp": ("ddp", "my_ddp", {}),
    "get_ddp_individual_parameters": ("ddp", "individual", {}),
    "get_ddp_bucketed": ("ddp", "buckets", {"bucket_size_mb": BUCKETS}),
    "get_fsdp": ("fsdp", "my_fsdp", {}),
    "get_sharded_optimizer": ("sharded_optimizer", "my_sharded_optimizer", {}),
}
_MODEL = {"vocab_size", "d_model", "num_layers"}  # arguments of its constructor
# Name of a function of assignment 1 -> what becomes of it.
_PARTS = {
    r"cross_entropy(_loss)?": "it is timed as a part of a train step that calls it (--train-step)",
    r"softmax": "it is timed as a part of the model and the attention that call it",
    r"(grad(ient)?_clip(ping)?|clip_grad(ient)?s?(_norm_?)?)": (
        "not measured, since a train step must leave its gradients as they are"
    ),
}


@dataclass(frozen=True)
class Part:
    """A function or class of the repository.

    Attributes:
        entry: `package.module:name`, as the adapters or the repository have it.
        kind: of implementation, as of `lmperf try --as`; empty: it is none.
        name: in the configuration.
        options: parameters in the configuration.
        hooks: the functions beside it in the adapters that are called, too.
        use: the entry to configure, if it is another one.
        fault: why it is left out; empty: it is not.
    """

    entry: str
    kind: str = ""
    name: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    hooks: tuple[str, ...] = ()
    use: str = ""
    fault: str = ""

    @property
    def first_options(self) -> dict[str, Any]:
        """One value of each of its parameters."""
        return {
            name: value[0] if isinstance(value, list) else value
            for name, value in self.options.items()
        }

    @property
    def configured(self) -> Any:
        """The value in the configuration."""
        use = self.use or self.entry
        return {"use": use, **self.options} if self.options else use


def found_in(adapters: str, files: Collection[Path]) -> list[Part]:
    """Return what a repository has of the course's assignment, those that are left out included.

    adapters: the module of the adapters, `tests.adapters`. files: the repository's Python files,
    below the current folder.

    Raises:
        UserError: there is no such module, or it has none of the adapters.
    """
    place = find(adapters)
    if place is None or place.source is None:
        raise UserError(
            f"--course: there is no module {adapters} below {Path.cwd()}; change into the folder"
            " that has it, or name yours as package.module"
        )
    parts = [*_adapters(adapters, tree_of(place.source))]
    if not parts:
        names = ", ".join(_ADAPTERS)
        raise UserError(f"--course: {adapters} has none of the course's functions: {names}")
    parts += _basics(files)
    asked = [part for part in parts if part.kind and not part.fault]
    answered = entries_of(
        [(part.entry, KINDS[part.kind].takes.name, part.kind, part.first_options) for part in asked]
    )
    answers = {part.entry: answer for part, answer in zip(asked, answered, strict=True)}
    return [_answered(part, *answers.get(part.entry, (part.entry, part.fault))) for part in parts]


def _answered(part: Part, entry: str, fault: str) -> Part:
    return replace(part, use=entry if entry != part.entry else "", fault=fault)


def _adapters(module: str, tree: ast.Module) -> Iterator[Part]:
    """The adapters that a module defines or imports."""
    imported = {
        alias.asname or alias.name: None
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    defined = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    functions = imported | defined
    for name, (kind, key, options) in _ADAPTERS.items():
        if name in functions:
            fault = "it is not written yet" if _is_empty(functions[name]) else ""
            beside = (f"{name.removeprefix('get_')}_{end}" for end in HOOKS.values())
            hooks = tuple(hook for hook in beside if hook in functions)
            yield Part(f"{module}:{name}", kind, key, options, hooks, fault=fault)


def _is_empty(function: ast.FunctionDef | None) -> bool:
    """Whether all that a function does is to raise NotImplementedError."""
    body = [child for child in function.body if not isinstance(child, ast.Expr)] if function else []
    return bool(body) and isinstance(body[0], ast.Raise) and "NotImpl" in ast.unparse(body[0])


def _basics(files: Collection[Path]) -> list[Part]:
    """The models of the repository, then AdamW and the functions of the first one's package."""
    trees = {path: tree for path in sorted(files) if (tree := _tree(path)) is not None}
    models = [
        (path, _named(path, node, "model", "my_model")) for path, node in _matches(trees, _is_model)
    ]
    models.sort(key=lambda model: bool(model[1].fault))  # those that can be imported first
    parts = [model for _, model in models]
    if models:
        package = models[0][0].parent
        trees = {path: tree for path, tree in trees.items() if path.is_relative_to(package)}
        fault = f"{parts[0].entry} is configured; to take this one instead, name it by --model"
        parts[1:] = [replace(model, fault=model.fault or fault) for model in parts[1:]]
    for path, node in _matches(trees, _is_adamw)[:1]:
        parts.append(_named(path, node, "optimizer", "my_adamw"))
    for pattern, words in _PARTS.items():
        for path, node in _matches(trees, partial(_is_function, pattern))[:1]:
            parts.append(replace(_named(path, node), fault=words))
    return parts


def _tree(path: Path) -> ast.Module | None:
    """The file as parsed; None for tests, and for what cannot be parsed."""
    if "tests" in path.parts or not path.is_file():
        return None
    try:
        return tree_of(path)
    except UserError:
        return None


def _matches(
    trees: Mapping[Path, ast.Module], wanted: Callable[[Any], bool]
) -> list[tuple[Path, Any]]:
    """The definitions at the top of files for which `wanted` is true."""
    return [(path, node) for path, tree in trees.items() for node in tree.body if wanted(node)]


def _method(node: ast.AST, name: str) -> ast.FunctionDef | None:
    """The method of a class."""
    body = node.body if isinstance(node, ast.ClassDef) else []
    named = (child for child in body if isinstance(child, ast.FunctionDef) and child.name == name)
    return next(named, None)


def _is_model(node: ast.AST) -> bool:
    init = _method(node, "__init__")
    names = {arg.arg for arg in (*init.args.args, *init.args.kwonlyargs)} if init else set()
    return names >= _MODEL and _method(node, "forward") is not None


def _is_adamw(node: ast.AST) -> bool:
    return _method(node, "step") is not None and "adamw" in node.name.lower()


def _is_function(pattern: str, node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and bool(re.fullmatch(pattern, node.name))


def _named(path: Path, node: Any, kind: str = "", name: str = "") -> Part:
    """A definition in a file, by the name under which the file can be imported."""
    parts = path.with_suffix("").parts
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    for module in (".".join(parts[i:]) for i in reversed(range(len(parts)))):
        place = find(module)
        if place and place.file and place.file.resolve() == path.resolve():
            return Part(f"{module}:{node.name}", kind, name)
    packages = (up.name for up in reversed(path.parents) if (up / "__init__.py").exists())
    fault = f"it cannot be imported; {how_to_install(next(packages, path.stem))}"
    return Part(f"{path}:{node.name}", kind, name, fault=fault)
