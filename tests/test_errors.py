"""Tests that every error message is one printable line, whatever text it quotes."""

import importlib
import re
from pathlib import Path

import pytest

from lmperf.config.machine_names import slug
from lmperf.errors import UserError, described, explained, meant, one_line, shown


def test_unprintable_characters_are_escaped():
    message = str(UserError("a\nb\r\x1b[31m\u202e\ud800 é 画"))
    assert message == "a\\nb\\r\\x1b[31m\\u202e\\ud800 é 画"


@pytest.mark.parametrize(
    "value", ["x" * 999, ["x" * 50] * 9, {"x" * 50: ["y" * 50] * 9}, object(), 10**400]
)
def test_long_values_are_shortened(value):
    assert len(shown(value)) <= 80


def test_location_is_in_user_code_rather_than_in_libraries(tmp_path, monkeypatch):
    (tmp_path / "custom_that_calls.py").write_text(
        "from lmperf.config.machine_names import slug\n\ndef fails():\n    return slug('/')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as fault:
        importlib.import_module("custom_that_calls").fails()
    assert described(fault.value).endswith("custom_that_calls.py:4)")
    with pytest.raises(UserError) as fault:
        slug("/")
    assert "test_errors.py:" in described(fault.value)


class Strange(Exception):
    def __str__(self):
        raise KeyError("no words")


def test_exception_that_cannot_be_printed_is_described():
    words = "Strange: its message cannot be read (KeyError in __str__)"
    assert described(Strange()) == words


def test_line_in_a_quoted_traceback_counts_without_a_frame():
    error = RuntimeError("a variable was changed")
    error.add_note(f'  File "/home/me/mine.py", line 7, in f\n  File "{re.__file__}", line 9, in g')
    assert described(error) == "RuntimeError: a variable was changed (/home/me/mine.py:7)"


@pytest.mark.parametrize(
    ("code", "blame", "exit_code"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero (mine.py:1)", 2),
        ("raise OSError(28, 'No space', 'a.csv')", "a.csv: No space", 2),
        ("raise UserError('wrong')", "wrong", 2),
    ],
)
def test_error_in_the_users_code_is_one_line_with_its_place(
    tmp_path, monkeypatch, code, blame, exit_code
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Exception) as fault:
        exec(compile(code, tmp_path / "mine.py", "exec"), {"UserError": UserError})
    fault.value.__traceback__ = fault.value.__traceback__.tb_next  # without this test
    words, found = explained(fault.value)
    line, _, file = words.partition("; traceback: ")
    assert (line, found) == (blame, exit_code)
    assert not file or "ZeroDivisionError" in Path(file).read_text()
    assert bool(file) == ("/ 0" in code)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        *(("atention", "attention"), ("Attention", "attention"), ("bfloat61", "bfloat16")),
        *(("seqlen", "seq_len"), ("wholly", None), ("4095", None), ("F3", None), ("", None)),
    ],
)
def test_misspelt_name_has_one_suggestion(name, near):
    words = meant(name, ["attention", "bfloat16", "seq_len", 4096, "F2"], "all:")
    every = "all: attention, bfloat16, seq_len, 4096, F2"
    assert words == (f"did you mean {near}?" if near else every)


def test_text_of_several_lines_becomes_one_that_is_not_too_long():
    assert one_line("a\n  b\x1b[31m\u202e\ud800 é") == "a b\\x1b[31m\\u202e\\ud800 é"
    assert one_line("word " * 100, limit=20) == "word word word wo..."
