"""Pages: the vocabulary of templates, templates of a user, and what is wrong with one."""

import re

import pandas as pd
import pytest
from planted import evidence, page, row

from lmperf.commands.init import own_templates
from lmperf.errors import UserError
from lmperf.reporting import figures, pages
from lmperf.reporting.render import Page, load_templates


@pytest.fixture
def said(template):
    """The text of a user's template, rendered."""
    return lambda text, form="markdown": template(text, form=form).text


STEPS = 'rows("end_to_end").where(phase="train_step")'


def test_finding_stands_while_its_rows_exist(said):
    text = '{% call finding() %}Steps take {{ ROWS.range("ms") | range }} ms.{% endcall %}'
    assert said(text.replace("ROWS", STEPS)) == "- Steps take 40.0 to 100 ms.\n"
    assert said(text.replace("ROWS", f'{STEPS}.where(dtype="tf32")')).strip() == ""


def test_tables_have_a_heading_and_a_command(said):
    lines = "## T1. Steps\n{dtype}\nLMs (ms): {eager.time}"
    text = f'{{% filter table(rows("end_to_end")) %}}{lines}{{% endfilter %}}'
    shown = said(f"\ufeff{text}")  # some editors begin a file with a byte order mark
    assert shown.startswith("## T1. Steps") and "| float32 | 100 (99.8-100) |" in shown
    assert "`lmperf run --row " in shown and "--against here`" in shown
    assert ">T1. Steps</h2>" in said(text, "html")


def test_figures_are_specifications_and_images(said, here, tmp_path):
    bar = '[{"panel": "", "line": "x", "name": "y", "y": 1}]'
    text = f'{{{{ bar_chart("A title", {bar}, {{"y": "blue"}}, "ms") }}}}'
    assert 'src="figures/mine-light.svg"' in said(text)
    made = page("mine", here, own=tmp_path)
    assert " ".join(made.figures["mine"]["title"]["text"]) == "A title"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("{{ nothing }}", 1, "'nothing' is undefined"),
        ('\n{{ rows("end_to_end").where(sise="small") }}', 2, "no column sise"),
        ('\n{{ rows("end_to_end").where(size="smal") }}', 2, "size=smal; it has tiny"),
        (
            '{{ rows("end_to_end").range("tokenss") }}',
            1,
            "no column tokenss; did you mean tokens_s?",
        ),
        ('{{ rows("end_to_end").query("z > 1") }}', 1, "end_to_end has no column z; its CSV"),
        ('{{ rows("end_to_end").least("z").ms }}', 1, "end_to_end has no column z; its CSV"),
        (
            '{{ rows("end_to_end").least("ms").powr_w }}',
            1,
            "no column powr_w; did you mean power_w?",
        ),
        ("\nA [[ clause.\n{{ 1 }}", 2, "a clause that begins with [[ has no ]]"),
        ('{{ rows("end_to_edn") }}', 1, "no benchmark end_to_edn; did you mean end_to_end?"),
        ("\n\n{{ 1 | nofilter }}", 3, "nofilter"),
        ("{% call finding() %}{{ 1 + }}{% endcall %}", 1, "unexpected"),
        ('{% filter table(rows("end_to_end")) %}{sise}{% endfilter %}', 1, "no column sise"),
    ],
)
def test_mistake_in_a_template_is_one_line_with_its_place(said, text, line, words):
    with pytest.raises(UserError) as error:
        said(text)
    assert f"mine.md.j2:{line}: " in str(error.value) and words in str(error.value)


@pytest.mark.slow
def test_own_template_changes_one_block_of_ours(here, tmp_path):
    own = '{% extends "lmperf/end_to_end.md.j2" %}{% block question %}Mine: is it?{% endblock %}'
    (tmp_path / "end_to_end.md.j2").write_text(own)
    ours, mine = page("end_to_end", here).text, page("end_to_end", here, own=tmp_path).text
    assert mine.startswith("# Mine: is it?\n")
    assert mine.splitlines()[1:] == ours.splitlines()[1:]


def written_by_init(folder):
    for path, text in own_templates().items():
        (folder / path.name).write_text(text)
    return folder / "course.md.j2"


