"""Read and validate the configuration, `config/config.yaml`, before anything runs.

Reading gives either a valid `Config` or a `UserError`: one line with the file, the key, the value
found and the values that are allowed.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache, partial
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
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    create_model,
    model_validator,
)

from lmperf import strict_yaml
from lmperf.benchmark import STRICT, Axis, Implementation, Value
from lmperf.benchmarks import in_order, load, stems
from lmperf.config_faults import ENTRY, NAME, first_fault, in_words, keys_of
from lmperf.errors import UserError, shown
from lmperf.peers.table import PEERS, installed, peers_of

_LONGEST_NAME, _MOST_CELLS = 64, 10_000
_MACHINE = r"^[a-z0-9][a-z0-9_-]*(\.[a-z0-9_-]+)*$"
_Name = Annotated[str, StringConstraints(pattern=NAME, max_length=_LONGEST_NAME)]
_Entry = Annotated[str, StringConstraints(pattern=ENTRY, max_length=255)]


def is_slug(text: str) -> bool:
    """Whether a text is a valid machine name, which is also a folder name in `report/`."""
    # `report/` holds the overview, `report.md`, beside the folders of the machines.
    reserved = text.endswith(".md") or text == "store"
    return not reserved and len(text) <= _LONGEST_NAME and bool(re.fullmatch(_MACHINE[1:-1], text))


def _check_slug(text: str) -> str:
    if not is_slug(text):
        raise ValueError(
            f"is {shown(text)}; it must be a name of a-z, 0-9, - and _, with single dots between"
            f" them, of at most {_LONGEST_NAME} characters, not store and not ending in .md"
        )
    return text


def slug(text: str) -> str:
    """Return a machine name from the command line after a check that it is valid.

    Raises:
        UserError: the text is not a valid name, for example because it is a path.
    """
    try:
        return _check_slug(text)
    except ValueError as error:
        raise UserError(f"MACHINE {error}") from None


_Machine = Annotated[
    str,
    AfterValidator(_check_slug),
    WithJsonSchema({"type": "string", "pattern": _MACHINE, "maxLength": _LONGEST_NAME}),
]


def canonical(axis: Axis, name: str) -> str:
    """Return the value of an axis that a name or an alias of the value stands for.

    Raises:
        ValueError: the name is unknown, or several aliases begin with it.
    """
    if name in axis.choices:
        return name
    if name in axis.aliases:
        return axis.aliases[name]
    if meant := [f"{a} ({of})" for a, of in axis.aliases.items() if a.startswith(f"{name}-")]:
        raise ValueError(f"is {shown(name)}, which is ambiguous; write {' or '.join(meant)}")
    aliases = {one: [a for a, of in axis.aliases.items() if of == one] for one in axis.choices}
    names = [f"{one} ({', '.join(found)})" if found else one for one, found in aliases.items()]
    raise ValueError(f"is {shown(name)}; it must be one of {', '.join(names)}")


def value_of(axis: Axis, text: str) -> Value:
    """Return the value of an axis that a text of the command line stands for, if it is valid.

    Raises:
        ValueError: the axis cannot have this value, in the grid of a preset or outside it.
    """
    given = text.lower() if axis.kind is bool else text
    try:
        return TypeAdapter(_axis_type(axis)).validate_python([given])[0]
    except ValidationError as error:
        # The place of the fault is the number of the list's element.
        raise ValueError(in_words(first_fault(error), Config).removeprefix("0 ")) from None


def _axis_type(axis: Axis) -> Any:
    """Return the pydantic type of an axis in `grid`: a list of its values without repetition."""
    if axis.aliases:
        names = {"type": "string", "enum": [*axis.choices, *axis.aliases]}
        value: Any = Annotated[str, AfterValidator(partial(canonical, axis)), WithJsonSchema(names)]
    elif axis.choices:
        value = Literal[axis.choices]
    else:
        value = {
            int: Annotated[
                int, Field(strict=True, ge=axis.least, le=axis.most), BeforeValidator(_from_text)
            ],
            bool: Annotated[StrictBool, BeforeValidator(_from_text)],
            str: Annotated[
                str,
                StringConstraints(pattern=axis.pattern, max_length=_LONGEST_NAME),
                AfterValidator(partial(_small_enough, axis)),
            ],
        }[axis.kind]
    return Annotated[list[value], Field(min_length=1), AfterValidator(_distinct)] | None


def _from_text(value: Any) -> Any:
    """Convert texts such as "64" and "true" to 64 and True; return other values unchanged.

    Snakemake's `--config` passes "true" and nested values as strings.
    """
    is_canonical = isinstance(value, str) and re.fullmatch(r"-?[1-9][0-9]{,18}|0|true|false", value)
    return json.loads(value) if is_canonical else value


def _small_enough(axis: Axis, text: str) -> str:
    """Return a text such as "32x32" if the product of its numbers is at most the axis's `most`."""
    product = prod(map(int, re.findall(r"[0-9]+", text))) if axis.pattern else 1
    if product > axis.most:
        raise ValueError(f"is {shown(text)}; its product must be at most {axis.most:,}")
    return text


