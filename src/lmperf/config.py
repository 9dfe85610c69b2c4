"""The configuration: `config/config.yaml`, read strictly, validated before anything runs.

Whatever it holds, there is a Config, or one line that names file, key, what is there and what
should be.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from math import prod
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    StrictBool,
    StringConstraints,
    Tag,
    ValidationError,
    WithJsonSchema,
    create_model,
    model_validator,
)

from lmperf import strict_yaml
from lmperf.benchmark import STRICT, Axis, Implementation
from lmperf.benchmarks import load, stems
from lmperf.errors import UserError, shown
from lmperf.peers.table import PEERS, installed, peers_of

_LONGEST_NAME, _MOST_CELLS = 64, 10_000
_MACHINE = r"^[a-z0-9][a-z0-9_-]*(\.[a-z0-9_-]+)*$"
_NAME = r"^[a-z][a-z0-9_]*$"
_REFERENCE = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$"
_WORDS = {
    _NAME: "a word of a-z, 0-9 and _ that begins with a letter",
    _REFERENCE: "a function as package.module:function",
}
_Name = Annotated[str, StringConstraints(pattern=_NAME, max_length=_LONGEST_NAME)]
_Reference = Annotated[str, StringConstraints(pattern=_REFERENCE, max_length=255)]


def _machine(text: str) -> str:
    # What is beside the machines in report/: the overview, and what was measured.
    taken = text.endswith(".md") or text == "store"
    if taken or len(text) > _LONGEST_NAME or not re.fullmatch(_MACHINE[1:-1], text):
        raise ValueError(
            f"is {shown(text)}; it must be a name of a-z, 0-9, - and _, with single dots between"
            f" them, of at most {_LONGEST_NAME} characters, not store and not ending in .md"
        )
    return text


def slug(text: str) -> str:
    """A machine's name as a person gives it: the name of a directory in report/, and no path.

    Raises:
        UserError: that can be none.
    """
    try:
        return _machine(text)
    except ValueError as error:
        raise UserError(f"MACHINE {error}") from None


_Machine = Annotated[
    str,
    AfterValidator(_machine),
    WithJsonSchema({"type": "string", "pattern": _MACHINE, "maxLength": _LONGEST_NAME}),
]


def is_slug(text: str) -> bool:
    """Whether a directory of that name in report/ could be a machine's."""
    try:
        return bool(_machine(text))
    except ValueError:
        return False


def _axis_type(axis: Axis) -> Any:
    if axis.choices:
        value: Any = Literal[axis.choices]
    else:
        value = {
            int: Annotated[
                int, Field(strict=True, ge=axis.least, le=axis.most), BeforeValidator(_from_text)
            ],
            bool: Annotated[StrictBool, BeforeValidator(_from_text)],
            str: Annotated[str, StringConstraints(pattern=axis.pattern, max_length=_LONGEST_NAME)],
        }[axis.kind]
    return Annotated[list[value], Field(min_length=1), AfterValidator(_distinct)] | None


def _from_text(value: Any) -> Any:
    """A number or a flag where it stands in quotes: as Snakemake hands over what is nested."""
    canonical = isinstance(value, str) and re.fullmatch(r"-?[1-9][0-9]{,18}|0|true|false", value)
    return json.loads(value) if canonical else value


def _distinct(values: list) -> list:
    if twice := [value for value, count in Counter(values).items() if count > 1]:
        raise ValueError(f"names {shown(twice[0])} twice; it must name each value once")
    return values


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Grid(_Strict):
    @model_validator(mode="after")
    def _is_no_life_work(self) -> _Grid:
        cells = prod(len(values) for values in self.model_dump(exclude_none=True).values())
        if cells > _MOST_CELLS:
            raise ValueError(f"has {cells:,} cells; it must have at most {_MOST_CELLS:,}")
        return self


