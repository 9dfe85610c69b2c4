"""A short YAML file, read strictly: what a reader takes for one thing and YAML for another.

YAML turns `no` into False, `010` into 8, leaves `1e-4` a string and lets the second of two equal
keys win. It has tags that make objects, and aliases that make a file of a line a thousand million
values. Each of these is an error here, said in one line that names file, line, key, what is there
and what should be.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from lmperf.errors import UserError

_MOST_BYTES, _DEEPEST, _LONGEST_NUMBER = 100_000, 20, 40
# YAML itself does not see a key of more than 1,024 characters, and says something else.
_LONG_WORD = re.compile(r"[^\s,]{1000}")
_CANONICAL = {
    "tag:yaml.org,2002:int": (re.compile(r"-?(0|[1-9][0-9]*)"), "a decimal number"),
    "tag:yaml.org,2002:float": (re.compile(r"-?[0-9]+\.[0-9]+"), "a decimal fraction"),
    "tag:yaml.org,2002:bool": (re.compile(r"true|false"), "true or false, or quotes around a word"),
    "tag:yaml.org,2002:null": (re.compile(r"null|"), "null, or quotes around a word"),
}
_STRING = "tag:yaml.org,2002:str"
_NUMBER_LIKE = re.compile(r"[-+]?(\d[\d_]*\.?\d*|\.\d+)([eE][-+]?\d+)?")


def read(path: Path) -> dict[str, Any]:
    """The mapping that a file holds.

    Raises:
        UserError: the first fault found, in one line.
    """
    loader, node = _parsed(_text(path), path)
    if node is None:
        raise UserError(f"{path}: is empty; write {{}} for what is there by default")
    if not isinstance(node, yaml.MappingNode):
        raise UserError(f"{path}: must be a mapping of keys to values, is {_kind(node)}")
    _refuse_coercion(node, (), path)
    return loader.construct_document(node)


def value(text: str, source: Path) -> Any:
    """The value that a text holds, read as strictly; None where it is empty.

    Raises:
        UserError: the first fault found, in one line that begins with the source.
    """
    if len(text.encode(errors="replace")) > _MOST_BYTES:
        raise UserError(f"{source}: is too long; it must have at most {_MOST_BYTES:,} bytes")
    loader, node = _parsed(text, source)
    if node is None:
        return None
    _refuse_coercion(node, (), source)
    return loader.construct_document(node)


def _parsed(text: str, source: Path) -> tuple[yaml.SafeLoader, yaml.Node | None]:
    try:
        _refuse_what_is_no_plain_value(text, source)
        loader = yaml.SafeLoader(text)
        return loader, loader.get_single_node()
    except yaml.YAMLError as error:
        raise UserError(_not_valid(error, text, source)) from None


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise UserError(
            f"{path}: cannot be read ({error.strerror}); it must be a YAML file"
        ) from None
    if len(content) > _MOST_BYTES:
        raise UserError(f"{path}: is too long; it must have at most {_MOST_BYTES:,} bytes")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}:{line}: is not UTF-8; save the file in UTF-8") from None


def _not_valid(error: yaml.YAMLError, text: str, path: Path) -> str:
    mark = getattr(error, "problem_mark", None)
    if long := _LONG_WORD.search(text):
        line = text.count("\n", 0, long.start()) + 1
        return f"{path}:{line}: a key of 1,000 characters or more; a name has at most 64"
    if isinstance(error, yaml.reader.ReaderError):
        line, problem = text.count("\n", 0, error.position) + 1, str(error).splitlines()[0]
    else:
        line = mark.line + 1 if mark else 1
        parts = getattr(error, "context", None), getattr(error, "problem", None)
        problem = ", ".join(part for part in parts if part) or str(error)
    return f"{path}:{line}: not valid YAML: {problem[:200]}"


def _refuse_what_is_no_plain_value(text: str, path: Path) -> None:
    """By the events of the parser, which no nesting and no alias makes many or deep."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        place = f"{path}:{event.start_mark.line + 1}"
        if anchor := getattr(event, "anchor", None):
            word = f"{anchor[:40]} is an anchor or an alias"
            raise UserError(f"{place}: {word}, which is not read here; write the value itself")
        if tag := getattr(event, "tag", None):
            raise UserError(f"{place}: the tag {tag[:40]} is not read here; write a plain value")
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise UserError(f"{place}: values are nested deeper than {_DEEPEST}; a grid needs four")


def _refuse_coercion(node: yaml.Node, keys: tuple[str, ...], path: Path) -> None:
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            name = _key(key, keys, path)
            if name in seen:
                raise UserError(
                    f"{_place(path, key, (*keys, name))}: the key stands twice; it must stand once"
                )
            seen.add(name)
            _refuse_coercion(value, (*keys, name), path)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_coercion(item, keys, path)
    elif node.style is None:
        _refuse_coerced_scalar(node, keys, path)


def _key(node: yaml.Node, keys: tuple[str, ...], path: Path) -> str:
    if isinstance(node, yaml.ScalarNode):
        _refuse_coerced_scalar(node, keys, path)
        if node.tag == _STRING:
            return node.value
    what = (node.value or "empty") if node.id == "scalar" else _kind(node)
    raise UserError(f"{_place(path, node, keys)}: a key is {what}; it must be a name")


def _refuse_coerced_scalar(node: yaml.ScalarNode, keys: tuple[str, ...], path: Path) -> None:
    place, text = _place(path, node, keys), node.value
    if node.style is not None:
        return
    if node.tag == _STRING:
        if _NUMBER_LIKE.fullmatch(text):
            raise UserError(f"{place}: YAML reads {text} as a string; write a decimal number")
        return
    if len(text) > _LONGEST_NUMBER:
        raise UserError(f"{place}: {text[:20]}... is too long for a number, and no word")
    if node.tag not in _CANONICAL:
        kind = node.tag.rpartition(":")[2].replace("timestamp", "date")
        raise UserError(f"{place}: YAML reads {text} as a {kind}; quote it")
    pattern, wanted = _CANONICAL[node.tag]
    if not pattern.fullmatch(text):
        raise UserError(f"{place}: YAML reads {text} as {_as_read(text)}; write {wanted}")


def _as_read(text: str) -> str:
    try:
        return repr(yaml.safe_load(text))
    except ValueError:  # 0x_
        return "a number"


def _place(path: Path, node: yaml.Node, keys: tuple[str, ...]) -> str:
    where = ".".join(key[:40] for key in keys) or "top level"
    return f"{path}:{node.start_mark.line + 1}: {where}"


def _kind(node: yaml.Node) -> str:
    return {"sequence": "a list", "mapping": "a mapping"}.get(node.id, "a single value")
