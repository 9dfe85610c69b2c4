"""A message is one line of letters, however long and odd what it quotes."""

import importlib

import pytest

from lmperf.config import slug
from lmperf.errors import UserError, described, shown


def test_a_message_is_one_line_and_moves_no_cursor():
    message = str(UserError("a\nb\r\x1b[31m\u202e\ud800 é 画"))
    assert message == "a\\nb\\r\\x1b[31m\\u202e\\ud800 é 画"


@pytest.mark.parametrize(
    "value", ["x" * 999, ["x" * 50] * 9, {"x" * 50: ["y" * 50] * 9}, object(), 10**400]
)
def test_a_value_is_quoted_in_short(value):
    assert len(shown(value)) <= 80


def test_what_yaml_writes_otherwise_is_written_as_in_yaml():
    assert [shown(value) for value in (None, True, False, "None")] == (
        ["null", "true", "false", "'None'"]
    )


def test_an_exception_is_told_with_its_line():
    try:
        raise KeyError("several\n  lines")
    except KeyError as error:
        assert described(error).startswith("KeyError: 'several\\n lines' (")
        assert "test_errors.py:" in described(error)
    assert described(ValueError("x" * 9_000)) == "ValueError: " + "x" * 188


def test_the_place_is_that_of_the_users_code_and_not_of_what_it_calls(tmp_path, monkeypatch):
    (tmp_path / "own_that_calls.py").write_text(
        "from lmperf.config import slug\n\ndef fails():\n    return slug('/')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as fault:
        importlib.import_module("own_that_calls").fails()
    assert described(fault.value).endswith("own_that_calls.py:4)")
    with pytest.raises(UserError) as fault:
        slug("/")
    assert "test_errors.py:" in described(fault.value)