def _distinct(values: list) -> list:
    if twice := [value for value, count in Counter(values).items() if count > 1]:
        raise ValueError(f"names {shown(twice[0])} twice; it must name each value once")
    return values


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Grid(_Strict):
    @model_validator(mode="after")
    def _has_few_cells(self) -> _Grid:
        cells = prod(len(values) for values in self.model_dump(exclude_none=True).values())
        if cells > _MOST_CELLS:
            raise ValueError(f"has {cells:,} cells; it must have at most {_MOST_CELLS:,}")
        return self


def _grid_model(stem: str) -> type[BaseModel]:
    benchmark = load(stem)
    names = sorted(one.name for one in benchmark.implementations)
    axes = (*benchmark.axes, Axis("implementation", str, tuple(names)))
    fields = {axis.name: (_axis_type(axis), None) for axis in axes}
    return create_model(f"Grid_{stem}", __base__=_Grid, **fields)


def _custom_type(stem: str) -> Any:
    """Return the pydantic type of `implementations.<stem>`: name -> an entry or a mapping."""
    tolerances = Literal[load(stem).known_tolerances()]
    mapping = create_model(
        f"Custom_{stem}",
        __base__=_Strict,
        use=(_Entry, ...),
        tolerance=(tolerances, STRICT),
    )
    # The discriminator selects one branch of the union, so that pydantic reports only its errors.
    either = Annotated[
        Annotated[_Entry, Tag("(use)")] | Annotated[mapping, Tag("(mapping)")],
        Discriminator(lambda v: "(mapping)" if isinstance(v, dict | BaseModel) else "(use)"),
    ]
    return dict[_Name, either] | None


_Flag = Annotated[StrictBool, BeforeValidator(_from_text)]
_PeerNames = Annotated[list[Literal[tuple(PEERS)]], AfterValidator(_distinct)]
_Peers = Annotated[
    Annotated[_PeerNames, Tag("(list)")] | Annotated[StrictBool, Tag("(flag)")],
    Discriminator(lambda v: "(list)" if isinstance(v, list) else "(flag)"),
]


class Config(_Strict):
    """What to measure, as configured. `config_model()` adds the benchmarks and their axes."""

    preset: Literal["auto", "cpu", "gpu", "full", "quick"] = "auto"
    machine: _Machine = "auto"
    retry_failed: _Flag = False
    benchmarks: Literal["all"] | Annotated[list[str], Field(min_length=1)] = "all"
    benchmarks_by_machine: Any = None
    grid: Any = None
    implementations: Any = None
    peers: _Peers = True

    def stems(self, preset: str, machine: str, here: bool = True) -> list[str]:
        """Stems of a machine's benchmarks and their kernel tests that have cells in a preset.

        They are in the order in which they are measured: `benchmarks.in_order`.

        here: whether the machine is the one at hand. Only there `benchmarks` counts.
        """
        chosen = self.benchmarks if here else "all"
        if chosen == "all":
            chosen = self.benchmarks_by_machine.get(machine, stems())
        checks = [load(stem).check for stem in chosen]
        wanted = in_order({*chosen, *(check for check in checks if check)})
        return [stem for stem in wanted if load(stem).grids_of(preset)]

    def grid_of(self, stem: str) -> dict[str, list]:
        """Axis -> values, for the axes of a benchmark's grid that the configuration replaces."""
        grid = getattr(self.grid, stem)
        return {} if grid is None else grid.model_dump(exclude_none=True)

    def peer_versions(self) -> dict[str, str]:
        """The peers (other projects) that are installed and configured: name -> package version."""
        if self.peers is False:
            return {}
        wanted = PEERS if self.peers is True else self.peers
        return {name: version for name, version in installed().items() if name in wanted}

    def custom_entries(self) -> dict[str, str]:
        """The configured custom implementations: "stem.name" -> "package.module:function"."""
        found = {stem: self.external(stem, peers={}) for stem in stems()}
        return {f"{stem}.{name}": one.entry for stem in found for name, one in found[stem].items()}

    def external(
        self, stem: str, peers: Mapping[str, str] | None = None
    ) -> dict[str, Implementation]:
        """Name -> implementation, for the peers and custom implementations of a benchmark.

        If a peer and a custom implementation share a name, the result has the custom one.

        Args:
            stem: the stem of the benchmark.
            peers: name -> version of the peers; None: the peers installed on this machine.
        """
        versions = self.peer_versions() if peers is None else peers
        declared = getattr(self.implementations, stem, None) or {}
        return peers_of(stem, versions) | {
            name: Implementation(name, one, origin="custom")
            if isinstance(one, str)
            else Implementation(name, one.use, tolerance=one.tolerance, origin="custom")
            for name, one in declared.items()
        }


