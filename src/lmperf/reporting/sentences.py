"""What a template says where a value is missing: sentences and clauses that go with their values.

    A step takes {{ step.ms | sig }} ms[[ ({{ step.power_w | whole }} W)]].
    It runs [[at {{ rate | sig }} TFLOP/s||in float32]].

A sentence ends where a line ends with a full stop. It is left out if a value in it is missing. So
is a [[clause]]; of [[one||another]] the first that is complete stays. A heading goes with the last
sentence below it, and what stands directly below a missing figure or table goes with it. A bold
question that begins a paragraph or an item, and the links at its end, go with its answer. In a row
of a table that a template writes, a missing value is a dash. The sentences of a paragraph stand on
one line.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import pandas as pd
from jinja2 import Environment, TemplateSyntaxError
from jinja2.ext import Extension
from jinja2.lexer import Token
from jinja2.runtime import Context, Macro

from lmperf.errors import UserError
from lmperf.reporting import numbers
from lmperf.reporting.cells import EMPTY
from lmperf.reporting.words import FILTERS, NotMeasured, absent, sig, whole

# Private characters, of which `untrusted.neutral` leaves none in evidence: a missing value, and the
# marks of a clause, so that brackets in a value are never taken for those of a template.
MISSING, OPEN, OTHERWISE, CLOSE = "\ue000", "\ue001", "\ue002", "\ue003"
MARKS = {"[[": OPEN, "||": OTHERWISE, "]]": CLOSE}
CLAUSE = re.compile(f"{OPEN}([^{OPEN}{CLOSE}]*){CLOSE}")
ASKED = re.compile(r"\*\*.*\?\*\*")  # a question, the first line of its answer
ENDED = re.compile(r"[.!?][*_)`\"]*$")
HEADING = re.compile(r"(#+) ")
ITEM = re.compile(r"\s*(?:-|\d+\.) ")
VERBATIM = re.compile(r"[|<>]|!\[")  # tables, HTML, quotations, images: lines of their own
FIELD = re.compile(r"\{([\w.]+)(?::(\w+))?\}")


class Missing:
    """A value that was not measured, and what is taken or computed from it.

    It is false and has no elements. To compare it with a text is an error: a condition that names a
    kind or a dtype would choose the other branch without a word.
    """

    __hash__ = None
    __array_ufunc__ = None  # so that a number of numpy leaves arithmetic to it

    def __getattr__(self, name: str) -> Missing:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def _same(self, *_, **__) -> Missing:
        return self

    __getitem__ = __call__ = __neg__ = __abs__ = _same
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _same
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _same
    __pow__ = __rpow__ = __lt__ = __gt__ = __le__ = __ge__ = _same

    def __eq__(self, other) -> Missing:
        if isinstance(other, str):
            words = "ask {% if %} for it first"
            raise UserError(f"a value that was not measured is compared with {other!r}; {words}")
        return self

    __ne__ = __eq__

    def __float__(self) -> float:
        raise UserError("a value that was not measured is formatted; use a filter, such as sig")

    __int__ = __index__ = __float__

    def __bool__(self) -> bool:
        return False

    def __iter__(self):
        return iter(())

    def __len__(self) -> int:
        return 0

    def __str__(self) -> str:
        return MISSING


def tried(make: Callable, *args, **named):
    """What a function returns; `Missing` if a value that it takes or needs is missing."""
    if any(map(_lacks, (*args, *named.values()))):
        return Missing()
    try:
        return make(*args, **named)
    except NotMeasured:
        return Missing()


def _lacks(value) -> bool:
    within = value if isinstance(value, list | tuple) else (value,)
    return any(isinstance(element, Missing) for element in within)


class Calls(Context):
    """Calls of a template; what a missing value is given to is missing, too.

    Macros keep the marks of numbers, which functions in Python do not see.
    """

    def call(self, make: Callable, *args, **named):
        if not isinstance(make, Macro):
            args = [_bare(arg) for arg in args]
            named = {k: _bare(value) if k != "caller" else value for k, value in named.items()}
        return tried(super().call, make, *args, **named)


def _bare(value):
    """What a function in Python gets of a text or a macro: no marks of numbers."""
    if isinstance(value, Macro):
        return lambda *args: numbers.bare(value(*args))
    return numbers.bare(value) if isinstance(value, str) else value


class Clauses(Extension):
    """Mark the clauses in the text of a template."""

    def filter_stream(self, stream):
        opened = []
        for token in stream:
            if token.type == "data":
                token = Token(token.lineno, "data", marked(token.value))
                for mark in re.finditer(f"[{OPEN}{CLOSE}]", token.value):
                    if mark[0] == OPEN:
                        opened.append(token.lineno + token.value[: mark.start()].count("\n"))
                    elif opened:
                        opened.pop()
            yield token
        if opened:
            words = "a clause that begins with [[ has no ]]"
            raise TemplateSyntaxError(words, opened[-1], stream.name, stream.filename)


def marked(text: str) -> str:
    """A text of a template with marks in place of `[[`, `||` and `]]`."""
    for written, mark in MARKS.items():
        text = text.replace(written, mark)
    return text


def tolerant(make: Callable, of_value: bool = False) -> Callable:
    """A filter that is missing for what is missing; `of_value`: also for None and NaN."""

    @wraps(make)
    def filtered(*args, **named):
        if of_value and absent(args[0]):
            return Missing()
        result = tried(make, *args, **named)
        if not of_value:
            return result
        if isinstance(result, str):
            return numbers.words(result, args[0])
        return numbers.with_keys(result, numbers.keys_of(args[0]))

    return filtered


def printed(value):
    """What an expression of a template prints."""
    if absent(value):
        return MISSING
    return _in_words(value, "{:.12g}".format if isinstance(value, float) else str)


def _in_words(value, form: Callable[[Any], str]) -> str:
    """A value as text, with the mark of its number."""
    text = tried(form, value)
    return str(text if isinstance(text, Missing) else numbers.words(text, value))


def prepare(env: Environment) -> None:
    """Give an environment the vocabulary of this module, for all filters that it has so far."""
    env.context_class, env.finalize = Calls, printed
    env.filters = {
        name: tolerant(make, make in FILTERS.values()) for name, make in env.filters.items()
    }
    env.filters["each"] = tolerant(partial(each, env))


def each(
    env: Environment, rows, pattern: str, rest: str = "", join: str = ", ", last: str = ""
) -> str | Missing:
    """What a pattern says of each row, such as `{size}: {ms}[[ ({batch:whole} tokens)]]`.

    A field is a column, its attributes and a filter, `{way.words}`, `{share:percent}`. A row that
    lacks a value outside of clauses makes the text missing, and so does having no rows.

    rows: a frame, `Rows`, or tuples with the fields `{0}`, `{1}`.
    rest: the pattern of rows after the first. last: what joins the last two instead of `join`.

    Raises:
        UserError: the rows have no such column, or there is no such filter.
    """
    rows = getattr(rows, "frame", rows)
    lines = [row for _, row in rows.iterrows()] if isinstance(rows, pd.DataFrame) else [*rows]
    patterns = [pattern, *[rest or pattern] * (len(lines) - 1)]
    texts = [_filled(env, *line) for line in zip(patterns, lines, strict=False)]
    if not texts or any(MISSING in text for text in texts):
        return Missing()
    if last and len(texts) > 1:
        texts = [*texts[:-2], texts[-2] + last + texts[-1]]
    return join.join(texts)


def _filled(env: Environment, pattern: str, row) -> str:
    def value(field: re.Match) -> str:
        name, *attributes = field[1].split(".")
        try:
            content = row[int(name) if name.isdecimal() else name]
        except (KeyError, IndexError):
            raise UserError(f"each: the rows have no column {name}") from None
        for attribute in attributes:
            content = env.getattr(content, attribute)
        if field[2] and field[2] not in env.filters:
            raise UserError(f"each: there is no filter {field[2]}")
        if absent(content) or isinstance(content, Missing):
            return MISSING
        if isinstance(row, pd.Series):
            content = numbers.with_keys(content, numbers.keys_of(row))
        if field[2]:
            return str(env.filters[field[2]](content))
        is_number = isinstance(content, int | float) and not isinstance(content, bool)
        form = (sig if isinstance(content, float) else whole) if is_number else str
        return _in_words(content, form)

    return complete(FIELD.sub(value, marked(pattern)), keep=True)


def finished(text: str) -> str:
    """The Markdown of a page without what lacks a value.

    It has no two empty lines, and none below a heading.
    """
    blocks: list[tuple[str, list[str]]] = []  # kind, lines; an empty line is a block
    for line in text.splitlines():
        kind, before = _kind(line), blocks[-1][0] if blocks else ""
        if before == "code" and not _is_whole(blocks[-1][1]):
            blocks[-1][1].append(line.rstrip())
        elif kind == "prose" and before in ("prose", "item"):
            blocks[-1][1].append(line.strip())
        else:
            blocks.append((kind, [line.strip() if kind in ("line", "prose") else line.rstrip()]))
    texts = [_complete_block(*block) for block in blocks]
    lost = [bool(any(lines)) and not words for (_, lines), words in zip(blocks, texts, strict=True)]
    levels = [len(heading[1]) if (heading := HEADING.match(words)) else 0 for words in texts]
    for place in reversed(range(len(texts))):
        if level := levels[place]:
            ends = (n for n, other in enumerate(levels) if n > place and 0 < other <= level)
            below = slice(place + 1, next(ends, len(texts)))
            if any(lost[below]) and not any(texts[below]):
                texts[place], lost[place] = "", True
    kept = [words for words, is_lost in zip(texts, lost, strict=True) if not is_lost]
    text = re.sub(r"^(#+ .*\n)\n+", r"\1", "\n".join(kept), flags=re.MULTILINE)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def _kind(line: str) -> str:
    begun = line.lstrip()
    if not begun or HEADING.match(begun) or VERBATIM.match(begun):
        return "line"
    if begun.startswith("```"):
        return "code"
    return "item" if ITEM.match(line) else "prose"


def _is_whole(code: list[str]) -> bool:
    return len(code) > 1 and code[-1].strip() == "```"


def _complete_block(kind: str, lines: list[str]) -> str:
    if kind == "code":
        return unmarked("\n".join(lines)) if not any(MISSING in line for line in lines) else ""
    if kind == "line":
        row = lines[0].replace(MISSING, EMPTY) if lines[0].startswith("|") else lines[0]
        return complete(row)
    sign = ITEM.match(lines[0])[0] if kind == "item" else ""
    text = paragraph("\n".join([lines[0].removeprefix(sign), *lines[1:]]))
    return sign + text if text else ""


def paragraph(text: str) -> str:
    """The sentences of a paragraph or an item on one line, without those that lack a value."""
    sentences, begun = [], []
    for line in filter(None, map(str.strip, text.splitlines())):
        if line == MISSING and not sentences and not begun:
            return ""  # a figure or table, and what stands below it
        begun.append(line)
        if ENDED.search(line.rstrip(CLOSE)):
            sentences.append(begun)
            begun = []
    texts = [complete(" ".join(lines)) for lines in [*sentences, begun]]
    first, *others = texts
    if sentences and ASKED.fullmatch(sentences[0][0]) and not (first and any(others[:-1])):
        return ""
    return " ".join(filter(None, texts))


def complete(sentence: str, keep: bool = False) -> str:
    """A sentence without the clauses that lack a value; empty if one is missing elsewhere.

    keep: return the sentence with the mark of the missing value.
    """
    while CLAUSE.search(sentence):
        sentence = CLAUSE.sub(_first_complete, sentence)
    return unmarked(sentence) if keep or MISSING not in sentence else ""


def unmarked(text: str) -> str:
    """A text with what a template has written in place of marks that are no clause."""
    for written, mark in MARKS.items():
        text = text.replace(mark, written)
    return text


def _first_complete(clause: re.Match) -> str:
    return next((part for part in clause[1].split(OTHERWISE) if MISSING not in part), "")
