"""The limits of a write-up: lengths of sentences, sizes of tables, lines and bytes."""

from __future__ import annotations

import itertools
import re

from lmperf.names import size_in_full
from lmperf.transformer.sizes import SIZES

WORDS, NUMBERS = 25, 3
COLUMNS, LINES = 7, 12
WRITE_UP_LINES, WRITE_UP_BYTES = 300, 80_000
# Names that contain digits, in any text: model sizes, tables, write-ups, arXiv, dtypes in prose.
NAMES = re.compile(
    "|".join(
        [
            *(re.escape(size_in_full(size.short)) for size in SIZES.values()),
            *(rf"\b{re.escape(size.short)}(?!\w)" for size in SIZES.values() if size.short),
            r"\bwrite-ups? \(?0\d\d( to 0\d\d)?\)?|\(00\d\)|\b[A-Z]\d\b|arXiv[: ][\d.]+",
        ]
    )
)
NUMBER = re.compile(r"(?<![\w.,-])[-+]?\d[\d,.]*")


def sections(write_up: str) -> dict[str, str]:
    """Heading -> text below it; the text before the first heading has the key ``""``."""
    parts = re.split(r"^## (.*)$", write_up, flags=re.MULTILINE)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def sentences(text: str) -> list[str]:
    """The sentences of Markdown: not those of headings, captions, lists of facts, HTML, tables."""
    lines = text.splitlines()
    prose = [line for line in lines if line.strip() and not _is_no_prose(line)]
    starts = [i for i, line in enumerate(prose) if not line.startswith("  ")]
    blocks = [
        " ".join(line.strip() for line in prose[a:b])
        for a, b in itertools.pairwise([*starts, len(prose)])
    ]
    return [
        sentence
        for block in blocks
        for sentence in re.split(r"(?<=[.!?])\s+", _plain(block))
        if re.search(r"\w", sentence)
    ]


def _is_no_prose(line: str) -> bool:
    caption = line.startswith("**") and line.rstrip().endswith("**")
    return caption or line[:1] in "#|<" or " · " in line or line.startswith("Further pages:")


def _plain(text: str) -> str:
    text = re.sub(r"^\s*- ", "", text)
    text = re.sub(r" \[[^\]]*\]\([^)]*\)$", "", text)  # the link at the end of a finding
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "code", text))


def faults(text: str) -> list[str]:
    """What in a text exceeds a limit of sentences and tables, one line each."""
    return [*_long(text), *_wide(text)]


def _long(text: str) -> list[str]:
    found = []
    for sentence in sentences(text):
        words = [word for word in sentence.split() if re.search(r"\w", word)]
        numbers = NUMBER.findall(NAMES.sub("name", sentence))
        if len(words) > WORDS or len(numbers) > NUMBERS:
            found.append(f"{len(words)} words, {len(numbers)} numbers: {sentence}")
    return found


def _wide(text: str) -> list[str]:
    found = []
    for is_table, group in itertools.groupby(text.splitlines(), lambda line: line[:1] == "|"):
        lines = list(group)
        if is_table:
            columns, length = len(re.findall(r"(?<!\\)\|", lines[0])) - 1, len(lines) - 2
            if columns > COLUMNS or length > LINES:
                found.append(f"{columns} columns, {length} lines: {lines[0]}")
    return found
