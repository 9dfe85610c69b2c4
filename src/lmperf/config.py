"""Read and validate the configuration, `config/config.yaml`, before anything runs.

`Config` is its pydantic model. Reading gives either a valid one or a `UserError`: one line with the
file, the key, the value found and the values that are allowed.

    python -m lmperf.config > config/schema.json    write the JSON schema, for editors
"""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from lmperf.benchmark import STRICT, Axis, Implementation, Value
from lmperf.benchmarks import in_order, load, stems
from lmperf.errors import UserError, meant, shown
from lmperf.own.kinds import MODEL, STRATEGY
from lmperf.peers.table import PEERS, installed, peers_of

NAME = r"^[a-z][a-z0-9_]*$"
ENTRY = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$"
_MACHINE = r"^[a-z0-9][a-z0-9_-]*(\.[a-z0-9_-]+)*$"
_FOLDER = r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$"
_LONGEST = 64


class _Fault(ValueError):
    """A fault of a value below the field that is validated; `keys` lead from there to it."""

    def __init__(self, words: str, *keys: object):
        super().__init__(words)
        self.keys = keys


def is_slug(text: str) -> bool:
    """Whether a text is a valid machine name, which is also a folder name in `report/`."""
    # `report/` holds the overview, `report.md`, beside the folders of the machines.
    is_page = text.endswith(".md")
    return not is_page and len(text) <= _LONGEST and bool(re.fullmatch(_MACHINE[1:-1], text))


