"""Read a configuration file, and the values of the command line that replace some of its own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from lmperf.config.messages import first_fault
from lmperf.config.model import Config
from lmperf.errors import UserError, shown


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
    first: [(tag, pattern) for tag, pattern in patterns if tag != _INT]
    for first, patterns in yaml.SafeLoader.yaml_implicit_resolvers.items()
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
        keys, words = first_fault(error, Config.model_fields)
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
    overrides: dict[str, Any] = {}
    for option in given:
        key, equals, text = option.partition("=")
        if not equals or not key:
            raise UserError(f"{name}: must be KEY=VALUE, is {shown(option)}")
        overrides[key] = _parsed(text, f"{name} {key}")
    return overrides
