"""Markdown as a forge reads it: what of a text is shown, and what it does."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from markdown_it import MarkdownIt
from markdown_it.token import Token

PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
SHOWN = ("text", "text_special", "softbreak", "code_inline")
# The tags that templates and tables write.
OWN_TAGS = re.compile(r"</?(details|summary|picture|source|img)\b[^<>]*>")


def tokens(text: str) -> Iterator[Token]:
    """Every token, those inside others too."""
    for token in PARSER.parse(text):
        yield token
        yield from token.children or ()


def shown(text: str) -> list[str]:
    """The text of each block as a reader sees it; anything that does more is in brackets."""
    return ["".join(map(_shown, block)) for block in blocks(text)]


def blocks(text: str) -> list[list[Token]]:
    """The tokens of each block of text."""
    return [token.children or [] for token in PARSER.parse(text) if token.type == "inline"]


def _shown(token: Token) -> str:
    return token.content if token.type in SHOWN else f"[{token.type}]"


def foreign_tags(text: str) -> list[str]:
    """Raw HTML that neither a template nor a table writes."""
    html = [t.content for t in tokens(text) if t.type in ("html_inline", "html_block")]
    return [rest for part in html if "<" in (rest := OWN_TAGS.sub("", part))]


def targets(text: str) -> list[str]:
    """Where links and pictures lead."""
    found = [t for t in tokens(text) if t.type in ("link_open", "image")]
    return [str(t.attrs.get("href") or t.attrs.get("src")) for t in found]


def ragged(text: str) -> list[str]:
    """The lines of pipe tables with another number of cells than the line before."""
    lines = text.splitlines()
    pairs = [(a, b) for a, b in itertools.pairwise(lines) if a[:1] == b[:1] == "|"]
    return [line for before, line in pairs if _pipes(before) != _pipes(line)]


def _pipes(line: str) -> int:
    return len(re.findall(r"(?<!\\)(?:\\\\)*\|", line))
