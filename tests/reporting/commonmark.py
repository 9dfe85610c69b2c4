"""Parse Markdown as GitHub does, to find its visible text, links and raw HTML."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from markdown_it import MarkdownIt
from markdown_it.token import Token

PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
SHOWN = ("text", "text_special", "softbreak", "code_inline")
# The only HTML tags that the templates and tables of the report write.
REPORT_TAGS = re.compile(r"</?(details|summary|picture|source|img)\b[^<>]*>")


def tokens(text: str) -> Iterator[Token]:
    """Every token of the parsed text, including tokens nested in others."""
    for token in PARSER.parse(text):
        yield token
        yield from token.children or ()


def shown(text: str) -> list[str]:
    """The visible text of each block; other tokens appear as ``[type]``."""
    return ["".join(map(_shown, block)) for block in blocks(text)]


def blocks(text: str) -> list[list[Token]]:
    """The inline tokens of each block."""
    return [token.children or [] for token in PARSER.parse(text) if token.type == "inline"]


def _shown(token: Token) -> str:
    return token.content if token.type in SHOWN else f"[{token.type}]"


def foreign_tags(text: str) -> list[str]:
    """Each piece of raw HTML in the text that is not one of REPORT_TAGS."""
    html = [t.content for t in tokens(text) if t.type in ("html_inline", "html_block")]
    return [rest for part in html if "<" in (rest := REPORT_TAGS.sub("", part))]


def targets(text: str) -> list[str]:
    """The target of each link and image in the text."""
    found = [t for t in tokens(text) if t.type in ("link_open", "image")]
    return [str(t.attrs.get("href") or t.attrs.get("src")) for t in found]


def ragged(text: str) -> list[str]:
    """Table lines whose number of cells differs from that of the line before."""
    lines = text.splitlines()
    pairs = [(a, b) for a, b in itertools.pairwise(lines) if a[:1] == b[:1] == "|"]
    return [line for before, line in pairs if _pipes(before) != _pipes(line)]


def _pipes(line: str) -> int:
    return len(re.findall(r"(?<!\\)(?:\\\\)*\|", line))
