"""Render a page: a Jinja template with a vocabulary over evidence.

    rows("lrpe")                            the rows of a benchmark: `Rows`
    section("lrpe")                         selections and calculations of a section
    published_figure("lrpe", source=...)    the first published figure with these values
    {% filter table(rows) %}                tables as they read; see `table_text.Written`
    {{ ready(table) }}                      a table that a calculation has made
    {{ every_row("softmax") }}              tables with all rows of a benchmark
    {{ line_chart(title, rows, ...) }}      a figure; also bar and area charts
    {{ rows | each("{size}: {ms}") }}       what a pattern says of each row
    {% call finding() %}                    sentences in a list
    {% call finding("name") %}              those that the course's problems repeat:
    {{ said("lrpe", "name") }}              what findings of another page say
    {% call note() %}                       a note of the author
    ... {{ ms }} ms[[ ({{ power }} W)]].    a sentence, and a clause, that go with their values;
                                            see `sentences`

Templates of the user's repository come before ours, which they extend as `lmperf/<name>`.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path

import pandas as pd
from jinja2 import (
    ChoiceLoader,
    Environment,
    FileSystemLoader,
    PrefixLoader,
    StrictUndefined,
    pass_context,
)
from jinja2.exceptions import TemplateError, TemplateNotFound, UndefinedError
from jinja2.runtime import Context, Macro

from lmperf.benchmarks import load, stems
from lmperf.errors import UserError, kept, meant, message_of, trace_of
from lmperf.reporting import (
    figures,
    formats,
    measured,
    numbers,
    sentences,
    table_text,
    tables,
    untrusted,
)
from lmperf.reporting.calculations.reasons import reasons
from lmperf.reporting.cells import Table
from lmperf.reporting.columns import Quantity
from lmperf.reporting.evidence import Evidence
from lmperf.reporting.frames import required
from lmperf.reporting.html import to_html
from lmperf.reporting.published import figure
from lmperf.reporting.rows import Rows, no_column
from lmperf.reporting.sections import Section
from lmperf.reporting.user_templates import GENERIC, REPORT, SUFFIX, check
from lmperf.reporting.words import FILTERS
from lmperf.workflow import TEMPLATES

CHARTS = ("line_chart", "bar_chart", "area_chart", "time_line")
# Messages about notes in the user's templates of which nothing is left; None: nobody lists them.
lost_notes: ContextVar[list[str] | None] = ContextVar("lost_notes", default=None)


class Templates(Environment):
    """Jinja that does not take an error inside one of our attributes for a missing attribute.

    Of rows, `rows.size` and `row.dtype` are values, not attributes of pandas.
    """

    def getattr(self, obj, attribute):
        return sentences.tried(self._attribute, obj, attribute)

    def getitem(self, obj, argument):
        value = sentences.tried(super().getitem, obj, argument)
        return (
            numbers.with_keys(value, numbers.keys_of(obj)) if isinstance(obj, pd.Series) else value
        )

    def _attribute(self, obj, attribute):
        if isinstance(obj, pd.Series) and attribute in obj.index:
            return numbers.with_keys(obj[attribute], numbers.keys_of(obj))
        if isinstance(obj, pd.DataFrame) and attribute in obj:
            return numbers.column(obj, attribute)
        if isinstance(obj, Section | Rows | Evidence) and hasattr(type(obj), attribute):
            return getattr(obj, attribute)
        if isinstance(obj, pd.Series) and not hasattr(obj, attribute):
            raise no_column("the row", attribute, obj.index)
        return super().getattr(obj, attribute)


@cache
def load_templates(own: Path | None = None) -> Templates:
    """The Jinja environment over our templates, and before them those of a user's folder.

    Raises:
        UserError: a template of the user cannot be right; see `user_templates.check`.
    """
    ours = FileSystemLoader(TEMPLATES)
    folders = [FileSystemLoader(own, "utf-8-sig")] if own else []
    loader = ChoiceLoader([*folders, ours, PrefixLoader({"lmperf": ours})])
    env = Templates(
        loader=loader,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        extensions=[sentences.Clauses],
    )
    env.filters |= {**FILTERS, "code": untrusted.code, "link": untrusted.link}
    sentences.prepare(env)
    env.filters |= {"finished": sentences.finished, "table": written_table}
    if own:
        try:
            check(env, own)
        except TemplateError as error:
            raise _located(error) from error
    return env


@dataclass
class Page:
    """A page of the report of one machine.

    Attributes:
        name: of the template, without suffix: a stem, `report`, `course`.
        form: `markdown` or `html`.
        own: folder of the user's templates.
        root: prefix of the links to files of this machine.
        said: the sentences that the page has.
        named: those that have a name, by name.
        tables, figures: what the template has shown, as data; name of a figure -> specification.
        numbers: those that the sentences of the page print, and the tables of the first page.
        text: the page, once it is rendered.
        printed: the numbers that the pages of a report print, in the order of their marks.
        quotable: page -> its sentences that the pages of a report may quote, by name.
    """

    name: str
    evidence: Evidence
    form: str = "markdown"
    own: Path | None = None
    root: str = ""
    said: list[str] = field(default_factory=list)
    named: dict[str, str] = field(default_factory=dict)
    tables: list[Table] = field(default_factory=list)
    figures: dict[str, figures.Spec] = field(default_factory=dict)
    numbers: list[numbers.Entry] = field(default_factory=list)
    printed: list[numbers.Number] = field(default_factory=list, repr=False)
    quotable: dict[str, dict[str, str]] = field(default_factory=dict, repr=False)
    text: str = field(default="", init=False)
    told: bool = field(default=False, init=False)

    def render(self, **further) -> str:
        """The page in Markdown or HTML.

        further: values that the template may name, in addition to the vocabulary.

        Raises:
            UserError: the template names a value, column, axis or filter that does not exist, or
                has a syntax error; with its file and line.
        """
        templates, is_benchmark = load_templates(self.own), self.name in stems()
        plain = Section(self.evidence)
        own = ("table", "ready", "every_row", "finding", "note", "rows")
        values = {name: getattr(self, name) for name in own} | {
            "said": self.quoted,
            "reasons": partial(reasons, self.evidence),
            "evidence": self.evidence,
            "others": self.evidence.others,
            "machine": self.evidence.environment,
            "root": self.root,
            "stem": self.name,
            "title": load(self.name).title if is_benchmark else self.name,
            "stems": stems_of(self.name),
            "section": plain.of,
            "table_rows": plain.table_rows,
            "published_figure": figure,
            "pages": {},
            "overview": False,
            **{name: self._chart(name) for name in CHARTS},
        }
        token = numbers.printing.set(self.printed)
        try:
            names = [self.name, *([GENERIC] if is_benchmark else [])]
            template = templates.select_template([name + SUFFIX for name in names])
            text = template.render(values | further)
            text = sentences.finished(text)
            self.numbers = [*numbers.entries(self.name, text)]
            is_first = self.name == REPORT
            self.numbers += numbers.entries_of(self.name, self.tables if is_first else ())
            plain_text, is_markdown = numbers.bare(text), self.form == "markdown"
            self.said += re.findall(rf"^- ({sentences.ASKED.pattern}.*)", plain_text, re.MULTILINE)
            self.text = plain_text if is_markdown else numbers.linked(to_html(text))
        except Exception as error:
            raise _located(error) from error
        finally:
            numbers.printing.reset(token)
        return self.text

    def rows(self, stem: str) -> Rows:
        """The rows of a benchmark."""
        if stem not in stems():
            raise UserError(f"there is no benchmark {stem}; {meant(stem, stems())}")
        return Rows(self.evidence, stem, self.evidence.rows(stem))

    def table(
        self,
        text: str,
        rows: Rows,
        columns: Sequence[Quantity] = (),
        *,
        split: str = "",
        again: bool = True,
        folds: bool = True,
        italic: str = Table.italic,
        **layout,
    ) -> str:
        """The tables that a template writes; nothing without rows.

        Tables of one title stand below one heading.
        text: see `table_text.Written`. columns: those at `{...}`. split: names of axes, separated
        by blanks. again, folds, italic: see `Table`. layout: see `tables.Layout`.
        """
        written = table_text.written(text, rows, columns)
        heads = {axis: header for axis, header in written.axes.items() if header}
        layout = {"what": written.caption, "note": written.note, "heads": heads} | layout
        layout = tables.Layout([*written.axes], written.columns, split.split(), **layout)
        number = re.match(r"([A-Z]\d+)\. ", written.title)
        named = {"id": number[1] if number else "", "title": written.title}
        more = {"again": again and bool(rows.stem), "folds": folds, "italic": italic}
        ready = [replace(table, **named, **more) for table in layout.tables(rows)]
        is_first = all(written.title != shown.title for shown in self.tables)
        heading = [f"## {written.title}"] * bool(written.title and ready and is_first)
        return "\n\n".join([*heading, *map(self.ready, ready)])

    def every_row(self, stem: str) -> str:
        """Tables with all rows of a benchmark."""
        return "\n\n".join(map(self.ready, measured.tables(self.evidence, load(stem))))

    def ready(self, table: Table) -> str:
        """A table that a calculation has made."""
        self.tables.append(replace(table, notes=numbers.bare(table.notes)))
        text = formats.FORMATS[self.form](table)
        # The first table of a page shows how.
        if self.told or not (key := formats.again(table)):
            return text
        self.told = True
        command = f"Measure a row again: `lmperf run --row {key} --against {self.evidence.link}`"
        if self.form == "markdown" and text.endswith("</details>"):
            return f"{text.removesuffix('</details>')}{command}\n\n</details>"
        return f"{text}\n\n{command}"

    def _chart(self, kind: str):
        def draw(title: str, *args, name: str = "", **options) -> str:
            title = sentences.complete(" ".join(title.split()))
            required(title, "a value in the title of the figure is missing")
            args = [arg.drawn if isinstance(arg, Rows) else arg for arg in args]
            return self._figure(getattr(figures, kind)(title, *args, **options), name)

        return draw

    def _figure(self, spec: figures.Spec, name: str) -> str:
        """A figure as an image; `name`: of its files, by default that of the page."""
        name = name or (f"{self.name}-{len(self.figures) + 1}" if self.figures else self.name)
        self.figures[name] = spec
        alt = untrusted.neutral(" ".join(spec["title"]["text"]))
        path = f"{self.root}figures/{name}"
        image = f'<img alt="{alt}" src="{path}-light.svg">'
        dark = f'<source media="(prefers-color-scheme: dark)" srcset="{path}-dark.svg">'
        picture = f"<picture>{dark}{image}</picture>"
        # An empty line ends the element, so that a caption below it is Markdown again.
        framed = f'<figure data-spec="{name}">{picture}</figure>\n'
        return picture if self.form == "markdown" else framed

    @property
    def svgs(self) -> dict[str, str]:
        """Path of each figure in both themes -> SVG."""
        return {
            f"figures/{name}-{theme}.svg": svg
            for name, spec in self.figures.items()
            for theme, svg in figures.svgs(spec).items()
        }

    def finding(self, name: str = "", caller=None) -> str:
        """Sentences as an item of a list."""
        text = sentences.paragraph(caller())
        if not text:
            return ""
        self.said.append(numbers.bare(text))
        if name:
            self.named[name] = text
        return f"- {text}\n"

    def quoted(self, page: str, *names: str) -> str:
        """What the findings with these names on another page of lmperf say.

        A missing sentence if there are none: a user's template of the page may lack them.
        """
        if {*stems_of(page)}.isdisjoint(self.evidence.stems):
            return f"{sentences.MISSING}."
        if page not in self.quotable:
            # What is quoted keeps its marks, so both pages share their numbers.
            other = Page(page, self.evidence, printed=self.printed, quotable=self.quotable)
            other.render()
            self.quotable[page] = other.named
        named = self.quotable[page]
        return " ".join(named[name] for name in names if name in named) or f"{sentences.MISSING}."

    def note(self, caller=None) -> str:
        """A note of the author; `lost_notes` has the place of one of which nothing is left."""
        written = caller()
        text = sentences.paragraph(written)
        if not text and (place := self._place(caller)) and (lost := lost_notes.get()) is not None:
            is_missing = sentences.MISSING in written
            why = "a value in it is missing" if is_missing else "a condition in it does not hold"
            lost.append(f"{place}: this note is left out: {why}")
        return f"> **Author's note.** {text}\n" if text else ""

    def _place(self, block: Macro) -> str:
        """File and line of a block of a template, if it is in one of the user's."""
        function = block._func
        template = function.__globals__["__jinja_template__"]
        if not self.own or self.own not in Path(template.filename).parents:
            return ""
        line = template.get_corresponding_lineno(function.__code__.co_firstlineno)
        return f"{template.filename}:{line}"


