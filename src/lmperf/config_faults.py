"""Describe what is wrong with a configuration, from pydantic's errors, in one line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from lmperf.benchmarks import load, stems
from lmperf.errors import meant, nearest, shown
from lmperf.peers.table import PEERS

NAME = r"^[a-z][a-z0-9_]*$"
ENTRY = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$"
_PATTERNS = {
    NAME: "a word of a-z, 0-9 and _ that begins with a letter",
    ENTRY: "a function as package.module:function",
}
Fault = Mapping[str, Any]


def first_fault(error: ValidationError) -> Fault:
    """Return the most helpful of pydantic's errors.

    A union type reports the errors of each of its alternatives. The error at the deepest key is in
    the alternative that the user meant. Of errors at equal depth, "must be the literal X" is
    returned only if there is no other. An empty list is always reported first.
    """

    def rank(fault: Fault) -> tuple:
        return fault["type"] != "too_short", -len(fault["loc"]), fault["type"] == "literal_error"

    return min(error.errors(), key=rank)


def keys_of(fault: Fault) -> list[str]:
    """Return the configuration keys that lead to a fault, without pydantic's tags of unions."""
    return [str(part) for part in fault["loc"] if not re.search(r"[\[(]|^literal", str(part))]


def in_words(fault: Fault, model: type[BaseModel]) -> str:
    """Describe a fault in one line: the key, the value found and the values that are allowed."""
    keys = [key if key.isprintable() and len(key) <= 40 else shown(key) for key in keys_of(fault)]
    place, value = ".".join(keys), shown(fault["input"])
    match fault["type"]:
        case "extra_forbidden":
            label, known = _known_keys(keys[:-1], model)
            words = meant(str(fault["loc"][-1]), known, f"{label}:") if known else label
            return f"{place} is not a known key; {words}"
        case "too_short":
            return f"{place} is an empty list; it must name at least one value, or be left out"
        case "missing":
            return f"{'.'.join(keys[:-1])} lacks the key {keys[-1]}, which is required"
        case "value_error":
            return f"{place} {fault['ctx']['error']}"
        case _:
            return f"{place} is {value}; it must {_wanted(fault, place, value)}"


def _wanted(fault: Fault, place: str, value: str) -> str:
    """Describe the values that are allowed, in words that follow "it must"."""
    match fault["type"]:
        case "model_type" | "dict_type":
            return "be a mapping of keys to values"
        case "list_type" if place == "benchmarks":
            return f"be all, or a list of benchmarks: [{stems()[0]}]"
        case "bool_type" if place == "peers":
            return f"be true, false, or a list: [{', '.join(PEERS)}]"
        case "list_type":
            return f"be a list: [{value}]"
        case "literal_error":
            expected = fault["ctx"]["expected"]
            near = nearest(fault["input"], re.findall("'([^']*)'", expected))
            return f"be {expected}; did you mean {near}?" if near else f"be {expected}"
        case "string_pattern_mismatch" if fault["ctx"]["pattern"] in _PATTERNS:
            return f"be {_PATTERNS[fault['ctx']['pattern']]}"
        case _:
            # "Input should be a valid integer", "String should have at most 64 characters"
            return fault["msg"].partition(" should ")[2]


def _known_keys(parents: list[str], model: type[BaseModel]) -> tuple[str, list[str]]:
    """Return what the keys below `parents` are, and the known ones; or what to do about a key."""
    match parents:
        case []:
            return "known keys", list(model.model_fields)
        case ["grid"]:
            return "benchmarks", list(stems())
        case ["implementations"]:
            return "benchmarks that take one", [stem for stem in stems() if load(stem).takes]
        case ["grid", stem]:
            return "axes", [*(axis.name for axis in load(stem).axes), "implementation"]
        case ["implementations", _, _]:
            return "keys", ["use", "tolerance"]
    return "leave it out", []
