"""The configuration: `config/config.yaml`, read strictly, validated before anything runs.

YAML turns `no` into False, `010` into 8, leaves `1e-4` a string and lets the second of two equal
keys win. Each of these is an error here, said in one line that names file, key, what is there and
what should be.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    StrictBool,
    StringConstraints,
    Tag,
    ValidationError,
    create_model,
)

from lmperf.benchmark import STRICT, Axis, Own, load, stems
from lmperf.errors import UserError

_SLUG = StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]*$")
_REFERENCE = StringConstraints(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")
_NAME = StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")
_CANONICAL = {
    "tag:yaml.org,2002:int": (re.compile(r"-?(0|[1-9][0-9]*)"), "a decimal number"),
    "tag:yaml.org,2002:float": (re.compile(r"-?[0-9]+\.[0-9]+"), "a decimal fraction"),
    "tag:yaml.org,2002:bool": (re.compile(r"true|false"), "true or false, or quotes around a word"),
    "tag:yaml.org,2002:null": (re.compile(r"null|"), "null, or quotes around a word"),
}
_NUMBER_LIKE = re.compile(r"[-+]?(\d[\d_]*\.?\d*|\.\d+)([eE][-+]?\d+)?")


def is_slug(name: str) -> bool:
    return re.fullmatch(_SLUG.pattern, name) is not None


def _axis_type(axis: Axis) -> Any:
    if axis.choices:
        value: Any = Literal[axis.choices]
    else:
        value = {
            int: Annotated[int, Field(strict=True, gt=axis.least - 1)],
            bool: StrictBool,
            str: Annotated[str, StringConstraints(pattern=axis.pattern)],
        }[axis.kind]
    return Annotated[list[value], Field(min_length=1)] | None


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _grid_model(stem: str) -> type[BaseModel]:
    benchmark = load(stem)
    names = {
        name for grids in benchmark.grids.values() for g in grids for name in g["implementation"]
    }
    known = Axis("implementation", str, tuple(sorted(names)))
    fields = {axis.name: (_axis_type(axis), None) for axis in (*benchmark.axes, known)}
    return create_model(f"Grid_{stem}", __base__=_Strict, **fields)


def _own_type(stem: str) -> Any:
    numerics = Literal[load(stem).known_numerics()]
    mapping = create_model(
        f"Own_{stem}",
        __base__=_Strict,
        use=(Annotated[str, _REFERENCE], ...),
        numerics=(numerics, STRICT),
    )
    # Told apart before they are read, so that a fault is one of one form.
    either = Annotated[
        Annotated[str, _REFERENCE, Tag("(use)")] | Annotated[mapping, Tag("(mapping)")],
        Discriminator(lambda v: "(mapping)" if isinstance(v, dict | BaseModel) else "(use)"),
    ]
    return dict[Annotated[str, _NAME], either] | None


class Config(_Strict):
    """What to run; `config_model()` adds the axes of the benchmarks that exist."""

    preset: Literal["auto", "cpu", "gpu"] = "auto"
    machine: Annotated[str, _SLUG] = "auto"
    retry_failed: StrictBool = False
    benchmarks: Literal["all"] | Annotated[list[str], Field(min_length=1)] = "all"
    grid: Any = None
    implementations: Any = None

    def stems(self, preset: str) -> list[str]:
        """The benchmarks to run, kernel tests included, which this preset has cells for."""
        chosen = list(stems()) if self.benchmarks == "all" else list(self.benchmarks)
        checks = [load(stem).check for stem in chosen]
        wanted = dict.fromkeys([*chosen, *(check for check in checks if check)])
        return [stem for stem in wanted if load(stem).grids.get(preset)]

    def grid_of(self, stem: str) -> dict[str, list]:
        """The axes that the configuration replaces in a benchmark's grid."""
        grid = getattr(self.grid, stem, None)
        return {} if grid is None else grid.model_dump(exclude_none=True)

    def own(self, stem: str) -> dict[str, Own]:
        """The user's implementations of a benchmark, by name."""
        declared = getattr(self.implementations, stem, None) or {}
        return {
            name: Own(one) if isinstance(one, str) else Own(**one.model_dump())
            for name, one in declared.items()
        }


@cache
def config_model() -> type[Config]:
    """The configuration's model, with every benchmark and its axes."""
    known = stems()
    grids = create_model(
        "Grids", __base__=_Strict, **{stem: (_grid_model(stem) | None, None) for stem in known}
    )
    own = create_model(
        "Implementations", __base__=_Strict, **{stem: (_own_type(stem), None) for stem in known}
    )
    chosen = Literal["all"] | Annotated[list[Literal[known]], Field(min_length=1)]
    return create_model(
        "Configuration",
        __base__=Config,
        benchmarks=(chosen, "all"),
        grid=(grids, Field(default_factory=grids)),
        implementations=(own, Field(default_factory=own)),
    )