def _grid_model(stem: str) -> type[BaseModel]:
    benchmark = load(stem)
    names = {
        name for grids in benchmark.grids.values() for g in grids for name in g["implementation"]
    }
    known = Axis("implementation", str, tuple(sorted(names)))
    fields = {axis.name: (_axis_type(axis), None) for axis in (*benchmark.axes, known)}
    return create_model(f"Grid_{stem}", __base__=_Grid, **fields)


def _own_type(stem: str) -> Any:
    numerics = Literal[load(stem).known_tolerances()]
    mapping = create_model(
        f"Own_{stem}",
        __base__=_Strict,
        use=(_Reference, ...),
        numerics=(numerics, STRICT),
    )
    # Told apart before they are read, so that a fault is one of one form.
    either = Annotated[
        Annotated[_Reference, Tag("(use)")] | Annotated[mapping, Tag("(mapping)")],
        Discriminator(lambda v: "(mapping)" if isinstance(v, dict | BaseModel) else "(use)"),
    ]
    return dict[_Name, either] | None


_PeerNames = Annotated[list[Literal[tuple(PEERS)]], AfterValidator(_distinct)]
_Peers = Annotated[
    Annotated[_PeerNames, Tag("(list)")] | Annotated[StrictBool, Tag("(flag)")],
    Discriminator(lambda v: "(list)" if isinstance(v, list) else "(flag)"),
]


