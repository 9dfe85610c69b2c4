"""Notes of the author: printed while the evidence agrees with them, left out otherwise."""

import re
import shutil
from pathlib import Path

import pytest
import synthetic
from flash_evidence import gate_failed, times_scaled, with_changed_rows
from markdown_it import MarkdownIt

from lmperf import cli
from lmperf.config import load_config
from lmperf.errors import UserError
from lmperf.evidence.project import Project
from lmperf.reporting import notes, pages, render, written
from lmperf.reporting.ceilings import matmul_share
from lmperf.reporting.evidence import having
from lmperf.reporting.foreign import authored, in_markdown
from lmperf.reporting.key import rendering_key
from lmperf.reporting.notes.expressions import FILTERS
from lmperf.reporting.notes.functions import FUNCTIONS
from lmperf.reporting.numbers import ratio
from lmperf.reporting.sections import compose, stems
from lmperf.reporting.speedup import Series, every

ROOT = Path(__file__).parents[2]
CELL = {"seq_len": 128, "d_head": 16, "phase": "forward"}
AXES = 'seq_len=128, d_head=16, phase="forward"'
COMPILED = f'"attention", "compiled", {AXES}'
SPEEDUP = f'speedup({COMPILED}, over="eager")'
VERDICT = f'verdict({COMPILED}, over="eager")'
TIME = f'value("attention", "compiled", "median_ms", {AXES})'


def written_note(tmp_path, holds, text="Because.", name="attention", general=False):
    """A note in its file, as `read_notes` gives it."""
    folder = tmp_path / ("templates/notes" if general else "here/notes")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(f"---\nholds: {holds}\n---\n{text}\n")
    (note,) = read(tmp_path)
    return note


def read(tmp_path):
    templates = tmp_path / "templates"
    shutil.copytree(ROOT / "templates/sections", templates / "sections", dirs_exist_ok=True)
    return notes.read_notes(templates, tmp_path / "here", templates / "notes")


@pytest.fixture
def judged(tmp_path, cpu):
    """A function that judges a note with a condition and a text, by default on a CPU."""

    def judge(holds, text="Because.", evidence=None, **how):
        return notes.judge(written_note(tmp_path, holds, text, **how), evidence or cpu)

    return judge


def gain(evidence, **where):
    """The speed-up of compiled over eager attention in CELL, or in a cell that differs from it."""
    series = (Series.of(implementation=name) for name in ("compiled", "eager"))
    found = having(every(evidence, "attention", *series), **{**CELL, **where})
    return ratio(found["ratio"].iloc[0])


