"""Turn the Markdown of a write-up or a page into HTML, with tables and figures from elsewhere.

`Blocks.form` stands in for `lmperf.reporting.markdown.markdown` while a page is rendered: around
the Markdown of each table it puts two signs of a private use area, between which ``html`` inserts
the table as HTML. Evidence cannot contain these signs (`lmperf.reporting.foreign.taken` replaces
them). HTML in Markdown is shown as text, except the few elements that the templates of reports use.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, lru_cache
from html import escape, unescape
from itertools import pairwise

from markdown_it import MarkdownIt
from markupsafe import Markup

from lmperf.reporting.foreign import in_markdown
from lmperf.reporting.markdown import markdown
from lmperf.results import Table

# Where pages of a machine link to the published figures of other projects, and their folder here.
PUBLISHED, PUBLISHED_FOLDER = "src/lmperf/reporting/published/", "published"
_START, _NUMBERED, _END = "\ue900", "\ue901", "\ue902"
_BLOCK = re.compile(rf"{_START}(\d+){_NUMBERED}.*?{_END}", re.DOTALL)
_PLACE = re.compile(rf"<p>{_START}(\d+){_NUMBERED}</p>")
_DETAILS = re.compile(r"<details>\n<summary>([^<]*)</summary>\s*")
_PICTURE = re.compile(
    r'<picture>\n<source media="[^"]*" srcset="([^"]*)">\n'
    r'<img alt="([^"]*)" src="([^"]*)" width="100%">\n</picture>\s*'
)


@dataclass
class Blocks:
    """The tables of one page, in the order in which they were rendered.

    Attributes:
        table: makes HTML from a table.
        picture: makes HTML from the alternative text of a figure, and its dark and light file.
    """

    table: Callable[[Table], str]
    picture: Callable[[str, str, str], str]
    tables: list[Table] = field(default_factory=list)

    def form(self, table: Table, **options) -> str:
        """Markdown of a table, which ``html`` will replace; see `markdown` for the arguments."""
        self.tables.append(table)
        opening = f"{_START}{len(self.tables) - 1}{_NUMBERED}"
        return f"{opening}\n\n{markdown(table, **options)}\n\n{_END}"

    def html(self, text: str) -> Markup:
        """The HTML of Markdown that was rendered with ``form``."""
        text = _BLOCK.sub(rf"{_START}\1{_NUMBERED}", text)
        tokens = _parser().parse(text, env := {"picture": self.picture})
        made = _parser().renderer.render(_with_anchors(tokens), _parser().options, env)
        return Markup(_PLACE.sub(lambda place: self.table(self.tables[int(place[1])]), made))


@lru_cache(maxsize=2**14)
def inline(text: str) -> Markup:
    """The HTML of one line of Markdown, such as a sentence or a cell with a link."""
    return Markup(_parser().renderInline(in_markdown(text)))


def anchor(heading: str) -> str:
    """The anchor that GitHub and GitLab derive from a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def target(link: str) -> str:
    """The file of the site that a link between two files of `report/` leads to."""
    path, sharp, place = link.partition("#")
    if PUBLISHED in path:
        return f"../{PUBLISHED_FOLDER}/{path.rpartition('/')[2]}"
    if re.match(r"[a-z]+:", path) or not path.endswith(".md"):
        return link
    path = re.sub(r"(^|/)report\.md$", r"\1index.html", path)
    return re.sub(r"\.md$", ".html", path) + sharp + place


@cache
def _parser() -> MarkdownIt:
    made = MarkdownIt("commonmark", {"html": True}).enable("table")
    made.add_render_rule("html_block", _html_block)
    made.add_render_rule("html_inline", _as_text)
    made.add_render_rule("link_open", _link)
    made.add_render_rule("table_open", lambda *_: '<div class="scroll" tabindex="0"><table>\n')
    made.add_render_rule("table_close", lambda *_: "</table></div>\n")
    return made


def _html_block(renderer, tokens, place, options, env) -> str:
    text = tokens[place].content
    if found := _PICTURE.fullmatch(text):
        return env["picture"](unescape(found[2]), found[1], found[3])
    if found := _DETAILS.fullmatch(text):
        return f"<details>\n<summary>{escape(unescape(found[1]))}</summary>\n"
    return "</details>\n" if text.strip() == "</details>" else f"<p>{escape(text)}</p>\n"


def _as_text(renderer, tokens, place, options, env) -> str:
    return escape(tokens[place].content)


def _link(renderer, tokens, place, options, env) -> str:
    token = tokens[place]
    token.attrSet("href", target(str(token.attrGet("href"))))
    return renderer.renderToken(tokens, place, options, env)


def _with_anchors(tokens: list) -> list:
    """The tokens with an anchor for each heading; like GitHub it numbers a repeated one."""
    seen = Counter[str]()
    for opening, content in pairwise(tokens):
        if opening.type == "heading_open":
            name = anchor("".join(_texts(content)))
            opening.attrSet("id", f"{name}-{seen[name]}" if seen[name] else name)
            seen[name] += 1
    return tokens


def _texts(token) -> list[str]:
    return [each.content for each in token.children if each.type in ("text", "code_inline")]