def _check_slug(text: str) -> str:
    if not is_slug(text):
        raise ValueError(
            f"is {shown(text)}; it must be a name of a-z, 0-9, - and _, with single dots between"
            f" them, of at most {_LONGEST} characters, not ending in .md"
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


def canonical(axis: Axis, name: str) -> str:
    """Return the value of an axis that a name or an alias of the value stands for.

    Raises:
        ValueError: the name is unknown, or several aliases begin with it.
    """
    if name in axis.choices:
        return name
    if name in axis.aliases:
        return axis.aliases[name]
    if several := [f"{a} ({of})" for a, of in axis.aliases.items() if a.startswith(f"{name}-")]:
        raise ValueError(f"is {shown(name)}, which is ambiguous; write {' or '.join(several)}")
    aliases = {one: [a for a, of in axis.aliases.items() if of == one] for one in axis.choices}
    names = [f"{one} ({', '.join(found)})" if found else one for one, found in aliases.items()]
    raise ValueError(f"is {shown(name)}; it must be one of {', '.join(names)}")


def value_of(axis: Axis, given: object) -> Value:
    """Return the value of an axis that a value of the configuration or a text stands for.

    Raises:
        ValueError: the axis cannot have this value, in the grid of a preset or outside it.
    """
    try:
        value = _type_of(axis).validate_python(given)
    except ValidationError as error:
        (fault,) = error.errors()
        raise ValueError(f"is {shown(given)}; it must {_wanted_of(fault)}") from None
    return canonical(axis, value) if axis.choices else value


def _type_of(axis: Axis) -> TypeAdapter:
    """Return the pydantic type of the values of an axis, also of those given as texts."""
    if axis.kind is int:
        return TypeAdapter(Annotated[int, Field(ge=axis.least, le=axis.most)])
    return TypeAdapter(Annotated[axis.kind, Field(pattern=axis.pattern)])


_WANTED = {
    "string_type": "be a text, in quotes if it is a number",
    "bool_parsing": "be true or false",
    "too_short": "have at least one value",
}


def _wanted_of(fault: Mapping[str, Any]) -> str:
    """Return what pydantic asks of a value, in words that follow "it must"."""
    if words := _WANTED.get(fault["type"]):
        return words
    return fault["msg"].partition(" should ")[2]  # "Input should be a valid string"


def _distinct(values: list) -> list:
    if twice := [value for value, count in Counter(values).items() if count > 1]:
        raise ValueError(f"names {shown(twice[0])} twice; it must name each value once")
    return values


def _known_stem(stem: str) -> str:
    if stem not in stems():
        raise ValueError(
            f"is {shown(stem)}, which is not a benchmark; {meant(stem, stems(), 'benchmarks:')}"
        )
    return stem


def _require_no_path(value: Any) -> Any:
    """Return the entry of an implementation unless it names a file, or the method of a class.

    Raises:
        ValueError: it does; the message says which entry is meant.
    """
    if isinstance(value, str):
        entry = value.removeprefix("./").replace(".py:", ":").replace("/", ".")
        entry = entry.removesuffix(".apply")
        if entry != value and re.fullmatch(ENTRY, entry):
            raise ValueError(f"is {shown(value)}; write {entry}")
    return value


_Words = Annotated[str, StringConstraints(pattern=r"^[^\n\r]*$", max_length=80)]
_Name = Annotated[str, StringConstraints(pattern=NAME, max_length=_LONGEST)]
_Entry = Annotated[
    str, StringConstraints(pattern=ENTRY, max_length=255), BeforeValidator(_require_no_path)
]
_Names = Annotated[list[_Name], Field(min_length=1), AfterValidator(_distinct)]
_Machine = Annotated[
    str,
    AfterValidator(_check_slug),
    WithJsonSchema({"type": "string", "pattern": _MACHINE, "maxLength": _LONGEST}),
]
_Option = bool | int | float | str
_Options = Annotated[list[_Option], Field(min_length=1), AfterValidator(_distinct)]
_Folder = Annotated[str, StringConstraints(pattern=_FOLDER, max_length=_LONGEST)]
_Stem = Annotated[str, AfterValidator(_known_stem)]
_Stems = Annotated[list[_Stem], Field(min_length=1), AfterValidator(_distinct)]
_Peers = Annotated[list[Literal[tuple(PEERS)]], AfterValidator(_distinct)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Variant(NamedTuple):
    """One of the implementations that a custom one stands for.

    Attributes:
        options: its keyword arguments.
        parts: what tells it apart from the others, in words.
        compiled: whether lmperf compiles it.
    """

    options: dict[str, Any]
    parts: list[str]
    compiled: bool


class Custom(_Strict):
    """A custom implementation.

    Attributes:
        use: its function or class.
        tolerance: the rounding that it declares.
        name: what the report calls it; empty: its key.
        compiled: whether a model is measured a second time, compiled, as `<name>_compiled`.
        model: of a strategy or an optimizer, the custom model of `end_to_end` that it trains;
            None: a strategy trains the first one that is a model class, if there is one.

    Other keys are keyword arguments of the function or class: a value, or a list of values, each of
    which makes an implementation.
    """

    model_config = ConfigDict(extra="allow")

    use: _Entry
    tolerance: str = STRICT
    name: _Words = ""
    compiled: bool = False
    model: _Name | None = None

    __pydantic_extra__: dict[_Name, _Option | _Options] = Field(init=False)

    @model_validator(mode="before")
    @classmethod
    def _of_entry(cls, given: Any) -> Any:
        if isinstance(given, Mapping):
            for key in given.keys() - cls.model_fields.keys():
                if (words := meant(key, cls.model_fields)).startswith("did you mean"):
                    raise _Fault(f"is not a known key; {words}", key)
        return {"use": given} if isinstance(given, str) else given

    def variants(self, name: str) -> dict[str, Variant]:
        """Name -> implementation: `name`, with the values of lists and `compiled` appended."""
        given = self.__pydantic_extra__ or {}
        lists = {key: of if isinstance(of, list) else [of] for key, of in given.items()}
        ways = (False, True) if self.compiled else (False,)
        found = {}
        for *values, compiled in itertools.product(*lists.values(), ways):
            varied = zip(given.values(), values, strict=True)
            parts = [str(one) for of, one in varied if isinstance(of, list)]
            parts += ["compiled"] * compiled
            slug = re.sub(r"[^a-z0-9]+", "_", "_".join([name, *parts]).lower())
            options = dict(zip(lists, values, strict=True))
            found[slug.rstrip("_")] = Variant(options, parts, compiled)
        return found


class Config(_Strict):
    """What to measure, as configured.

    Attributes:
        benchmarks: the stems of the benchmarks to measure on the machine at hand; `all`: all.
        benchmarks_by_machine: machine -> stems that replace those of `all`.
        grid: stem -> axis, or `implementation` -> values that replace those of the preset.
        implementations: stem -> name -> custom implementation; an entry stands for `use: entry`.
        subject: stem -> those of its custom implementations that its page is about, in this order;
            all of them where it names none.
        reference: whether the report keeps the parts about lmperf's own code that no custom
            implementation takes part in.
        course: the year of the hand-out whose problems the page of the course has; none: both.
        peers: the implementations of other projects to measure; true: all, false: none.
        report: the folder for evidence and write-ups of all machines.
        site: the folder for the site.
    """

    preset: Literal["auto", "cpu", "gpu", "full", "quick"] = "auto"
    machine: _Machine = "auto"
    retry_failed: bool = False
    benchmarks: Literal["all"] | _Stems = "all"
    benchmarks_by_machine: dict[_Machine, _Stems] = {}
    grid: dict[_Stem, dict[str, Annotated[list[Any], Field(min_length=1)]]] = {}
    implementations: dict[_Stem, dict[_Name, Custom]] = {}
    subject: dict[_Stem, _Names] = {}
    reference: bool = False
    course: Literal[2025, 2026] | None = None
    peers: bool | _Peers = True
    report: _Folder = "report"
    site: _Folder = "site"

    @field_validator("grid")
    @classmethod
    def _values_of_axes(cls, grid: dict[str, dict[str, list]]) -> dict[str, dict[str, list]]:
        return {stem: _grid_of(stem, axes) for stem, axes in grid.items()}

    @field_validator("implementations")
    @classmethod
    def _are_taken(cls, given: dict[str, dict[str, Custom]]) -> dict[str, dict[str, Custom]]:
        taking = _taking()
        for stem, of in given.items():
            if stem not in taking:
                words = meant(stem, taking, "benchmarks that take one:")
                raise _Fault(f"is not a known key; {words}", stem)
            known = load(stem).known_tolerances()
            for name, one in of.items():
                if one.tolerance not in known:
                    words = f"is {shown(one.tolerance)}; it must be {' or '.join(known)}"
                    raise _Fault(words, stem, name, "tolerance")
                takes = load(stem).takes
                if one.compiled and takes != MODEL:
                    words = f"is true; {stem} takes no model, and only a model is compiled"
                    raise _Fault(words, stem, name, "compiled")
                if one.model and takes not in (MODEL, STRATEGY):
                    words = f"is {shown(one.model)}; only a strategy or an optimizer trains one"
                    raise _Fault(words, stem, name, "model")
            made = Counter(variant for name, one in of.items() for variant in one.variants(name))
            if twice := [variant for variant, count in made.items() if count > 1]:
                raise _Fault(f"makes {twice[0]} twice; choose another name", stem)
        return given

    @model_validator(mode="after")
    def _has_one_name_each(self) -> Config:
        known: dict[str, str] = {}
        for stem, of in self.implementations.items():
            for key, one in of.items():
                words = known.setdefault(key, one.name)
                if words != one.name:
                    raise _Fault(
                        f"is {shown(one.name)}, and {shown(words)} in another benchmark; an"
                        " implementation must have one name",
                        *("implementations", stem, key, "name"),
                    )
        return self

    @model_validator(mode="after")
    def _has_its_models(self) -> Config:
        known = self._models()
        for stem, of in self.implementations.items():
            for key, one in of.items():
                if one.model and one.model not in known:
                    words = (
                        meant(one.model, known, "implementations.end_to_end has")
                        if known
                        else "implementations has none for end_to_end"
                    )
                    place = "implementations", stem, key, "model"
                    raise _Fault(f"is {shown(one.model)}; {words}", *place)
        return self

    @model_validator(mode="after")
    def _has_its_subjects(self) -> Config:
        for stem, names in self.subject.items():
            there = self.implementations.get(stem, {})
            for name in names:
                if name not in there:
                    words = (
                        meant(name, there, f"implementations.{stem} has")
                        if there
                        else (f"implementations has none for {stem}")
                    )
                    raise _Fault(f"names {shown(name)}; {words}", "subject", stem)
        return self

    @model_validator(mode="after")
    def _has_two_folders(self) -> Config:
        if self.site == self.report:
            words = f"is {shown(self.site)}, which is the folder of the report; it must differ"
            raise _Fault(words, "site")
        return self

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
        return self.grid.get(stem, {})

    def peer_versions(self) -> dict[str, str]:
        """The peers (other projects) that are installed and configured: name -> package version."""
        wanted = self.peers if isinstance(self.peers, list) else PEERS if self.peers else ()
        return {name: version for name, version in installed().items() if name in wanted}

    @property
    def names(self) -> dict[str, str]:
        """Key of a custom implementation -> what the report calls it, where that differs."""
        return {
            variant: ", ".join([one.name or key, *of.parts])
            for every in self.implementations.values()
            for key, one in every.items()
            for variant, of in one.variants(key).items()
            if one.name or of.compiled
        }

    def subjects(self, stem: str) -> list[str]:
        """The custom implementations that the page of a benchmark is about, in their order."""
        given = self.implementations.get(stem, {})
        chosen = self.subject.get(stem, given)
        return [variant for name in chosen for variant in given[name].variants(name)]

    def custom_entries(self) -> dict[str, str]:
        """The configured custom implementations: "stem.name" -> "package.module:function"."""
        return {
            f"{stem}.{variant}": one.use
            for stem in sorted(self.implementations)
            for name, one in self.implementations[stem].items()
            for variant in one.variants(name)
        }

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
        return peers_of(stem, versions) | {
            variant: Implementation(
                variant,
                one.use,
                of.options,
                one.tolerance,
                compiles=of.compiled,
                origin="custom",
                models=self._models_of(stem, one),
            )
            for name, one in self.implementations.get(stem, {}).items()
            for variant, of in one.variants(name).items()
        }

    def _models(self) -> dict[str, tuple[str, dict[str, Any]]]:
        """The custom implementations of `end_to_end`: name -> entry and options.

        Those that are compiled are the same models.
        """
        return {
            variant: (one.use, of.options)
            for name, one in self.implementations.get("end_to_end", {}).items()
            for variant, of in one.variants(name).items()
            if not of.compiled
        }

    def _models_of(self, stem: str, one: Custom) -> tuple[tuple[str, str, dict[str, Any]], ...]:
        """What an implementation may train, as `Implementation.models`."""
        known = self._models()
        if one.model:
            return ((one.model, *known[one.model]),)
        if load(stem).takes != STRATEGY or not known:
            return ()
        return (*((name, *model) for name, model in known.items()), ("", "", {}))


def _taking() -> list[str]:
    """The stems of the benchmarks that take custom implementations."""
    return [stem for stem in stems() if load(stem).takes]


def _axes_of(stem: str) -> dict[str, Axis]:
    """Name -> axis, for what a configuration may set in the grid of a benchmark."""
    benchmark = load(stem)
    names = tuple(sorted(one.name for one in benchmark.implementations))
    axes = (*benchmark.axes, Axis("implementation", str, names))
    return {axis.name: axis for axis in axes}


def _grid_of(stem: str, given: Mapping[str, list]) -> dict[str, list]:
    """Return the grid of a benchmark with the values that aliases and texts stand for."""
    found, axes = {}, _axes_of(stem)
    for name, values in given.items():
        if name not in axes:
            raise _Fault(f"is not a known key; {meant(name, axes, 'axes:')}", stem, name)
        try:
            found[name] = _distinct([value_of(axes[name], value) for value in values])
        except ValueError as error:
            raise _Fault(str(error), stem, name) from None
    return found


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, which refuses a repeated key."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        for number, (key, _) in enumerate(node.value):
            if any(key.value == before.value for before, _ in node.value[:number]):
                fault = f"{key.value}: the key is there twice; it must be there once"
                raise yaml.constructor.ConstructorError(None, None, fault, key.start_mark)
        return super().construct_mapping(node, deep)


# YAML 1.1 reads 010 as 8 and 12:30 as 750; these stay texts here, as in YAML 1.2.
_INT = "tag:yaml.org,2002:int"
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in of if tag != _INT]
    for first, of in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_INT, re.compile("[-+]?(0|[1-9][0-9_]*)$"), [*"-+0123456789"])