def with_ratios(evidence, *ratios):
    """The evidence with these ratios, round by round, of eager to compiled attention in CELL."""
    base = having(evidence.frames["attention"], implementation="eager", **CELL)
    rounds = [float(ms) for ms in base["rounds_ms"].iloc[0].split(";")]
    times = [ms / ratios[n % len(ratios)] for n, ms in enumerate(rounds)]
    new = {"rounds_ms": ";".join(map(repr, times)), "median_ms": sorted(times)[len(times) // 2]}
    return changed(evidence, lambda rows: rows.assign(**new))


def changed(evidence, change, **where):
    where = {"implementation": "compiled", **CELL, **where}
    return with_changed_rows(evidence, change, stem="attention", **where)


def test_note_that_holds_has_its_values_in_the_text(judged, cpu):
    text = f"Compiled is {{{{ {SPEEDUP} | ratio }}}}: {{{{ {VERDICT} }}}}."
    assert judged(f"{SPEEDUP} > 1.2", text).text == f"Compiled is {gain(cpu)}: faster."


def test_text_of_a_note_is_escaped(judged):
    assert in_markdown(judged(f"{SPEEDUP} > 1", "<b>").text) == "&lt;b>"


def test_note_is_left_out_when_changed_data_contradict_it(judged, cpu):
    assert judged(f"{SPEEDUP} > 1").text
    slower = judged(f"{SPEEDUP} > 1", evidence=changed(cpu, times_scaled(2)))
    assert slower.text is None
    assert re.fullmatch(
        r".*/attention.md:2: note left out: its condition is false: speedup is 0.63\d",
        slower.message,
    )


@pytest.mark.parametrize(
    "condition",
    [
        *(f"{SPEEDUP} > 1", f"{SPEEDUP} < 1", f"{SPEEDUP} != 1", f"{SPEEDUP} not in [1, 2]"),
        *(f"2 * {SPEEDUP} > 2", f"1 / {SPEEDUP} < 1", f"{SPEEDUP} - 1 > 0", f"-{SPEEDUP} < -1"),
    ],
)
def test_speedup_with_verdict_same_is_on_neither_side_of_1(judged, cpu, condition):
    same = with_ratios(cpu, 1.004, 1.005)
    assert judged(f'{VERDICT} == "same"', evidence=same).text
    assert judged(condition, evidence=same).text is None


def test_comparison_must_be_true_of_the_whole_interval(judged, cpu):
    spread = with_ratios(cpu, 1.5, 2.0)
    assert judged(f"{SPEEDUP} > 1.4", evidence=spread).text
    assert judged(f"{SPEEDUP} > 1.6", evidence=spread).text is None
    assert judged(f"{SPEEDUP} < 2.1", evidence=spread).text
    assert judged(f"{SPEEDUP} < 1.9", evidence=spread).text is None


def test_calculated_number_has_an_interval(judged, cpu):
    spread = with_ratios(cpu, 1.5, 2.0)
    assert judged(f"2 * {SPEEDUP} - 1 > 1.9", evidence=spread).text
    assert judged(f"2 * {SPEEDUP} - 1 > 2.1", evidence=spread).text is None
    assert judged(f"{SPEEDUP} / {SPEEDUP} < 1.4", evidence=spread).text
    assert judged(f"{SPEEDUP} / {SPEEDUP} < 1.3", evidence=spread).text is None
    with pytest.raises(UserError, match="division by zero"):
        judged(f"1 / ({SPEEDUP} - 1.75) > 0", evidence=spread)


def test_median_time_has_the_interval_of_its_rounds(judged, cpu):
    rounds = ";".join(map(str, [1.0, 2.0, 3.0] * 3))
    spread = changed(cpu, lambda rows: rows.assign(rounds_ms=rounds, median_ms=2.0))
    assert judged(f"{TIME} >= 1", f"{{{{ {TIME} | sig }}}} ms", evidence=spread).text == "2.00 ms"
    for condition in (f"{TIME} >= 1.5", f"{TIME} <= 2.5", f"{TIME} == 2", f"{TIME} != 2"):
        assert judged(condition, evidence=spread).text is None


def test_comparison_must_be_true_of_all_values_of_a_list(judged, cpu):
    both = SPEEDUP.replace("seq_len=128", "seq_len=[128, 512]")
    assert (
        judged(f"{both} > 1.2", f"{{{{ {both} | ratio }}}}").text
        == f"{gain(cpu)} to {gain(cpu, seq_len=512)}"
    )
    assert judged(f"{both} > 1.5").text is None


def stale(evidence):
    rows = evidence.frames["attention"].assign(stale=True)
    return synthetic.with_frames(evidence, attention=rows)


def damaged(evidence):
    evidence.damaged["attention"] = "it was cut"
    return evidence


def set_columns(**columns):
    return lambda evidence: changed(evidence, lambda rows: rows.assign(**columns))


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (stale, "stale"),
        (damaged, "its evidence is damaged"),
        (lambda evidence: changed(evidence, gate_failed), "its check failed"),
        (set_columns(status="oom"), "out of memory"),
        (set_columns(marks="drift"), "drifted"),
        (set_columns(marks="loaded"), "beside other load"),
        (set_columns(together="another"), "not timed in turn with eager"),
        (lambda evidence: with_ratios(evidence, 0.8, 1.25), "unresolved over eager"),
    ],
)
@pytest.mark.parametrize("condition", [f"{SPEEDUP} > 0", f'{VERDICT} != "slower"'])
def test_note_on_an_unsound_row_is_left_out(judged, cpu_copy, condition, spoil, why):
    found = judged(condition, evidence=spoil(cpu_copy))
    assert found.text is None and why in found.why


