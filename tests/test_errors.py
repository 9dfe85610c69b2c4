"""Tests that every error message is one printable line, whatever text it quotes."""

import importlib

import pytest

from lmperf.config import slug
from lmperf.errors import UserError, described, meant, shown


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
        "from lmperf.config import slug\n\ndef fails():\n    return slug('/')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as fault:
        importlib.import_module("custom_that_calls").fails()
    assert described(fault.value).endswith("custom_that_calls.py:4)")
    with pytest.raises(UserError) as fault:
        slug("/")
    assert "test_errors.py:" in described(fault.value)


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
