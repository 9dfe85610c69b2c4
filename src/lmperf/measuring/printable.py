"""Makes text from other programs safe for one line of a table, a log or a terminal."""

from __future__ import annotations


def one_line(text: str, limit: int = 240) -> str:
    """Return the text as one line of at most `limit` printable characters.

    Control characters, bidirectional controls and lone surrogates are escaped, e.g. as `\\x1b`.
    """
    words = " ".join(text[: 8 * limit].split())
    line = "".join(map(_visible, words[: 2 * limit]))
    return line if len(line) <= limit else line[: limit - 3] + "..."


def _visible(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode()