def test_note_is_left_out_if_only_its_text_reads_an_unsound_row(judged, cpu):
    drifted = changed(cpu, lambda rows: rows.assign(marks="drift"), seq_len=256)
    text = f"{{{{ {TIME.replace('128', '256')} | sig }}}} ms"
    assert judged(f"{SPEEDUP} > 1", text).text == "0.246 ms"
    assert "drifted" in judged(f"{SPEEDUP} > 1", text, evidence=drifted).why


def test_marked_baseline_leaves_a_note_out(judged, cpu):
    marked = changed(cpu, lambda rows: rows.assign(marks="drift"), implementation="eager")
    assert "drifted" in judged(f"{SPEEDUP} > 1", evidence=marked).why


def test_share_of_a_stale_ceiling_leaves_a_note_out(judged, cpu_copy):
    share = f'share("attention", "compiled", of="matmul", {AXES})'
    assert judged(f"{share} > 0", evidence=cpu_copy).text
    old = cpu_copy.frames["ceilings"].assign(stale=True)
    stale = synthetic.with_frames(cpu_copy, ceilings=old)
    assert judged(f"{share} > 0", evidence=stale).why.startswith("ceilings: operation=matmul")


@pytest.mark.parametrize(("marks", "printed"), [("drift", False), ("capped", True)])
def test_share_of_a_disturbed_ceiling_leaves_a_note_out(judged, cpu, marks, printed):
    share = f'share("attention", "compiled", of="matmul", {AXES})'
    where = {"stem": "ceilings", "operation": "matmul"}
    marked = with_changed_rows(cpu, lambda rows: rows.assign(marks=marks), **where)
    assert (judged(f"{share} > 0", evidence=marked).text is not None) == printed


def test_functions_give_the_numbers_of_the_tables(judged, cpu):
    row = having(cpu.frame("attention"), implementation="compiled", **CELL)
    share = f'share("attention", "compiled", of="matmul", {AXES}) | fixed'
    assert (
        judged(f"{TIME} > 0", f"{{{{ {share} }}}}").text == f"{matmul_share(cpu, row).iloc[0]:.4f}"
    )
    memory = 'size="tiny", context_length=128, dtype="float32", phase="forward"'
    row = having(
        cpu.frame("memory"), size="tiny", context_length=128, dtype="float32", phase="forward"
    )
    text = f'{{{{ peak("memory", "eager", {memory}) / 1048576 | sig }}}}'
    with pytest.raises(UserError, match="a filter stands at the end"):
        judged(f"{TIME} > 0", text)
    text = f'{{{{ (peak("memory", "eager", {memory}) / 1048576) | fixed }}}}'
    assert judged(f"{TIME} > 0", text).text == f"{row['peak_mib'].iloc[0]:.4f}"


STEP = {"size": "tiny", "context_length": 128, "dtype": "float32", "phase": "train_step"}


def share_of_step(change):
    """A share of a step, and the evidence with that step changed by ``change(rows)``."""
    axes = ", ".join(f"{name}={value!r}" for name, value in STEP.items())
    where = {"implementation": "eager", **STEP}
    evidence = with_changed_rows(synthetic.cpu_evidence(), change, stem="end_to_end", **where)
    return f'share("end_to_end", "eager", of="matmul", {axes})', evidence


def test_share_of_a_step_is_by_its_sustained_time(judged):
    text = "{{{{ {} | fixed }}}}"
    shares = []
    for median in (500.0, 600.0):
        call, evidence = share_of_step(
            lambda rows, ms=median: rows.assign(median_ms=ms, sustained_ms=550.0)
        )
        shares.append(judged(f"{call} > 0", text.format(call), evidence=evidence).text)
    assert shares[0] == shares[1] is not None
    call, evidence = share_of_step(lambda rows: rows.assign(sustained_ms=float("nan")))
    assert "no sustained_ms is recorded" in judged(f"{call} > 0", evidence=evidence).why


def test_sustained_time_is_a_value_with_an_interval(judged):
    share, evidence = share_of_step(
        lambda rows: rows.assign(sustained_ms=550.0, sustained_rounds_ms="540.0;550.0;560.0")
    )
    call = share.replace("share(", "value(").replace('of="matmul"', '"sustained_ms"')
    assert judged(f"{call} < 561", f"{{{{ {call} | sig }}}}", evidence=evidence).text == "550"
    assert judged(f"{call} < 559", evidence=evidence).text is None