def with_words(hand_in):
    begin = "{% block fsdp_2026 %}"
    hand_in.write_text(hand_in.read_text().replace(begin, f"{begin}Mine gathers."))
    load_templates.cache_clear()


@pytest.mark.slow
def test_templates_that_init_writes_render(here, tmp_path):
    written_by_init(tmp_path)
    assert "our_question" in pages.page_names(tmp_path, here)
    assert pages.title("our_question", tmp_path) == "Our question"
    assert "2.50 times as fast" in page("end_to_end", here, own=tmp_path).text
    assert "Train steps take 40.0 to 100 ms." in page("our_question", here, own=tmp_path).text


@pytest.mark.slow
def test_hand_in_shows_problems_of_the_chosen_year_only(here, tmp_path):
    with_words(written_by_init(tmp_path))
    here.course = 2025
    shown = page("course", here, own=tmp_path).text
    assert "leaderboard (2025)" in shown and "Mine gathers" not in shown and "2026" not in shown


@pytest.mark.slow
def test_hand_in_has_a_block_for_each_problem(here, tmp_path):
    hand_in = written_by_init(tmp_path)
    lmperfs = page("course", here).text
    problems = re.findall(r"^## (.*)$", lmperfs, re.MULTILINE)
    blocks = re.findall(r"{% block (\w+) %}\n{% endblock %}", hand_in.read_text())
    assert blocks == [re.sub(r" \((\d+)\)", r"_\1", one) for one in problems]
    with_words(hand_in)
    mine = page("course", here, own=tmp_path).text
    assert "\nBy Your Name\n" in mine
    assert "\n## fsdp (2026)\nMine gathers.\n\nNeeds several GPUs: " in mine
    assert mine.partition("Your Name")[2].replace("Mine gathers.\n\n", "").strip() in lmperfs


@pytest.mark.slow
def test_every_page_renders_without_evidence():
    nothing = evidence()
    for name in pages.page_names(None, evidence(*map(row, ("end_to_end", "lrpe")))):
        if name != "selftest":
            assert Page(name, nothing).render(pages={}, overview=False).startswith("# ")


@pytest.mark.slow
def test_pages_render_of_a_part_of_their_rows():
    kernel = {"implementation": "triton", "dtype": "bfloat16", "flops": 1e9, "bytes": 1e6}
    forward = row("flash_attention", 1.0, phase="forward", heads=16, **kernel)
    assert page("flash_attention", evidence(forward)).tables
    step = {"implementation": "eager", "phase": "train_step", "peak_mib": 100}
    peaks = [row("memory", dtype=dtype, **step) for dtype in ("float32", "autocast_bfloat16")]
    assert "autocast hardly saves memory" in page("memory", evidence(*peaks)).text


@pytest.mark.parametrize(("last", "labels"), [(96.0, [94.25, 100.75]), (90.0, [89.0, 100.0])])
def test_labels_of_lines_do_not_overlap(last, labels):
    rows = [("eager", 1, 5.0), ("eager", 2, last - 1), ("sdpa", 1, 9.0), ("sdpa", 2, 100.0)]
    frame = pd.DataFrame(rows, columns=["implementation", "x", "y"])
    values = figures.line_chart("", frame, "x", "y", ("x", "y"))["data"]["values"]
    assert [one["label"] for one in values if one["end"]] == labels


def test_line_of_one_length_is_no_figure(tmp_path):
    text = 'Times: {{ line_chart("T", rows("attention").frame, "seq_len", "ms", ("n", "ms")) }}.'
    (tmp_path / "our_question.md.j2").write_text(text)
    rows = [row("attention", 1.0, seq_len=n, phase="forward") for n in (256, 512)]
    for some, figures_ in ((rows[:1], 0), (rows, 1)):
        made = page("our_question", evidence(*some), own=tmp_path)
        assert len(made.figures) == figures_ == made.text.count("Times: ")


def test_figure_has_the_same_bytes_after_another_one():
    frame = pd.DataFrame({"implementation": "eager", "x": [1, 2], "y": [1.0, 2.0]})
    spec = figures.line_chart("A title", frame, "x", "y", ("x", "y"))
    first, again = figures.svgs(spec), figures.svgs(spec)
    assert "clip" in first["light"] and first == again