def json_schema() -> str:
    """The model as JSON schema, for editors: the content of config/schema.json."""
    return json.dumps(config_model().model_json_schema(), indent=2) + "\n"


def load_config(path: Path, overrides: Mapping[str, Any] | None = None) -> Config:
    """Read and validate the configuration.

    Args:
        path: the YAML file.
        overrides: top-level keys that replace those of the file (`--config` of Snakemake).

    Raises:
        UserError: the first fault found, in one line.
    """
    try:
        text = path.read_text()
    except OSError as error:
        raise UserError(
            f"{path}: cannot be read ({error.strerror}); it must be a YAML file"
        ) from None
    content = _strict_yaml(text, path)
    try:
        return config_model().model_validate({**content, **(overrides or {})})
    except ValidationError as error:
        raise UserError(f"{path}: {_first_fault(error)}") from None


def _strict_yaml(text: str, path: Path) -> dict:
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise UserError(f"{path}{line}: not valid YAML: {problem}") from None
    if node is None:
        raise UserError(f"{path}: is empty; write {{}} for what is there by default")
    if not isinstance(node, yaml.MappingNode):
        raise UserError(f"{path}: must be a mapping of keys to values, is {_shown(node)}")
    _refuse_coercion(node, (), path)
    return yaml.safe_load(text)


def _refuse_coercion(node: yaml.Node, keys: tuple[str, ...], path: Path) -> None:
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            name = str(key.value)
            if name in seen:
                raise UserError(
                    f"{_place(path, key, (*keys, name))}: the key stands twice; it must stand once"
                )
            seen.add(name)
            _refuse_coercion(key, keys, path)
            _refuse_coercion(value, (*keys, name), path)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_coercion(item, keys, path)
    elif node.style is None:
        _refuse_coerced_scalar(node, keys, path)


def _refuse_coerced_scalar(node: yaml.ScalarNode, keys: tuple[str, ...], path: Path) -> None:
    pattern, wanted = _CANONICAL.get(node.tag, (None, ""))
    if pattern and not pattern.fullmatch(node.value):
        value = yaml.safe_load(node.value)
        raise UserError(
            f"{_place(path, node, keys)}: YAML reads {node.value} as {value!r}; write {wanted}"
        )
    if node.tag == "tag:yaml.org,2002:timestamp":
        raise UserError(f"{_place(path, node, keys)}: YAML reads {node.value} as a date; quote it")
    if node.tag == "tag:yaml.org,2002:str" and _NUMBER_LIKE.fullmatch(node.value):
        raise UserError(
            f"{_place(path, node, keys)}: YAML reads {node.value} as a string; "
            "write a decimal number"
        )


def _place(path: Path, node: yaml.Node, keys: tuple[str, ...]) -> str:
    return f"{path}:{node.start_mark.line + 1}: {'.'.join(keys) or 'top level'}"


def _shown(node: yaml.Node) -> str:
    return {"sequence": "a list"}.get(node.id, "a single value")


def _first_fault(error: ValidationError) -> str:
    # A union reports the fault of each branch: the one that got furthest says most.
    # An empty list is a list: that it is not the word of the other branch says nothing.
    faults = sorted(error.errors(), key=lambda one: (one["type"] != "too_short", -len(one["loc"])))
    fault = faults[0]
    parts = [str(part) for part in fault["loc"] if not re.search(r"[\[(]|^literal", str(part))]
    place = ".".join(parts)
    value = fault["input"]
    match fault["type"]:
        case "extra_forbidden":
            return f"{place} is not a known key; {_known_keys(parts[:-1])}"
        case "too_short":
            return f"{place} is an empty list; it must name at least one value, or be left out"
        case "missing":
            return f"{'.'.join(parts[:-1])} lacks the key {parts[-1]}, which must be there"
        case "model_type" | "dict_type":
            return f"{place} is {value!r}; it must be a mapping of keys to values"
        case "literal_error":
            return f"{place} is {value!r}; it must be {fault['ctx']['expected']}"
        case _:
            return f"{place} is {value!r}; {_wanted(fault)}"


def _wanted(fault: Mapping[str, Any]) -> str:
    message = fault["msg"]
    wanted = message[0].lower() + message[1:]
    return wanted.replace("input should be", "it must be").replace("string should", "it must")


def _known_keys(parents: list[str]) -> str:
    if not parents:
        return "known keys: " + ", ".join(Config.model_fields)
    if parents == ["grid"] or parents == ["implementations"]:
        return "benchmarks: " + ", ".join(stems())
    if parents[0] == "grid" and len(parents) == 2:
        axes = [axis.name for axis in load(parents[1]).axes]
        return "axes: " + ", ".join([*axes, "implementation"])
    if parents[0] == "implementations" and len(parents) == 3:
        return "keys: " + ", ".join(field.name for field in fields(Own))
    return "leave it out"