def test_capped_step_carries_a_note_but_a_capped_kernel_does_not(judged, cpu):
    call, evidence = share_of_step(lambda rows: rows.assign(marks="capped"))
    assert judged(f"{call} > 0", evidence=evidence).text
    capped = changed(cpu, lambda rows: rows.assign(marks="capped"))
    assert "capped" in judged(f"{SPEEDUP} > 1", evidence=capped).why


def test_speedup_over_another_dtype(judged):
    call = (
        'speedup("end_to_end", "eager", over_dtype="float32", dtype="autocast_bfloat16",'
        ' size="tiny", context_length=128, phase="train_step")'
    )
    assert re.fullmatch(r"\d\.\d\dx", judged(f"{call} > 0", f"{{{{ {call} | ratio }}}}").text)


def test_peak_ignores_marks_which_concern_times(judged, cpu):
    marked = changed(cpu, lambda rows: rows.assign(marks="drift", peak_mib=1.0))
    call = f'peak("attention", "compiled", {AXES})'
    assert judged(f"{call} == 1048576", evidence=marked).text


def test_both_sides_of_a_condition_are_evaluated(judged):
    for condition in (f"{SPEEDUP} < 1 and nothing > 1", f"{SPEEDUP} > 1 or nothing > 1"):
        with pytest.raises(UserError, match="the note defines no nothing"):
            judged(condition)
    assert judged(f"{SPEEDUP} < 1 or {TIME} > 0").text
    assert judged(f"{SPEEDUP} < 1 and {TIME} > 0").text is None


def test_wrong_text_is_found_although_the_condition_is_false(judged):
    with pytest.raises(UserError, match=r"attention.md:5: .*no benchmark"):
        judged(f"{SPEEDUP} < 1", '\n{{ value("attentoin", "eager", "median_ms") | sig }}')


WRONG = {
    f"speedupp({COMPILED}) < 1": 'no function "speedupp"; did you mean speedup?',
    'value("attentoin", "eager", "median_ms") < 1': "did you mean attention",
    'value("attention", "eagr", "median_ms") < 1': "did you mean eager",
    f'value("attention", "eager", "median", {AXES}) < 1': "did you mean median_ms",
    'value("attention", "eager", "median_ms", seqlen=1) < 1': "did you mean seq_len",
    'value("attention", "eager", "median_ms", dtype="float31") < 1': "did you mean float32",
    'value("attention", "eager", "median_ms", phase="fwd") < 1': "did you mean forward",
    'value("attention", "eager", "median_ms", seq_len="128") < 1': "seq_len must be a whole number",
    'value("attention", "eager", "median_ms", causal=1) < 1': "causal must be true or false",
    'value("attention", "eager", "median_ms", seq_len=128, d_head=16) < 1': (
        '2 rows match; also give phase="forward", "backward"'
    ),
    'value("attention", "eager", "median_ms", d_head=16, seq_len=129) < 1': (
        "no row with seq_len=129; there is seq_len=128, 256, 512"
    ),
    f"speedup({COMPILED}) < 1": "give over=",
    f'speedup({COMPILED}, over="compiled") < 1': "other than the row's own",
    f'speedup({COMPILED}, over=["eager"]) < 1': "only axes and phases can be lists",
    f'speedup({COMPILED}, over="") < 1': "no implementation",
    f'speedup({COMPILED}, over="eager", over="eager") < 1': "over is given twice",
    'value("attention") < 1': "missing a required argument: 'implementation'",
    'speedup("memory", "eager", over="sdpa", size="tiny", context_length=128, dtype="float32",'
    ' phase="forward") < 1': "has no times to compare",
    f'share({COMPILED}, of="sun") < 1': "there are matmul and data_sheet",
    f'{VERDICT} == "fast"': 'no verdict "fast"; there are faster, slower and same',
    f'{VERDICT} < "slower"': "compare a verdict by",
    f"{VERDICT} < 1": "a number cannot be compared with a verdict",
    f"{VERDICT} * 2 < 1": "faster is a verdict, not a number",
    f"{TIME} / 0 < 1": "division by zero",
    f"{TIME}": "must be a comparison",
    "'text'": "must be a comparison",
    "true": "must be a comparison",
    "1 < 2": "reads no evidence",
    f"{TIME} <": "cannot be read: unexpected 'end of template'",
    f"{TIME} < 1 2": "must be one expression",
    f"{TIME} | sig < 1": "a filter stands at the end",
}


