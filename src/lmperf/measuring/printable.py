"""Text that others wrote, made fit for a line of a table, a log or a terminal."""

from __future__ import annotations


def one_line(text: str, limit: int = 240) -> str:
    """Text in one line of at most `limit` characters, of which all can be encoded and seen.

    Control characters, those that turn the direction of what follows, and lone surrogates appear as
    escapes: `\\x1b`.
    """
    words = " ".join(text[: 8 * limit].split())
    line = "".join(map(_visible, words[: 2 * limit]))
    return line if len(line) <= limit else line[: limit - 3] + "..."


def _visible(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode()
