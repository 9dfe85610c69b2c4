"""Escapes untrusted text in evidence (names, reasons, facts of a machine) for every output format.

When evidence is read, ``taken`` replaces every character with a meaning in Markdown, HTML, mathtext
or Liquid by a placeholder: a character of Unicode's private use area. Sections, templates and
figures handle such text like any other. On output, ``in_markdown``, ``in_html`` and ``in_figure``
replace the placeholders by the escaped original characters. Code that parses such text, for example
names of kernels, calls ``plain`` first and ``taken`` on the parsed result.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import escape

import pandas as pd

LONGEST = 300
# LONG_NAMES: columns of kernel names, which are parsed in full length; NUMBERS: columns of numbers
# joined by ";".
LONG_NAMES, LONGEST_NAME = ("name",), 4000
NUMBERS = ("rounds_ms", "again_ms", "rounds_mhz", "sustained_rounds_ms")
# Special characters, only where a format would interpret them: `a_b` and `float32[4, 8]` stay.
_SPECIAL = re.compile(
    r"[\\`*<|$~]"  # spans, tags, cells, mathematics
    r"|(?<![A-Za-z0-9_])_+|_+(?![A-Za-z0-9_])"  # emphasis; legends omit labels such as _a
    r"|\](?=[(\[:])|&(?=#?\w+;)"  # links and entities
    r"|\{(?=[{%#])"  # tags that a site generator would execute
    r"|^[-+#=>\[]"  # lists, headings, quotations, definitions of links
)
# Signs of Markdown with which an author's text would reach beyond its paragraphs: HTML, headings,
# code blocks, tables, mathematics, images, and links to anything but the web.
_BEYOND = re.compile(
    r"[\\`<|$~#]"
    r"|(?<=!)\[|\](?=[\[:])|\](?=\((?!https?://[^\s()]+\)))"
    r"|^[ ]*[=>]|^[ ]*-(?=[- ]*$)",
    re.MULTILINE,
)
_CODE = re.compile(r"((?<!`)(`+)(?!`).+?(?<!`)\2(?!`))")
_SIGNS = "\\`*<|$~_]&{-+#=>["
_FIRST_PRIVATE = 0xE000
_PRIVATE = {sign: chr(_FIRST_PRIVATE + ord(sign)) for sign in _SIGNS}
_TO_PRIVATE = str.maketrans(_PRIVATE)
_PLAIN = str.maketrans({private: sign for sign, private in _PRIVATE.items()})
_IN_MARKDOWN = str.maketrans(
    {private: f"\\{sign}" for sign, private in _PRIVATE.items()}
    | {_PRIVATE["<"]: "&lt;", _PRIVATE["&"]: "&amp;", _PRIVATE["{"]: "&#123;"}
)
_IN_HTML = str.maketrans({private: f"&#{ord(sign)};" for sign, private in _PRIVATE.items()})
_IN_FIGURE = str.maketrans({private: escape(sign) for sign, private in _PRIVATE.items()})
# Unicode categories of invisible characters: control, format (such as text direction), surrogate,
# private use, unassigned, line and paragraph separators.
_UNSHOWN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


@lru_cache(maxsize=2**16)
def taken(text: str, longest: int = LONGEST) -> str:
    """Untrusted text on one line, cut to ``longest``, with placeholders for special characters.

    Special are the characters that an output format would interpret, such as ``<`` and ``*``. The
    placeholders are private-use characters; ``in_markdown``, ``in_html`` and ``in_figure`` escape
    them on output. Invisible characters become visible ones. Calling ``taken`` on its own result
    changes nothing.
    """
    text = " ".join(text.split())
    if not (text.isascii() and text.isprintable()):
        text = "".join(map(_visible, text))
    if len(text) > longest:
        text = text[: longest - 1] + "…"
    return _SPECIAL.sub(lambda found: found[0].translate(_TO_PRIVATE), text)


def authored(text: str) -> str:
    """An author's Markdown with placeholders for the signs that would reach beyond its paragraphs.

    Paragraphs, lists, emphasis, code spans and links to the web keep their meaning.
    """
    text = "\n".join("".join(map(_visible, line)) for line in text.expandtabs().split("\n"))
    parts = _CODE.split(text)  # text, code span, its backticks, text, ...
    for number in range(0, len(parts), 3):
        parts[number] = _BEYOND.sub(lambda found: found[0].translate(_TO_PRIVATE), parts[number])
    return "".join(part for number, part in enumerate(parts) if number % 3 < 2)


def plain(text: str) -> str:
    """The text with the placeholders of ``taken`` replaced by the original characters."""
    return text.translate(_PLAIN)


def in_markdown(text: str) -> str:
    """A finished Markdown text with the placeholders of ``taken`` as escaped characters."""
    return text.translate(_IN_MARKDOWN)


def in_html(text: str) -> str:
    """Text for the content of an HTML element, with the placeholders of ``taken`` as entities."""
    return text.translate(_IN_HTML)


def in_figure(svg: str) -> str:
    """A finished SVG with the placeholders of ``taken`` as escaped characters."""
    return svg.translate(_IN_FIGURE)


def code(text: str) -> str:
    """Untrusted text as a Markdown code span; U+FFFD replaces each backtick in the text."""
    return f"`{plain(taken(text)).replace('`', _REPLACEMENT)}`"


def link(name: str) -> str:
    """The name of a directory, quoted for use in a link."""
    return quote(name, safe="", errors="replace")


def taken_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """The data frame with untrusted text and column names neutralised by ``taken``."""
    texts = [name for name in frame if name not in NUMBERS and not _is_number(frame[name])]
    changed = {name: new for name in texts if (new := _taken_column(frame[name])) is not None}
    frame = frame.assign(**changed) if changed else frame
    names = {name: taken(name) for name in frame if taken(name) != name}
    return frame.rename(columns=names) if names else frame


def deep(form: Callable[[str], str], value: Any) -> Any:
    """A JSON value with the function ``form`` applied to every text in it, keys included."""
    if isinstance(value, str):
        return form(value)
    if isinstance(value, Mapping):
        return {deep(form, key): deep(form, one) for key, one in value.items()}
    return [deep(form, one) for one in value] if isinstance(value, list) else value


def escaped(value) -> str:
    """Text on one line, escaped for a cell of a Markdown table and cut to LONGEST characters."""
    text = " ".join(str(value).split())
    text = text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


def _is_number(column: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(column)


def _taken_column(column: pd.Series) -> pd.Series | None:
    """The column with its text neutralised by ``taken``; None if no text changes."""
    longest = LONGEST_NAME if column.name in LONG_NAMES else LONGEST
    texts = [value for value in column.unique() if isinstance(value, str)]
    changed = {text: new for text in texts if (new := taken(text, longest)) != text}
    if not changed:
        return None
    return column.astype(object).map(lambda value: changed.get(value, value))


def _visible(character: str) -> str:
    if unicodedata.category(character) not in _UNSHOWN or character in _PRIVATE.values():
        return character
    code_point = ord(character)
    return chr(0x2400 + code_point) if code_point < 0x20 else _REPLACEMENT