@pytest.mark.parametrize("condition", WRONG)
def test_wrong_condition_is_one_line_with_file_and_line(judged, condition):
    with pytest.raises(UserError) as error:
        judged(condition)
    message = str(error.value)
    assert re.match(r"\S+/here/notes/attention\.md:2: ", message) and "\n" not in message
    assert WRONG[condition] in message


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        (TIME, "format the number by a filter"),
        (f"{TIME} | upper", "no filter upper; there are error, fixed"),
        (f"{TIME} | sig(2)", "the filter sig takes no arguments"),
        (f"{VERDICT} | ratio", "faster is a verdict, not a number"),
    ],
)
def test_wrong_value_in_the_text_names_its_line(judged, expression, words):
    with pytest.raises(UserError, match=rf"attention\.md:6: {re.escape(words)}"):
        judged(f"{TIME} > 0", f"First.\n\n{{{{ {expression} }}}}")


HOSTILE = [
    "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}",
    "{% set x = 1 %}",
    "{% include 'report.md.j2' %}",
    "{% macro f() %}{% endmacro %}",
    "{{ range(999999999) | list }}",
    "{{ speedup.__globals__ }}",
    "{{ ''.__class__.__mro__ }}",
    "{{ self }}",
    "{{ ('a' * 999999999) }}",
    "{{ (9 ** 9 ** 9) | sig }}",
    "{{ 'x' ~ 'y' }}",
    "{{ value.__call__('attention') }}",
    "{{ value(*['attention']) }}",
    "{{ value(**{'stem': 'attention'}) }}",
    "{{ value('attention', 'eager', 'median_ms', evidence=1) }}",
    "{{ value | attr('__globals__') }}",
    "{{ [1, 2][0] }}",
    "{{ " + "(" * 5000 + "1" + ")" * 5000 + " | sig }}",
    "{{ (" + "+".join(["1"] * 20000) + ") | sig }}",
    "{{ " + "9" * 5000 + " | sig }}",
    f"{{{{ {TIME.replace('128', str([128] * 99))} | sig }}}}",
]


@pytest.mark.slow
@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_expression_is_rejected(judged, text):
    with pytest.raises(UserError) as error:
        judged(f"{TIME} > 0", text)
    assert "\n" not in str(error.value)


MARKDOWN = [
    "<script>alert(1)</script>",
    "text <img src=x onerror=alert(1)> text",
    "\\`<script>`",
    "`open\n<script>`",
    "```\n<script>\n# Heading",
    "~~~\n<script>",
    "# Heading\n\n- # Heading\n\n1. ## Heading",
    "Heading\n===\n\nHeading\n  ----\n\nHeading\n-",
    "| a |\n|---|\n| b |",
    "![image](https://example.org/a.png)",
    "[link](javascript:alert(1))",
    "[link](<javascript:alert(1)>)",
    "[link][id]\n\n[id]: other.md",
    "[link](other.md)",
    "&lt;script&gt; <!-- comment",
    "$$x$$",
]


@pytest.mark.parametrize("text", MARKDOWN)
def test_hostile_markdown_stays_text(text):
    shown = in_markdown(authored(text))
    parsed = MarkdownIt("gfm-like", {"html": True, "linkify": False}).parse(shown)
    tokens = [token for block in parsed for token in (block, *(block.children or ()))]
    kinds = {token.type.removesuffix("_open").removesuffix("_close") for token in tokens}
    plain = {"inline", "text", "text_special", "paragraph", "softbreak", "code_inline"}
    assert kinds <= plain | {"bullet_list", "ordered_list", "list_item"}
    assert "$$" not in shown


def test_markdown_of_an_author_keeps_its_meaning():
    text = (
        "**Bold** and *slanted*: `a < b | c`, a_b, 3 > 2.\n\n- one\n- [two](https://a.org/b_c?d=e)"
    )
    assert in_markdown(authored(text)) == text