@cache
def config_model() -> type[Config]:
    """Return the pydantic model of the configuration, with every benchmark and its axes."""
    known = stems()
    grids = create_model(
        "Grids", __base__=_Strict, **{stem: (_grid_model(stem) | None, None) for stem in known}
    )
    custom = create_model(
        "Implementations",
        __base__=_Strict,
        **{stem: (_custom_type(stem), None) for stem in known if load(stem).takes},
    )
    listed = Annotated[list[Literal[known]], Field(min_length=1), AfterValidator(_distinct)]
    return create_model(
        "Configuration",
        __base__=Config,
        benchmarks=(Literal["all"] | listed, "all"),
        benchmarks_by_machine=(dict[_Machine, listed], Field(default_factory=dict)),
        grid=(grids, Field(default_factory=grids)),
        implementations=(custom, Field(default_factory=custom)),
    )


def json_schema() -> str:
    """Return the JSON schema of the configuration for editors, the text of `config/schema.json`."""
    return json.dumps(config_model().model_json_schema(), indent=2) + "\n"


def load_config(path: Path, overrides: Mapping[str, Any] | None = None) -> Config:
    """Read and validate a configuration.

    Args:
        path: the YAML file.
        overrides: key -> value that replaces the value in the file; dots in a key separate levels,
            as in `grid.attention`.

    Raises:
        UserError: the first fault, in one line.
    """
    content = strict_yaml.read(path)
    places = [key.split(".") for key in map(str, overrides or {})]
    for place, value in zip(places, (overrides or {}).values(), strict=True):
        _set(content, place, value)
    try:
        return config_model().model_validate(content)
    except ValidationError as error:
        fault = first_fault(error)
        keys = keys_of(fault)
        # A fault above or below a key that the command line sets also comes from the command line.
        overridden = any(place[: len(keys)] == keys[: len(place)] for place in places)
        source = "command line" if overridden else path
        raise UserError(f"{source}: {in_words(fault, Config)}") from None


def _set(content: dict, place: list[str], value: Any) -> None:
    """Set `content[a][b][c]` for the keys in `place`; replace non-mappings on the way."""
    *parents, last = place
    for parent in parents:
        if not isinstance(content.get(parent), dict):
            content[parent] = {}
        content = content[parent]
    content[last] = value


def overrides_of(given: Iterable[str]) -> dict[str, Any]:
    """Return key -> value of `--config KEY=VALUE` options, read as strictly as the file.

    Raises:
        UserError: an option has no value or an invalid one, or two options set the same key.
    """
    found: dict[str, Any] = {}
    for option in given:
        key, equals, text = option.partition("=")
        if not equals or not key:
            raise UserError(f"--config: must be KEY=VALUE, is {shown(option)}")
        if key in found:
            raise UserError(f"--config: the key {shown(key)} is there twice; give it once")
        for other in found:
            if f"{key}.".startswith(f"{other}.") or f"{other}.".startswith(f"{key}."):
                raise UserError(
                    f"--config: {shown(other)} and {shown(key)} set the same; leave one out"
                )
        found[key] = strict_yaml.value(text, Path(f"--config {key[:80]}"))
    return found