def _parsed(text: str | bytes, source: object) -> Any:
    """Return the value of a YAML text; None if it is empty.

    Raises:
        UserError: the text is not valid YAML; the message begins with `source` and the line.
    """
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        problem = error.problem or error.context
        raise UserError(f"{source}:{line}: not valid YAML: {problem}") from None
    except (yaml.YAMLError, ValueError) as error:  # not UTF-8; a number or a date that is none
        problem = " ".join(str(error).split())
        raise UserError(f"{source}: not valid YAML: {problem}") from None


def load_config(path: Path, overrides: Mapping[str, Any] | None = None) -> Config:
    """Read and validate a configuration.

    Args:
        path: the YAML file.
        overrides: key -> value that replaces the value in the file; dots in a key separate levels,
            as in `grid.attention`.

    Raises:
        UserError: the first fault, in one line.
    """
    try:
        content = _parsed(path.read_bytes(), path)
    except OSError as error:
        words = f"cannot be read ({error.strerror}); it must be a YAML file"
        raise UserError(f"{path}: {words}") from None
    if not isinstance(content, dict):
        raise UserError(f"{path}: must be a mapping of keys to values; write {{}} for the defaults")
    return config_of(content, path, overrides or {})


def config_of(content: dict, path: Path, overrides: Mapping[str, Any]) -> Config:
    """Validate the content of a configuration file; arguments and errors as for `load_config`."""
    places = [key.split(".") for key in map(str, overrides)]
    for place, value in zip(places, overrides.values(), strict=True):
        _set(content, place, value)
    try:
        return Config.model_validate(content)
    except ValidationError as error:
        keys, words = _first_fault(error)
        # A fault above or below a key that the command line sets also comes from the command line.
        overridden = any(place[: len(keys)] == keys[: len(place)] for place in places)
        source = "command line" if overridden else path
        raise UserError(f"{source}: {'.'.join(keys)} {words}") from None