def test_section_prints_a_note_as_the_words_of_its_author(cpu, templates):
    section = compose("attention", cpu, drawn=False)
    (section,) = notes.added([section], [judged_text("attention", "One\n\ntwo <b>.")])
    expected = "\n> **Author's note.** One\n>\n> two &lt;b>.\n\n"
    assert expected in pages.page(cpu, section, templates)
    assert expected in pages.write_up(cpu, [section], templates)


def test_long_note_is_printed_on_the_page_only(cpu, templates):
    section = compose("attention", cpu, drawn=False)
    (section,) = notes.added([section], [judged_text("attention", "word " * 61)])
    assert "Author's note" in pages.page(cpu, section, templates)
    assert "Author's note" not in pages.write_up(cpu, [section], templates)


@pytest.mark.machine
def test_every_page_prints_its_notes(cpu, templates):
    for stem in stems(templates):
        section = compose(stem, cpu, drawn=False)
        if not section.measured:
            continue  # several GPUs: the page says that there is no evidence
        (section,) = notes.added([section], [judged_text(stem, "My words.")])
        assert pages.page(cpu, section, templates).count("> **Author's note.** My words.") == 1, (
            stem
        )


def judged_text(section, text):
    note = notes.Note(Path(f"{section}.md"), (), notes.Source(text, 4))
    return notes.Judged(note, authored(text))


def test_file_holds_several_notes_and_names_expressions(tmp_path, cpu):
    path = tmp_path / "here/notes/attention.md"
    path.parent.mkdir(parents=True)
    path.write_text(
        f"\n---\ngain: {SPEEDUP}\ntwice: 2 *\n    gain\nholds: twice > 2\n---\n"
        "It is {{ gain | ratio }}.\n"
        f"---\nholds: {SPEEDUP} < 1\n---\nNever.\n"
        f"---\nholds: {VERDICT} in ['same', 'faster']  # a comment\n---\nLast."
    )
    found = [notes.judge(note, cpu) for note in read(tmp_path)]
    assert [one.text for one in found] == [f"It is {gain(cpu)}.", None, "Last."]
    assert [one.note.conditions[0].line for one in found] == [6, 10, 14]


def test_all_conditions_of_a_list_must_be_true(judged):
    assert judged(f"\n- {SPEEDUP} > 1\n- {TIME} > 0").text
    left_out = judged(f"\n- {SPEEDUP} > 1\n- {TIME}\n  < 0\n- {TIME} < 0")
    assert left_out.text is None
    assert "attention.md:4: note left out: its condition is false: " in left_out.message


@pytest.mark.parametrize("style", ["'{}'", "|\n  {}", ">-\n  {}"])
def test_condition_can_be_a_quoted_or_folded_text(judged, style):
    assert judged(style.format(f"{SPEEDUP} > 1")).text
    line = 2 + style.count("\n")
    with pytest.raises(UserError, match=f"attention.md:{line}: the note defines no x"):
        judged(style.format("x > 1"))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("x: 5", ":2: the expression reads no evidence"),
        (f"x: [{SPEEDUP}, {SPEEDUP}]", ":2: must be one expression"),
        (f"y: {SPEEDUP}\nx: [y, y]", ":3: must be one expression"),
        (f"y: {SPEEDUP}\nx: '[y, y]'", ":3: here are only calls, names"),
        ("x: y", ":2: the note defines no y"),
    ],
)
def test_name_stands_for_one_reading_of_evidence(tmp_path, cpu, name, words):
    path = tmp_path / "here/notes/attention.md"
    path.parent.mkdir(parents=True)
    path.write_text(f"---\n{name}\nholds: x > 0\n---\nBecause.")
    with pytest.raises(UserError, match=words):
        [notes.judge(note, cpu) for note in read(tmp_path)]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("Only words.", 1, "a note starts with ---"),
        ("---\nholds: 1 < 2\nWords.", 1, "a note starts with ---"),
        ("---\nholds: 1 < 2\n---\nWords.\n---\nMore.", 5, "a note starts with ---"),
        ("---\n---\nWords.", 1, "the note states no condition; add holds: CONDITION"),
        ("---\nhold: 1 < 2\n---\nWords.", 1, "the note states no condition"),
        ("---\nholds: []\n---\nWords.", 1, "the note states no condition"),
        ("---\nholds: 1 < 2\nholds: 2 < 3\n---\nWords.", 3, "holds: the key is there twice"),
        ("---\nholds: 1 < 2\nor what\n---\nWords.", 3, "not valid YAML: "),
        ("---\nholds: {a: 1}\n---\nWords.", 2, "must be one expression"),
        ("---\n\nor what\n---\nWords.", 3, "must be lines NAME: EXPRESSION"),
        ("---\nholds: 1 < 2\nMy name: 1\n---\nWords.", 3, "'My name' is no name"),
        ("---\nholds: &x 1 < 2\n---\nWords.", 2, "x is an anchor"),
        ("---\nholds: !!python/name:os.system 1\n---\nWords.", 2, "the tag "),
        ("---\nholds: " + "[" * 5000 + "\n---\nWords.", 2, "values are nested deeper"),
        ("---\nholds: 1 < 2\n---\n\n", 3, "the note has no text"),
    ],
)
def test_wrong_file_names_the_line(tmp_path, text, line, words):
    path = tmp_path / "here/notes/attention.md"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(UserError, match=f"{re.escape(str(path))}:{line}: {words}"):
        read(tmp_path)


