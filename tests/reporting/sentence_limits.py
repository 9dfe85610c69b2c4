"""Limits of what a write-up prints: words and numbers of sentences, columns and lines of tables."""

from __future__ import annotations

import re

from lmperf.results import Statement, Table

WORDS, NUMBERS = 25, 3
COLUMNS, LINES = 7, 12
# Numbers that name something are not counted: "d_head 64", "size 2.0B", "batch 4", "(001)".
LABELS = r"\b(?:d_head|batch|arXiv|leaderboard) [\d.,]+|\b\d+(?:\.\d+)?B\b|\(00\d\)"
NUMBER = re.compile(r"(?<![\w.,-])[-+]?\d[\d,]*(?:\.\d+)?")


def sentences(text: str) -> list[str]:
    """The sentences of a text: each ends with a full stop before a space, or with the text."""
    return re.split(r"(?<=\.) ", text)


def assert_short(statement: Statement) -> None:
    """Assert that no sentence of a statement has too many words or numbers."""
    for sentence in sentences(statement.sentence):
        numbers = NUMBER.findall(re.sub(LABELS, "", sentence))
        words = sentence.replace(" %", "%").split()
        assert len(words) <= WORDS and len(numbers) <= NUMBERS, (numbers, len(words), sentence)


def assert_narrow(table: Table | None) -> None:
    """Assert that a table fits into a write-up."""
    if table is not None:
        assert len(table.columns) <= COLUMNS and table.length <= LINES, table.caption