def _set(content: dict, place: list[str], value: Any) -> None:
    """Set `content[a][b][c]` for the keys in `place`; replace non-mappings on the way."""
    *parents, last = place
    for parent in parents:
        if not isinstance(content.get(parent), dict):
            content[parent] = {}
        content = content[parent]
    content[last] = value


def overrides_of(given: Iterable[str], name: str = "--config") -> dict[str, Any]:
    """Return key -> value of options KEY=VALUE of this name; the last one of a key counts.

    Raises:
        UserError: an option has no value, or one that is not valid YAML.
    """
    found: dict[str, Any] = {}
    for option in given:
        key, equals, text = option.partition("=")
        if not equals or not key:
            raise UserError(f"{name}: must be KEY=VALUE, is {shown(option)}")
        found[key] = _parsed(text, f"{name} {key}")
    return found


def _first_fault(error: ValidationError) -> tuple[list[str], str]:
    """Return the keys that lead to a fault, and the fault in words that follow them.

    `benchmarks` and `peers` are a list or another value, each with errors of its own. The error at
    the deepest key, or the last one, is about the list.
    """
    fault = max(reversed(error.errors()), key=lambda fault: len(fault["loc"]))
    # pydantic adds the tags of its alternatives, and "[key]" if the key itself is wrong.
    keys = [str(key) for key in fault["loc"] if not re.search(r"[\[(]|^bool$", str(key))]
    cause = fault.get("ctx", {}).get("error")
    match fault["type"]:
        case "value_error":
            return [*keys, *map(str, getattr(cause, "keys", ()))], str(cause)
        case "missing":
            return keys[:-1], f"lacks the key {keys[-1]}, which is required"
        case "extra_forbidden":
            known = Custom.model_fields if keys[:-1] else Config.model_fields
            return keys, f"is not a known key; {meant(keys[-1], known, 'known keys:')}"
    return keys, f"is {shown(fault['input'])}; it must {_wanted(fault, keys)}"


