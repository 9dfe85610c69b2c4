"""Markdown of pages as HTML.

Tags in Markdown are those of templates and of `formats.html`: `untrusted.neutral` leaves none in
evidence.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache, lru_cache
from itertools import pairwise

from markdown_it import MarkdownIt
from markdown_it.token import Token

from lmperf.reporting.numbers import bare


def to_html(text: str) -> str:
    """A page as HTML, with anchors at headings and links that lead to the pages of the site."""
    parser = _parser(tags=True)
    return parser.renderer.render(_with_anchors(parser.parse(text)), parser.options, {})


@lru_cache(maxsize=2**14)
def inline(text: str) -> str:
    """One line of Markdown, such as a note or a cell with a link; tags in it are shown as text."""
    return _parser(tags=False).renderInline(text)


def anchor(heading: str) -> str:
    """The anchor that GitHub and GitLab derive from a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def target(link: str) -> str:
    """The file of the site that a link between two files of `report/` leads to."""
    path, sharp, place = link.partition("#")
    if re.match(r"[a-z]+:", path) or not path.endswith(".md"):
        return link
    path = re.sub(r"(^|/)report\.md$", r"\1index.md", path)
    return path.removesuffix(".md") + ".html" + sharp + place


@cache
def _parser(tags: bool) -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": tags}).enable(["table", "strikethrough"])
    parser.add_render_rule("link_open", _link)
    parser.add_render_rule("table_open", lambda *_: '<div class="scroll" tabindex="0"><table>\n')
    parser.add_render_rule("table_close", lambda *_: "</table></div>\n")
    return parser


def _link(renderer, tokens, place, options, env) -> str:
    token = tokens[place]
    token.attrSet("href", target(str(token.attrGet("href"))))
    return renderer.renderToken(tokens, place, options, env)


def _with_anchors(tokens: list[Token]) -> list[Token]:
    """The tokens with an anchor for each heading; like GitHub it numbers a repeated one."""
    seen = Counter[str]()
    for opening, content in pairwise(tokens):
        if opening.type == "heading_open":
            words = (
                child.content for child in content.children if child.type in ("text", "code_inline")
            )
            name = anchor(bare("".join(words)))
            opening.attrSet("id", f"{name}-{seen[name]}" if seen[name] else name)
            seen[name] += 1
    return tokens
