"""The check of a user's templates: what would silently vanish is one line with its place."""

import os

import pytest
from planted import evidence, row

from lmperf.errors import UserError
from lmperf.reporting.pages import page_names
from lmperf.reporting.render import load_templates

CHILD = '{% extends "lmperf/attention.md.j2" %}\n'


@pytest.fixture
def checked(tmp_path):
    """Load a folder with these templates: name -> content."""

    def load(**files):
        for name, content in files.items():
            text = content if isinstance(content, bytes) else content.encode()
            (tmp_path / f"{name}.md.j2").write_bytes(text)
        load_templates.cache_clear()
        return load_templates(tmp_path)

    return load


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (CHILD + "{% block note %}{% endblock %}", 2, "no block note to fill; did you mean notes?"),
        (CHILD + "\n\nMine.", 4, "put it into one: question, summary, page, notes"),
        (CHILD + "{% call note() %}Mine.{% endcall %}", 2, "outside of blocks"),
        (CHILD + "{{ rows }}", 2, "outside of blocks"),
        (CHILD + "{% if true %}\n{{ rows }}{% endif %}", 3, "outside of blocks"),
        ("Mine.\n" + CHILD, 1, "outside of blocks"),
        ('{% extends "attention.md.j2" %}', 1, "that of lmperf is lmperf/attention.md.j2"),
        ('{% extends "no.md.j2" %}', 1, "there is no template no.md.j2"),
        (CHILD + '{% block page %}\n{% include "no" %}{% endblock %}', 3, "no template no"),
        (CHILD + "{% block page %}\n{{ 1 | nofilter }}{% endblock %}", 3, "nofilter"),
    ],
)
def test_what_would_vanish_is_named_with_its_line(checked, text, line, words):
    with pytest.raises(UserError) as error:
        checked(attention=text)
    assert f"/attention.md.j2:{line}: " in str(error.value) and words in str(error.value)


def test_template_that_is_not_utf8_is_named_with_its_line(checked):
    with pytest.raises(UserError, match=r"attention\.md\.j2:2: it is not in UTF-8"):
        checked(attention=b"{% block a %}\n\xf6{% endblock %}")


def test_template_that_extends_itself_by_another_one_is_named(checked):
    with pytest.raises(UserError, match="it extends itself"):
        checked(one='{% extends "two.md.j2" %}', two='{% extends "one.md.j2" %}')


def test_name_that_cannot_be_linked_is_refused(checked):
    with pytest.raises(UserError, match=r"our page\.md\.j2: .* rename it to our_page\.md\.j2"):
        checked(**{"our page": "Mine."})


def test_link_to_nowhere_is_named(checked, tmp_path):
    (tmp_path / "ours.md.j2").symlink_to("nowhere")
    with pytest.raises(UserError, match=r"ours\.md\.j2 cannot be read: No such file"):
        checked()


def test_what_writes_no_text_may_stand_outside_of_blocks(checked):
    text = CHILD + (
        "{# A comment. #}\n{% set a = 1 %}\n{% macro b() %}x{% endmacro %}"
        "{% if a %}{% set a = 2 %}{% endif %}\n"
        "{% block page %}{% block ours %}{{ b() }}{% endblock %}{% endblock %}\n"
    )
    checked(attention=text, page='{% extends "lmperf/page.md.j2" %}', ours="Mine.\n")


def test_hidden_files_and_other_folders_are_not_ours(checked, tmp_path):
    os.symlink("me@host.1", tmp_path / ".#ours.md.j2")
    (tmp_path / "mails").mkdir()
    (tmp_path / "mails/welcome.md.j2").write_text("{{ name | of_another_program }}")
    checked(**{"._attention": b"\xff", "ours": "Mine.\n"})
    assert "ours" in page_names(tmp_path, evidence(row("lrpe")))
    assert not any(name.startswith(".") for name in page_names(tmp_path, evidence(row("lrpe"))))
