"""Untrusted text in evidence: names, reasons, facts of a machine that somebody else wrote.

`neutral` replaces each character that Markdown, HTML, mathematics or Liquid would interpret by an
HTML character reference, once: in `Evidence`, through which all such text passes. Markdown and HTML
show a reference as the character, never as markup, so templates and tables need no escaping. What
has no references (CSV, JSON, LaTeX, Typst, terminals, code spans, figures, messages) calls `plain`,
once for a table, a figure or a message.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import lru_cache
from typing import Any
from urllib.parse import quote

import pandas as pd

LONGEST = 800
# LONG_NAMES: columns of kernel names, which are parsed in full length; NUMBERS: columns of numbers
# joined by ";".
LONG_NAMES, LONGEST_NAME = ("name",), 4000
NUMBERS = ("rounds_ms",)
# Special characters, only where a format would interpret them: `a_b` and `float32[4, 8]` stay.
_SPECIAL = re.compile(
    r"[\\`*<|$~\"]"  # spans, tags, cells, mathematics, ends of attributes
    r"|(?<![A-Za-z0-9_])_+|_+(?![A-Za-z0-9_])"  # emphasis
    r"|\](?=[(\[:])|&(?=[#\w])"  # links and references
    r"|\{"  # fields of tables in templates; tags that a site generator would execute
    r"|^[-+#=>\[]"  # lists, headings, quotations, definitions of links
)
# Unicode categories of invisible characters: control, format (such as text direction), surrogate,
# private use, unassigned, line and paragraph separators.
_UNSHOWN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


@lru_cache(maxsize=2**16)
def neutral(text: str, longest: int = LONGEST) -> str:
    """Untrusted text on one line, cut to ``longest``, with references for special characters.

    Invisible characters become visible ones. `plain` gives the text back.
    """
    text = " ".join(text.split())
    if not (text.isascii() and text.isprintable()):
        text = "".join(map(_visible, text))
    if len(text) > longest:
        text = text[: longest - 1] + "…"
    return _SPECIAL.sub(lambda match: "".join(f"&#{ord(c)};" for c in match[0]), text)


plain = html.unescape


def code(text: str) -> str:
    """Text as a Markdown code span; U+FFFD replaces each backtick in it."""
    return f"`{plain(text).replace('`', _REPLACEMENT)}`"


def link(name: str) -> str:
    """The name of a directory, quoted for use in a link."""
    return quote(plain(name), safe="", errors="replace")


def neutral_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """The data frame with text neutralised by `neutral`."""
    texts = [n for n in frame if n not in NUMBERS and not pd.api.types.is_numeric_dtype(frame[n])]
    changed = {name: new for name in texts if (new := _neutral_column(frame[name])) is not None}
    return frame.assign(**changed) if changed else frame


def deep(form: Callable[[str], str], value: Any) -> Any:
    """A value with the function ``form`` applied to every text in it, keys included.

    value: of JSON, a tuple, or a dataclass of such values, such as a table.
    """
    if isinstance(value, str):
        return form(value)
    if isinstance(value, Mapping):
        return {deep(form, key): deep(form, item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [deep(form, item) for item in value]
        return tuple(items) if isinstance(value, tuple) else items
    if is_dataclass(value):
        return replace(value, **{f.name: deep(form, getattr(value, f.name)) for f in fields(value)})
    return value


def _neutral_column(column: pd.Series) -> pd.Series | None:
    """The column with its text neutralised by `neutral`; None if no text changes."""
    longest = LONGEST_NAME if column.name in LONG_NAMES else LONGEST
    texts = [value for value in column.unique() if isinstance(value, str)]
    changed = {text: new for text in texts if (new := neutral(text, longest)) != text}
    if not changed:
        return None
    return column.astype(object).map(lambda value: changed.get(value, value))


def _visible(character: str) -> str:
    if unicodedata.category(character) not in _UNSHOWN:
        return character
    code_point = ord(character)
    return chr(0x2400 + code_point) if code_point < 0x20 else _REPLACEMENT
