"""Read a short YAML file strictly: reject text that YAML and a person read differently.

PyYAML reads `no` as False and `010` as 8, leaves `1e-4` a string, takes the second of two equal
keys, runs tags that build objects, and expands aliases without limit. Here each of these is an
error: one line with the file, the line, the key, the text found and what to write. Snakemake reads
the same file with PyYAML, so a YAML 1.2 reader could read other values than Snakemake does.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from lmperf.errors import UserError

_MOST_BYTES, _DEEPEST, _LONGEST_NUMBER = 100_000, 20, 40
# PyYAML does not recognize a key longer than 1,024 characters and reports something else instead.
_LONG_WORD = re.compile(r"[^\s,]{1000}")
_CANONICAL = {
    "tag:yaml.org,2002:int": (re.compile(r"-?(0|[1-9][0-9]*)"), "a decimal number"),
    "tag:yaml.org,2002:float": (re.compile(r"-?[0-9]+\.[0-9]+"), "a decimal fraction"),
    "tag:yaml.org,2002:bool": (re.compile(r"true|false"), "true or false, or quotes around a word"),
    "tag:yaml.org,2002:null": (re.compile(r"null|"), "null, or quotes around a word"),
}
_STRING = "tag:yaml.org,2002:str"
_NUMBER_LIKE = re.compile(r"[-+]?(\d[\d_]*\.?\d*|\.\d+)([eE][-+]?\d+)?")
_KINDS = {"sequence": "a list", "mapping": "a mapping", "scalar": "a single value"}


def read(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file.

    Raises:
        UserError: the first fault, in one line that begins with the path.
    """
    loader, node = _parsed(_text(path), path)
    if node is None:
        raise UserError(f"{path}: is empty; write {{}} for the defaults")
    if not isinstance(node, yaml.MappingNode):
        raise UserError(f"{path}: must be a mapping of keys to values, is {_KINDS[node.id]}")
    return loader.construct_document(node)


def value(text: str, source: Path) -> Any:
    """Return the value of a YAML text, read as strictly as a file; None if the text is empty.

    Raises:
        UserError: the first fault, in one line that begins with `source`.
    """
    if len(text.encode(errors="replace")) > _MOST_BYTES:
        raise UserError(f"{source}: is too long; it must have at most {_MOST_BYTES:,} bytes")
    loader, node = _parsed(text, source)
    return None if node is None else loader.construct_document(node)


def tree(text: str, source: Path) -> yaml.Node | None:
    """Return the checked tree of a YAML text, whose nodes know their places; None if it is empty.

    Raises:
        UserError: the first fault, in one line that begins with `source`.
    """
    return _parsed(text, source)[1]


def _parsed(text: str, source: Path) -> tuple[yaml.SafeLoader, yaml.Node | None]:
    try:
        _check_events(text, source)
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
    except yaml.YAMLError as error:
        raise UserError(_syntax_error(error, text, source)) from None
    if node is not None:
        _check_node(node, (), source)
    return loader, node


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


def _syntax_error(error: yaml.YAMLError, text: str, source: Path) -> str:
    if long := _LONG_WORD.search(text):
        line = text.count("\n", 0, long.start()) + 1
        return f"{source}:{line}: a key of 1,000 characters or more; a name has at most 64"
    if isinstance(error, yaml.reader.ReaderError):
        line, problem = text.count("\n", 0, error.position) + 1, str(error).splitlines()[0]
    else:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        parts = getattr(error, "context", None), getattr(error, "problem", None)
        problem = ", ".join(part for part in parts if part) or str(error)
    return f"{source}:{line}: not valid YAML: {problem[:200]}"


def _check_events(text: str, source: Path) -> None:
    """Raise UserError for anchors, aliases, tags and deep nesting.

    The parser's events are a flat stream, so no alias is expanded and nesting needs no recursion.
    """
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        place = f"{source}:{event.start_mark.line + 1}"
        if anchor := getattr(event, "anchor", None):
            raise UserError(
                f"{place}: {anchor[:40]} is an anchor or an alias, which is not supported;"
                " write the value itself"
            )
        if tag := getattr(event, "tag", None):
            raise UserError(f"{place}: the tag {tag[:40]} is not supported; write a plain value")
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise UserError(f"{place}: values are nested deeper than {_DEEPEST}; a grid needs four")


def _check_node(node: yaml.Node, keys: tuple[str, ...], source: Path) -> None:
    """Raise UserError for repeated keys, keys that are no strings, and scalars YAML coerces."""
    if isinstance(node, yaml.ScalarNode):
        _check_scalar(node, keys, source)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _check_node(item, keys, source)
    else:
        seen: set[str] = set()
        for key, item in node.value:
            name = _key(key, keys, source)
            if name in seen:
                place = _place(source, key, (*keys, name))
                raise UserError(f"{place}: the key is there twice; it must be there once")
            seen.add(name)
            _check_node(item, (*keys, name), source)


def _key(node: yaml.Node, keys: tuple[str, ...], source: Path) -> str:
    if isinstance(node, yaml.ScalarNode):
        _check_scalar(node, keys, source)
        if node.tag == _STRING:
            return node.value
    found = (node.value or "empty") if node.id == "scalar" else _KINDS[node.id]
    raise UserError(f"{_place(source, node, keys)}: a key is {found}; it must be a name")


def _check_scalar(node: yaml.ScalarNode, keys: tuple[str, ...], source: Path) -> None:
    if node.style is not None:  # quoted text is always a string
        return
    place, text = _place(source, node, keys), node.value
    if node.tag == _STRING:
        if _NUMBER_LIKE.fullmatch(text):
            raise UserError(f"{place}: YAML reads {text} as a string; write a decimal number")
        return
    if len(text) > _LONGEST_NUMBER:
        raise UserError(f"{place}: {text[:20]}... is too long for a number, and not a word")
    if node.tag not in _CANONICAL:
        kind = node.tag.rpartition(":")[2].replace("timestamp", "date")
        raise UserError(f"{place}: YAML reads {text} as a {kind}; quote it")
    pattern, wanted = _CANONICAL[node.tag]
    if not pattern.fullmatch(text):
        raise UserError(f"{place}: YAML reads {text} as {_coerced(text)}; write {wanted}")


def _coerced(text: str) -> str:
    try:
        return repr(yaml.safe_load(text))
    except ValueError:  # "0x_" matches YAML's pattern of integers but is not an integer
        return "a number"


def _place(source: Path, node: yaml.Node, keys: tuple[str, ...]) -> str:
    where = ".".join(key[:40] for key in keys) or "top level"
    return f"{source}:{node.start_mark.line + 1}: {where}"