def test_unreadable_file_or_unknown_section_is_one_line(tmp_path):
    path = tmp_path / "here/notes/attention.md"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"---\n\xff")
    with pytest.raises(UserError, match="cannot be read"):
        read(tmp_path)
    path.rename(path.with_name("attentoin.md"))
    with pytest.raises(UserError, match="no section attentoin; there are"):
        read(tmp_path)


def test_row_that_is_not_measured_yet_leaves_a_note_out(judged, cpu_copy):
    frame = cpu_copy.frames["attention"]
    gone = (frame["implementation"] == "compiled") & (frame["seq_len"] == 128)
    cpu_copy.lacking["attention"] = frame[gone][["seq_len", "d_head", "implementation", "phase"]]
    cpu_copy.frames["attention"] = frame[~gone]
    assert judged(f"{SPEEDUP} > 1", evidence=cpu_copy).why == "attention: not measured yet"


def test_row_of_another_grid_leaves_a_note_out(judged):
    """An axis value that neither rows nor grids have is misspelt; 16384 is in a grid for GPUs."""
    condition = SPEEDUP.replace("128", "16384") + " > 1"
    left_out = judged(condition)
    assert left_out.text is None and not left_out.lacks_rows
    assert left_out.why == "no row with seq_len=16384; there is seq_len=128, 256, 512"


def test_note_may_name_a_size_by_an_alias(judged):
    axes = 'context_length=128, dtype="float32", phase="train_step"'
    call = f'value("end_to_end", "eager", "median_ms", size="xl-2026", {axes})'
    assert 'no row with size="3.4B"' in judged(f"{call} > 0").why


def test_note_for_every_machine_may_lack_its_row(judged):
    condition = SPEEDUP.replace("128", "131072") + " > 1"
    general = judged(condition, general=True)
    assert general.text is None and general.lacks_rows and "seq_len=131072" in general.why


@pytest.mark.slow
def test_example_of_the_manual_is_right(tmp_path, gpu, templates):
    manual = (ROOT / "docs/notes.md").read_text()
    path = tmp_path / "here/notes/flash_attention.md"
    path.parent.mkdir(parents=True)
    path.write_text(re.search(r"```markdown\n(.*?)```", manual, re.DOTALL)[1])
    first, second = read(tmp_path)

    left_out = notes.judge(first, gpu).message
    shown = re.search(r"notes/flash_attention.md:4: note left out: .*", manual)[0]
    assert without_numbers(left_out).endswith(without_numbers(shown))
    assert re.match(
        r"The forward pass \(1\.\d\dx.* of cuDNN's speed", notes.judge(second, gpu).text
    )

    where = {"implementation": "triton", "phase": "backward", "seq_len": 16384, "d_head": 128}
    slower = with_changed_rows(gpu, times_scaled(2), stem="flash_attention", **where)
    section = compose("flash_attention", slower, drawn=False)
    (section,) = notes.added([section], [notes.judge(first, slower)])
    page = without_numbers(pages.page(slower, section, templates))
    (shown,) = re.findall(r"\n\n(> .*?\n)\n", manual, re.DOTALL)
    assert without_numbers(shown) in page


