"""Numbers that pages print, with the keys of their rows."""

import pytest
from html_page import HtmlPage

from lmperf.reporting import numbers
from lmperf.reporting.numbers import keys_of, with_keys

STEPS = 'rows("end_to_end").where(phase="train_step")'
FLOAT32 = f'{STEPS}.where(dtype="float32").one'


@pytest.fixture
def keys(here):
    return dict(zip(here.rows("end_to_end")["dtype"], here.rows("end_to_end")["key"], strict=True))


def test_number_of_a_row_has_its_value_unit_and_key(template, keys):
    (number,) = template(f"A step takes {{{{ {FLOAT32}.ms | sig(2) }}}} ms.").numbers
    assert (number.value, number.number, number.unit) == ("100", "100", "ms")
    assert number.rows == keys["float32"] and number.where == "A step takes 100 ms."


def test_arithmetic_unites_the_keys_of_rows(template, keys):
    other = FLOAT32.replace("float32", "autocast_bfloat16")
    text = f"{{{{ (1 - {other}.ms / {FLOAT32}.ms) | percent(0) }}}} less."
    (number,) = template(text).numbers
    assert (number.number, number.value) == ("60 %", "0.6")
    assert {*number.rows.split()} == {*keys.values()}


def test_speed_up_has_its_verdict_and_both_rows(template, keys):
    gain = f'{STEPS}.where(dtype="autocast_bfloat16").over(dtype="float32")'
    (number,) = template(f"It is {{{{ {gain} }}}}.").numbers
    assert (number.number, number.value, number.verdict) == ("2.50x", "2.5", "faster")
    assert {*number.rows.split()} == {*keys.values()}


def test_each_names_the_row_of_each_number(template, keys):
    text = f'They take {{{{ {STEPS} | each("{{ms}} ms ({{dtype:name}})") }}}}.'
    assert [one.rows for one in template(text).numbers] == [*keys.values()]


def test_number_that_is_not_printed_is_not_listed(template):
    missing = f'{{{{ {STEPS}.where(dtype="tf32").one.ms | sig }}}}'
    text = f"{{{{ {FLOAT32}.ms | sig }}}} ms and {missing}.\nA step[[ of {missing} ms]] ends."
    made = template(text)
    assert made.text == "A step ends.\n" and not made.numbers


def test_words_of_equal_numbers_are_equal(template):
    ms = f"{FLOAT32}.ms | sig"
    assert template(f"{{% if ({ms}) == ({ms}) %}}\nEqual.\n{{% endif %}}").text == "Equal.\n"


def test_only_the_first_page_lists_its_tables(template, keys):
    text = '{% filter table(rows("end_to_end")) %}{dtype}\ntime: {eager.time}{% endfilter %}'
    assert not template(text).numbers
    first = template(text, "report").numbers
    assert [(one.kind, one.unit) for one in first] == [("table", "ms")] * 2
    assert {one.rows for one in first} == {*keys.values()}


def test_marks_reach_no_title_table_or_cell(template):
    number = f"{{{{ {FLOAT32}.ms | sig }}}}"
    text = (
        f"{{% macro words(row) %}}{number}{{% endmacro %}}"
        f"{{% set title %}}{number} ms{{% endset %}}"
        f"{{% filter table({STEPS}.worded(a=words)) %}}## {{{{ title }}}}\n{{{{ title }}}}\n"
        "{dtype}\n{{ title | trim }}: {a}\nIn {{ title | trim }}.{% endfilter %}\n"
        f'{{{{ bar_chart(title, [{{"panel": "", "line": "x", "name": "y", "y": 1}}],'
        ' {"y": "blue"}, title) }}'
    )
    made = template(text)
    shown = ascii([made.text, made.tables, made.figures])
    assert not any(ascii(mark)[1:-1] in shown for mark in (numbers.OPEN, numbers.CLOSE))


def test_site_links_a_number_in_a_sentence_to_its_rows(template, keys):
    text = f"# About {{{{ {FLOAT32}.ms | sig }}}} ms\nA step takes {{{{ {FLOAT32}.ms | sig }}}} ms."
    shown = HtmlPage(template(text, form="html").text)
    assert [one["data-row"] for one in shown.all("data")] == [keys["float32"]] * 2
    assert shown.all("h1")[0]["id"] == "about-100-ms"


def test_file_reads_as_it_was_written(template):
    made = template(f'A "step", {{{{ {FLOAT32}.ms | sig }}}} ms.')
    assert numbers.read_csv(numbers.to_csv(made.numbers)) == made.numbers
    assert numbers.read_csv("a,b\n1,2\n") == []


def test_known_numbers_are_numbers():
    one, other = with_keys(3.0, ["a"]), with_keys(2, ["b"])
    assert (one - other, one == 3.0, f"{one:.1f}", hash(other)) == (1.0, True, "3.0", 2)
    assert keys_of(one * other) == ("a", "b") and keys_of(1 / -one) == ("a",)
    assert with_keys(True, ["a"]) is True and with_keys("x", ["a"]) == "x"


def test_numbers_of_one_sentence_are_compared(template):
    old = template(f"A step takes {{{{ {FLOAT32}.ms | sig }}}} ms.\nGone: {{{{ 1 }}}}.").numbers
    new = template(f"A step takes {{{{ ({FLOAT32}.ms / 2) | sig(2) }}}} ms.").numbers
    found = numbers.changes(old, new)
    assert found[0] == "mine: 100 -> 50: A step takes 50 ms."
    assert found[1:] == ["in other sentences or cells: 1 numbers gone, 0 new"]
    assert not numbers.changes(old, old)