def stems_of(page: str) -> list[str]:
    """The benchmarks that a page shows: its own, then those that declare it as their section."""
    others = [stem for stem in stems() if load(stem).section == page]
    return [page, *others] if page in stems() else []


def question(name: str, own: Path | None = None) -> str:
    """The question of a template; empty if it has none, or one that names values of evidence.

    Raises:
        UserError: the template has a syntax error.
    """
    try:
        template = load_templates(own).get_template(name + SUFFIX)
        block = template.blocks.get("question")
        return sentences.paragraph("".join(block(template.new_context()))) if block else ""
    except UndefinedError:
        return ""
    except Exception as error:
        raise _located(error) from error


@pass_context
def written_table(
    context: Context, text: str, rows: Rows, columns: Sequence[Quantity] = (), **options
) -> str:
    """`Page.table` of the page that is rendered; missing without rows."""
    return f"{sentences.tried(context['table'], text, rows, columns, **options)}\n"


def _located(error: Exception) -> UserError:
    """The error as one line with the innermost template's file and line."""
    message = " ".join(message_of(error).split())
    if isinstance(error, TemplateNotFound):
        return UserError(f"there is no template {error.name}")
    if isinstance(error, TemplateError) and getattr(error, "lineno", None):
        return UserError(f"{error.filename or error.name}:{error.lineno}: {message}")
    frames = traceback.extract_tb(error.__traceback__)
    in_templates = [frame for frame in frames if frame.filename.endswith(".j2")]
    if not in_templates:
        raise error
    if isinstance(error, KeyError):
        message = f"there is no {message}"
    if not isinstance(error, UserError | TemplateError | KeyError):
        message = f"{type(error).__name__}: {message}{kept(trace_of(error))}"
    return UserError(f"{in_templates[-1].filename}:{in_templates[-1].lineno}: {message}")