def _wanted(fault: Mapping[str, Any], keys: list[str]) -> str:
    """Describe the values that are allowed, in words that follow "it must"."""
    if keys == ["benchmarks"]:
        return f"be all, or a list of benchmarks: [{stems()[0]}]"
    if keys == ["peers"]:
        return f"be true, false, or a list: [{', '.join(PEERS)}]"
    match fault["type"]:
        case "string_pattern_mismatch" if keys[-1] == "use":
            return "be a function as package.module:function"
        case "string_pattern_mismatch" if keys[-1] == "name":
            return "be one line of text"
        case "string_pattern_mismatch" if keys[-1] in ("report", "site"):
            return f"be the name of a folder, such as lmperf-{keys[-1]}"
        case "model_type" | "dict_type" if keys[0] == "implementations" and len(keys) == 3:
            return "be a function as package.module:function, or a mapping with the key use"
        case "model_type" | "dict_type":
            return "be a mapping of keys to values"
        case "list_type" if keys[0] == "implementations":
            return "be a value, or a list of values"
        case "list_type":
            return f"be a list: [{shown(fault['input'])}]"
        case "literal_error":
            return f"be {fault['ctx']['expected']}"
    return _wanted_of(fault)


def json_schema() -> str:
    """Return the JSON schema of the configuration for editors, the text of `config/schema.json`."""
    schema = Config.model_json_schema()
    entry = schema["$defs"]["Custom"]["properties"]["use"]
    custom = {"additionalProperties": {"anyOf": [entry, {"$ref": "#/$defs/Custom"}]}}
    by_stem = {
        "grid": {
            stem: _object({name: _schema_of(axis) for name, axis in _axes_of(stem).items()})
            for stem in stems()
        },
        "implementations": {stem: {"type": "object", **custom} for stem in _taking()},
    }
    schema["properties"] |= {key: _object(of) for key, of in by_stem.items()}
    return json.dumps(schema, indent=2) + "\n"


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _schema_of(axis: Axis) -> dict[str, Any]:
    """Return the schema of the list of values of an axis."""
    value = _type_of(axis).json_schema()
    if axis.choices:
        value["enum"] = [*axis.choices, *axis.aliases]
    return {"type": "array", "items": value, "minItems": 1, "uniqueItems": True}


if __name__ == "__main__":
    sys.stdout.write(json_schema())
