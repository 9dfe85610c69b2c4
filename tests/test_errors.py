"""Tests that every error message is one printable line, whatever text it quotes."""

import importlib

import pytest

from lmperf.config import slug
from lmperf.errors import UserError, described, meant, nearest, shown


def test_unprintable_characters_are_escaped():
    message = str(UserError("a\nb\r\x1b[31m\u202e\ud800 é 画"))
    assert message == "a\\nb\\r\\x1b[31m\\u202e\\ud800 é 画"


@pytest.mark.parametrize(
    "value", ["x" * 999, ["x" * 50] * 9, {"x" * 50: ["y" * 50] * 9}, object(), 10**400]
)
def test_long_values_are_shortened(value):
    assert len(shown(value)) <= 80


def test_none_and_flags_are_spelled_as_in_yaml():
    assert [shown(value) for value in (None, True, False, "None")] == (
        ["null", "true", "false", "'None'"]
    )


def test_exception_is_described_with_file_and_line():
    try:
        raise KeyError("several\n  lines")
    except KeyError as error:
        assert described(error).startswith("KeyError: 'several\\n lines' (")
        assert "test_errors.py:" in described(error)
    assert described(ValueError("x" * 9_000)) == "ValueError: " + "x" * 188


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
    assert nearest(name, ["attention", "bfloat16", "seq_len", 4096, "F2"]) == near


def test_name_close_to_none_lists_all_names():
    assert meant("atention", ["lrpe", "attention"]) == "did you mean attention?"
    assert meant(31, [128, 512], "there are:") == "there are: 128, 512"