class Config(_Strict):
    """What to run; `config_model()` adds the axes of the benchmarks that exist."""

    preset: Literal["auto", "cpu", "gpu"] = "auto"
    machine: _Machine = "auto"
    retry_failed: StrictBool = False
    benchmarks: Literal["all"] | Annotated[list[str], Field(min_length=1)] = "all"
    grid: Any = None
    implementations: Any = None
    peers: _Peers = True

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

    def peer_versions(self) -> dict[str, str]:
        """The peers that take part here, each with the version of its package."""
        if self.peers is False:
            return {}
        wanted = PEERS if self.peers is True else self.peers
        return {name: version for name, version in installed().items() if name in wanted}

    def uses(self) -> dict[str, str]:
        """What the user's implementations are, `package.module:function`, by benchmark and name."""
        own = {stem: self.own(stem, peers={}) for stem in stems()}
        return {f"{stem}.{name}": one.entry for stem in own for name, one in own[stem].items()}

    def own(self, stem: str, peers: Mapping[str, str] | None = None) -> dict[str, Implementation]:
        """The implementations of a benchmark that are not the project's, by name.

        They are the user's and, where the user has none of that name, the peers'.

        peers: those of another machine, each with the version there.
        """
        versions = self.peer_versions() if peers is None else peers
        declared = getattr(self.implementations, stem, None) or {}
        return peers_of(stem, versions) | {
            name: Implementation(name, one, origin="custom")
            if isinstance(one, str)
            else Implementation(name, one.use, tolerance=one.numerics, origin="custom")
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
        "Implementations",
        __base__=_Strict,
        **{stem: (_own_type(stem), None) for stem in known if load(stem).takes},
    )
    listed = Annotated[list[Literal[known]], Field(min_length=1), AfterValidator(_distinct)]
    chosen = Literal["all"] | listed
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
        overrides: keys that replace those of the file, with dots where they are below the top, as
            in `grid.attention` (`--config` of Snakemake hands over what is below the top as text).

    Raises:
        UserError: the first fault found, in one line.
    """
    content = strict_yaml.read(path)
    places = [str(key).split(".") for key in overrides or {}]
    for (*parents, last), value in zip(places, (overrides or {}).values(), strict=True):
        mapping = content
        for parent in parents:
            if not isinstance(mapping.get(parent), dict):
                mapping[parent] = {}
            mapping = mapping[parent]
        mapping[last] = value
    try:
        return config_model().model_validate(content)
    except ValidationError as error:
        fault = _furthest(error)
        loc = _keys_of(fault)
        # A fault above what it has set is one of its keys, too.
        of_command = any(place[: len(loc)] == loc[: len(place)] for place in places)
        source = "command line" if of_command else path
        raise UserError(f"{source}: {_in_words(fault)}") from None


def overrides_of(given: Iterable[str]) -> dict[str, Any]:
    """The keys that `--config KEY=VALUE` gives, each value read as in the file.

    Raises:
        UserError: there is no value, it is not valid, or a key stands twice.
    """
    found: dict[str, Any] = {}
    for one in given:
        key, equals, text = one.partition("=")
        if not equals or not key:
            raise UserError(f"--config: must be KEY=VALUE, is {shown(one)}")
        if key in found:
            raise UserError(f"--config: the key {shown(key)} stands twice; it must stand once")
        for other in found:
            if f"{key}.".startswith(f"{other}.") or f"{other}.".startswith(f"{key}."):
                raise UserError(
                    f"--config: {shown(other)} and {shown(key)} set the same; leave one out"
                )
        found[key] = strict_yaml.value(text, Path(f"--config {key[:80]}"))
    return found


def _furthest(error: ValidationError) -> Mapping[str, Any]:
    # A union reports the fault of each branch: the one that got furthest says most. That a list is
    # not the word of the other branch says nothing.
    def rank(fault: Mapping[str, Any]) -> tuple:
        return fault["type"] != "too_short", -len(fault["loc"]), fault["type"] == "literal_error"

    return min(error.errors(), key=rank)


def _keys_of(fault: Mapping[str, Any]) -> list[str]:
    """Where a fault is, without the names of the branches of a union."""
    return [str(part) for part in fault["loc"] if not re.search(r"[\[(]|^literal", str(part))]


def _in_words(fault: Mapping[str, Any]) -> str:
    parts = [
        part if part.isprintable() and len(part) <= 40 else shown(part) for part in _keys_of(fault)
    ]
    place, value = ".".join(parts), shown(fault["input"])
    match fault["type"]:
        case "extra_forbidden":
            return f"{place} is not a known key; {_known_keys(parts[:-1])}"
        case "too_short":
            return f"{place} is an empty list; it must name at least one value, or be left out"
        case "missing":
            return f"{'.'.join(parts[:-1])} lacks the key {parts[-1]}, which must be there"
        case "model_type" | "dict_type":
            return f"{place} is {value}; it must be a mapping of keys to values"
        case "value_error":
            return f"{place} {fault['ctx']['error']}"
        case "list_type" if place == "benchmarks":
            return f"{place} is {value}; it must be all, or a list of benchmarks: [{stems()[0]}]"
        case "bool_type" if place == "peers":
            return f"{place} is {value}; it must be true, false, or a list: [{', '.join(PEERS)}]"
        case "list_type":
            return f"{place} is {value}; it must be a list: [{value}]"
        case "literal_error":
            return f"{place} is {value}; it must be {fault['ctx']['expected']}"
        case "string_pattern_mismatch" if fault["ctx"]["pattern"] in _WORDS:
            return f"{place} is {value}; it must be {_WORDS[fault['ctx']['pattern']]}"
        case _:
            return f"{place} is {value}; {_wanted(fault)}"


def _wanted(fault: Mapping[str, Any]) -> str:
    message = fault["msg"]
    wanted = message[0].lower() + message[1:]
    return wanted.replace("input should be", "it must be").replace("string should", "it must")


def _known_keys(parents: list[str]) -> str:
    if not parents:
        return "known keys: " + ", ".join(Config.model_fields)
    if parents == ["grid"]:
        return "benchmarks: " + ", ".join(stems())
    if parents == ["implementations"]:
        return "benchmarks that take one: " + ", ".join(s for s in stems() if load(s).takes)
    if parents[0] == "grid" and len(parents) == 2:
        axes = [axis.name for axis in load(parents[1]).axes]
        return "axes: " + ", ".join([*axes, "implementation"])
    if parents[0] == "implementations" and len(parents) == 3:
        return "keys: use, numerics"
    return "leave it out"
