"""The first fault of a configuration, in one line: key, value and what would be right."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from lmperf.benchmarks import stems
from lmperf.errors import meant, shown
from lmperf.peers.table import PEERS

# Key -> the form of its text, where its pattern says less.
_FORMS = {
    "use": "be a function as package.module:function",
    "name": "be one line of text",
    **{key: f"be the name of a folder, such as lmperf-{key}" for key in ("report", "site")},
}


class InvalidValue(ValueError):
    """A fault of a value below the field that is validated; `keys` lead from there to it."""

    def __init__(self, words: str, *keys: object):
        super().__init__(words)
        self.keys = keys


def asked_of(fault: Mapping[str, Any]) -> str:
    """Return what pydantic asks of a value, in words that follow "it must"."""
    # "Input should be a valid string"
    return fault["msg"].partition(" should ")[2]


def first_fault(error: ValidationError, allowed: Iterable[str]) -> tuple[list[str], str]:
    """Return the keys that lead to a fault, and the fault in words that follow them.

    `benchmarks` and `peers` are a list or another value, each with errors of its own. The error at
    the deepest key, or the last one, is about the list.

    allowed: the keys that a configuration may have.
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
            return keys, f"is not a known key; {meant(keys[-1], allowed, 'known keys:')}"
    return keys, f"is {shown(fault['input'])}; it must {_asked_at(keys, fault)}"


def _asked_at(keys: list[str], fault: Mapping[str, Any]) -> str:
    """Describe the values that a key may have, in words that follow "it must"."""
    if keys == ["benchmarks"]:
        return f"be all, or a list of benchmarks: [{stems()[0]}]"
    if keys == ["peers"]:
        return f"be true, false, or a list: [{', '.join(PEERS)}]"
    is_custom = keys[0] == "implementations"
    match fault["type"]:
        case "string_pattern_mismatch" if keys[-1] in _FORMS:
            return _FORMS[keys[-1]]
        case "model_type" | "dict_type" if is_custom and len(keys) == 3:
            return f"{_FORMS['use']}, or a mapping with the key use"
        case "list_type" if is_custom:
            return "be a value, or a list of values"
    return asked_of(fault)
