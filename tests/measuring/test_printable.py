"""Tests that text from other code is reduced to one printable line."""

import pytest

from lmperf.measuring.failures import failure_row
from lmperf.measuring.printable import one_line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("für die Größe: 1\u2009µs, 漢字, é", "für die Größe: 1 µs, 漢字, é"),
        ("a\n  b\tc\r\n", "a b c"),
        ("\ud800 lone", r"\ud800 lone"),
        ("nul \0 esc \x1b[31m", r"nul \x00 esc \x1b[31m"),
        ("\u202eright to left\u2066", r"\u202eright to left\u2066"),
    ],
)
def test_line_is_encodable_and_visible(text, line):
    assert one_line(text) == line
    line.encode()


def test_line_is_at_most_the_limit():
    for text in ("x" * 2**20, "\0" * 2**20, "a b " * 2**18):
        assert len(one_line(text, limit=50)) == 50


class Unspeakable(Exception):
    def __str__(self):
        raise ValueError


def test_exception_that_fails_in_str_becomes_a_row():
    try:
        raise Unspeakable
    except Unspeakable as error:
        row = failure_row(error)
    assert row["status"] == "crash" and "Unspeakable" in row["reason"]
