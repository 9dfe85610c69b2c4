"""Text that others wrote: names, reasons, facts of a machine. It is shown as it is, never obeyed.

What means something to Markdown, HTML, mathtext or Liquid becomes private characters when evidence
is taken in (``taken``). Nothing between knows these: a section, a template or a figure need not
ask which of its words are foreign. Each exit writes them as what they are there: ``in_markdown``,
``in_html``, ``in_figure``. What reads such text by its signs, as the names of kernels are read,
asks for ``plain``, and takes in again what it makes of it.
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
# Names of kernels are read whole, and shown short; rounds are numbers, and never shown.
LONG_NAMES, LONGEST_NAME = ("name",), 4000
NUMBERS = ("rounds_ms", "again_ms", "rounds_mhz")
# A sign only where it would mean something: `a_b` and `float32[4, 8]` stay as they are.
_SPECIAL = re.compile(
    r"[\\`*<|$~]"  # spans, tags, cells, mathematics
    r"|(?<![A-Za-z0-9_])_+|_+(?![A-Za-z0-9_])"  # emphasis; no legend has what begins with it
    r"|\](?=[(\[:])|&(?=#?\w+;)"  # links and entities
    r"|\{(?=[{%#])"  # what a site generator would execute
    r"|^[-+#=>\[]"  # lists, headings, quotations, definitions of links
)
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
# Control, direction and other format characters, surrogates, private and unassigned ones, breaks.
_UNSHOWN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


@lru_cache(maxsize=2**16)
def taken(text: str, longest: int = LONGEST) -> str:
    """The text in one line, cut, what cannot be seen made visible, its signs in private characters.

    Text that was taken in before stays as it is.
    """
    text = " ".join(text.split())
    if not (text.isascii() and text.isprintable()):
        text = "".join(map(_visible, text))
    if len(text) > longest:
        text = text[: longest - 1] + "…"
    return _SPECIAL.sub(lambda found: found[0].translate(_TO_PRIVATE), text)


def plain(text: str) -> str:
    """Text that was taken in with its signs as they were."""
    return text.translate(_PLAIN)


def in_markdown(text: str) -> str:
    """A finished Markdown text with the foreign signs in it escaped."""
    return text.translate(_IN_MARKDOWN)


def in_html(text: str) -> str:
    """Text with its foreign signs as entities, where Markdown is not read: inside a tag."""
    return text.translate(_IN_HTML)


def in_figure(svg: str) -> str:
    """A finished SVG with the foreign signs in it escaped."""
    return svg.translate(_IN_FIGURE)


def code(text: str) -> str:
    """A code span of foreign text, in which nothing but its end has a meaning."""
    return f"`{plain(taken(text)).replace('`', _REPLACEMENT)}`"


def link(name: str) -> str:
    """A directory's name as a part of a link."""
    return quote(name, safe="", errors="replace")


def taken_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with its text, and the names of its columns, taken in; itself if that is so."""
    texts = [name for name in frame if name not in NUMBERS and not _is_number(frame[name])]
    changed = {name: new for name in texts if (new := _taken_column(frame[name])) is not None}
    frame = frame.assign(**changed) if changed else frame
    names = {name: taken(name) for name in frame if taken(name) != name}
    return frame.rename(columns=names) if names else frame


def deep(form: Callable[[str], str], value: Any) -> Any:
    """What JSON can hold, with the text in it in another form, keys too."""
    if isinstance(value, str):
        return form(value)
    if isinstance(value, Mapping):
        return {deep(form, key): deep(form, one) for key, one in value.items()}
    return [deep(form, one) for one in value] if isinstance(value, list) else value


def _is_number(column: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(column)


def _taken_column(column: pd.Series) -> pd.Series | None:
    """The column taken in; None where it is so already."""
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
