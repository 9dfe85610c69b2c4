"""`lmperf report`: which pages it renders."""

import pytest
from made_up import MINE, NOTES

from lmperf.reporting.numbers import read_csv
from lmperf.reporting.render import Page

pytestmark = pytest.mark.slow


@pytest.fixture
def made(here, monkeypatch):
    """The names of the pages that are rendered, in order."""
    found, render = [], Page.render

    def spied(page, **further):
        found.append(page.name)
        return render(page, **further)

    monkeypatch.setattr(Page, "render", spied)
    return found


def test_only_pages_of_changed_templates_are_rendered(here, lmperf, made):
    assert lmperf("report")[0] == 0 and not made
    path = here / "templates/mine.md.j2"
    path.write_text(MINE + NOTES.replace("It has", "There are"))
    numbers = (here / "report/here/numbers.csv").read_text()
    assert lmperf("report")[0] == 0 and made == ["mine"]
    assert "There are 4 rows." in (here / "report/here/mine.md").read_text()
    assert (here / "report/here/numbers.csv").read_text() == numbers.replace("It has", "There are")
    made.clear()
    assert lmperf("report")[0] == 0 and not made


def test_new_title_of_a_page_changes_the_first_page(here, lmperf, made):
    (here / "templates/mine.md.j2").write_text(MINE.replace("Mine", "Ours") + NOTES)
    assert lmperf("report")[0] == 0 and {*made} == {"report", "mine"}
    assert "[Ours](mine.md)" in (here / "report/here/report.md").read_text()


def test_force_changed_evidence_and_edited_pages_render_all(here, lmperf, made):
    page = here / "report/here/mine.md"
    page.write_text("edited")
    assert lmperf("report", "here")[0] == 0 and {"report", "method", "mine"} <= {*made}
    assert "4 rows" in page.read_text()
    made.clear()
    assert lmperf("report", "--force")[0] == 0 and "method" in made
    made.clear()
    assert lmperf("measure", "flash_attention", "--force")[0] == 0
    assert lmperf("report", "here")[0] == 0 and "method" in made


def test_page_renders_only_this_one(here, lmperf, made):
    code, out, _ = lmperf("report", "--page", "mine")
    assert code == 0 and made == ["mine"] and ": mine in " in out
    code, _, said = lmperf("report", "--page", "mien")
    assert code == 2 and said.count("\n") == 1
    assert "unknown page mien; here has report, flash_attention, mine, course, method" in said


def test_page_leaves_the_others_due(here, lmperf, made):
    (here / "templates/mine.md.j2").write_text(MINE.replace("Mine", "Ours") + NOTES)
    assert lmperf("report", "--page", "mine")[0] == 0 and made == ["mine"]
    made.clear()
    assert lmperf("report", "here")[0] == 0 and made == ["report"]


def test_watch_renders_what_is_saved(here, lmperf, made, monkeypatch):
    path, texts = here / "templates/mine.md.j2", [NOTES, "{% block notes %}{{ 1 + }}", NOTES * 0]

    def save(seconds):
        if not texts:
            raise KeyboardInterrupt
        path.write_text(MINE + texts.pop(0) + "\n")

    monkeypatch.setattr("lmperf.reporting.written.time.sleep", save)
    code, _, said = lmperf("report", "--watch")
    assert code == 130 and made == ["mine"] * 2
    assert "mine.md.j2:1: unexpected" in said
    assert "rows" not in (here / "report/here/mine.md").read_text()


LOST = """{% block notes %}
{% call note() %}
It takes {{ rows("lrpe").least("ms").ms | sig }} ms.
{% endcall %}
{% call note() %}
{% if rows("lrpe") %}
It was measured.
{% endif %}
{% endcall %}
{% call note() %}
This one stays.
{% endcall %}
{% endblock %}
"""


def test_notes_of_which_nothing_is_left_are_named(here, lmperf):
    path = here / "templates/mine.md.j2"
    path.write_text(MINE + LOST)
    _, _, said = lmperf("report")
    assert [one for one in said.splitlines() if "note" in one] == [
        f"lmperf: {path}:2: this note is left out: a value in it is missing",
        f"lmperf: {path}:5: this note is left out: a condition in it does not hold",
    ]
    assert "This one stays." in (here / "report/here/mine.md").read_text()


def test_exit_code_says_whether_something_is_to_be_measured(here, lmperf, made):
    (here / "templates/mine.md.j2").write_text(MINE)
    assert lmperf("report", "--if-nothing-is-due")[0] == 0 and made == ["mine"]
    (here / "report/here/store/flash_attention.csv").unlink()
    (here / "report/here/evidence/flash_attention.csv").unlink()
    (here / "templates/mine.md.j2").write_text(MINE + NOTES)
    assert lmperf("report", "--if-nothing-is-due")[0] == 3 and made == ["mine"]


def test_numbers_are_listed_beside_the_pages(here):
    found = read_csv((here / "report/here/numbers.csv").read_text())
    assert [one.number for one in found if one.page == "mine"] == ["4"]
    assert "numbers.csv" in (here / "report/here/.lmperf-files").read_text().splitlines()