def without_numbers(text):
    return re.sub(r"\d\.\d+", "#", text)


def test_manual_names_every_function_and_filter():
    manual = (ROOT / "docs/notes.md").read_text()
    assert re.findall(r"^\| `(\w+)\(", manual, re.MULTILINE) == [*FUNCTIONS]
    assert all(f"`{name}`" in manual for name in FILTERS)


@pytest.fixture
def project(tmp_path):
    """A project with a machine `m` that has an (empty) write-up, and a record of it."""
    made = Project(load_config(ROOT / "config/config.yaml"), tmp_path)
    for folder in ("report/m/notes", "templates/notes"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "report/m/machine.json").write_text("{}")
    (tmp_path / "report/m/report.md").write_text("written\n")
    written.record(made, "m")
    assert written.is_current(made, "m")
    return made


@pytest.mark.parametrize("folder", ["report/m/notes", "templates/notes"])
def test_changed_note_makes_the_write_up_due(project, folder):
    path = project.root / folder / "attention.md"
    for text in ("one", "two"):
        path.write_text(text)
        assert not written.is_current(project, "m")
        written.record(project, "m")
        assert written.is_current(project, "m")
    path.unlink()
    assert not written.is_current(project, "m")


def test_note_on_one_machine_is_not_in_the_key_of_all(project):
    before = rendering_key(project.config, project.root)
    (project.root / "report/m/notes/attention.md").write_text("one")
    assert rendering_key(project.config, project.root) == before


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout with a part of the H200's evidence, in which commands run."""
    for folder in ("templates", "config"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    machine = tmp_path / "report/nvidia-h200"
    (machine / "evidence").mkdir(parents=True)
    shutil.copy(ROOT / "report/nvidia-h200/machine.json", machine)
    for path in (ROOT / "report/nvidia-h200/evidence").glob("attention.*"):
        shutil.copy(path, machine / "evidence")
    (machine / "notes").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


H200 = 'value("attention", "eager", "median_ms", seq_len=256, d_head=16, phase="forward"'


@pytest.mark.machine
def test_verify_names_a_note_that_is_left_out(checkout, capsys, monkeypatch):
    for module in ("evidence.review.causes", "commands.verify.not_rendered"):
        monkeypatch.setattr(f"lmperf.{module}", lambda *_: [])
    monkeypatch.setattr("lmperf.reporting.render.silent_gaps", lambda *_: [])
    note = checkout / "report/nvidia-h200/notes/attention.md"
    note.write_text(f'---\nholds: {H200}, dtype="float32") > 1000\n---\nIt is slow.\n')
    assert cli.main(["verify", "nvidia-h200"]) == 0
    assert "/notes/attention.md:2: note left out: " in capsys.readouterr().out


@pytest.mark.machine
@pytest.mark.parametrize("command", ["report", "verify"])
def test_wrong_note_is_one_line_and_exit_code_2(checkout, capsys, command):
    note = checkout / "report/nvidia-h200/notes/attention.md"
    note.write_text(f'---\nholds: {H200}, dtype="float31") > 1\n---\nIt is slow.\n')
    assert cli.main([command, "nvidia-h200"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("lmperf: report/nvidia-h200/notes/attention.md:2: value: no dtype")


def test_general_note_without_rows_is_named_only_on_request(project, monkeypatch, cpu):
    lacking = notes.Judged(None, why="no row", lacks_rows=True)
    monkeypatch.setattr(render, "_notes_on", lambda *_: [lacking])
    monkeypatch.setattr(render, "review", lambda *_: None)
    monkeypatch.setattr(render, "machine_evidence", lambda *_: cpu)
    monkeypatch.setattr(notes, "judge", lambda note, _: note)
    monkeypatch.setattr(notes.Judged, "message", "named")
    assert render.notes_left_out(project, ["m"]) == []
    assert render.notes_left_out(project, ["m"], every=True) == ["m: named"]
