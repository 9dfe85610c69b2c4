"""What a template says where a value is missing."""

from itertools import product

import pytest
from planted import evidence, page, row

from lmperf.benchmarks import load, stems
from lmperf.errors import UserError
from lmperf.reporting import pages, sentences
from lmperf.reporting.render import load_templates

KNOWN = '{% set here = rows("lrpe").where(implementation="triton") %}'
LACKING = '{% set gone = rows("lrpe").where(implementation="eager") %}'


@pytest.fixture
def said(tmp_path):
    """Render a text as a user's template; `here` has rows, `gone` has none."""
    rows = [row("lrpe", ms, implementation="triton", shape=shape) for shape, ms in SHAPES]

    def render(text):
        (tmp_path / "mine.md.j2").write_text(KNOWN + LACKING + text)
        load_templates.cache_clear()
        return page("mine", evidence(*rows), own=tmp_path).text

    return render


SHAPES = (("256", 1.0), ("8192", 4.0))
GONE = "{{ gone.least('ms').ms | sig }}"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"One.\nIt takes {GONE} ms\nor more.\nTwo.", "One. Two."),
        ("It takes {{ here.least('ms').ms / gone.least('ms').ms }} times as long.", ""),
        ("It takes {{ [1, gone.least('ms').ms] | max }} ms.", ""),
        (
            f"- **Why?**\n  In {GONE} ms.\n  [F1](x)\n- **So?**\n  Yes.\n  [F2](y)",
            "- **So?** Yes. [F2](y)",
        ),
        (f"- **Why {GONE}?**\n  So.\n  [F1](x)", ""),
        ("{{ said('lrpe', 'copy') }}\nTwo.", "Two."),
        (f"- One\n- It takes {GONE} ms\n- Two.", "- One\n- Two."),
        (f"## Times\n\n{GONE}\n*A caption.*\n\n## Else\nTwo.", "## Else\nTwo."),
        (f"## A\n### B\nIt is {GONE}.\n### C\nTwo.", "## A\n### C\nTwo."),
        (f"## A\n### B\nIt is {GONE}.\n\n## D\nTwo.", "## D\nTwo."),
        (f"| a | {GONE} |", "| a | – |"),
        ("{% call note() %}It is {{ gone.over('triton') }}.{% endcall %}", ""),
        ("{% if gone.least('ms').ms > 1 %}\nOne.\n{% else %}\nTwo.\n{% endif %}", "Two."),
    ],
)
def test_sentence_goes_with_a_missing_value(said, text, left):
    assert said(text).strip() == left


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"It runs[[ at {GONE} GB/s]], fast.", "It runs, fast."),
        (f"It runs [[at {GONE} GB/s||in float32]].", "It runs in float32."),
        ("It takes [[{{ here.least('ms').ms | sig }} ms||long]].", "It takes 1.00 ms."),
        (f"It[[ runs[[ at {GONE} GB/s]] here]].", "It runs here."),
        ("`x[y[0]]` and {{ '[[a||b]]' }}.", "`x[y[0]]` and [[a||b]]."),
    ],
)
def test_clause_goes_with_a_missing_value(said, text, left):
    assert said(text) == left + "\n"


@pytest.mark.parametrize(
    ("call", "left"),
    [
        ('here | each("{ms} ms ({shape})", "{ms} ({shape})")', "1.00 ms (256), 4.00 (8192)"),
        ('here | each("{shape}", last=" and ")', "256 and 8192"),
        ('here | each("{shape}[[ ({power_w} W)]]")', "256, 8192"),
        ('here | each("{shape}: {power_w} W")', ""),
        ('gone | each("{shape}")', ""),
        ('[("a", 0.5)] | each("{0}: {1:percent}")', "a: 50.0 %"),
    ],
)
def test_each_row_is_said_by_a_pattern(said, call, left):
    assert said(f"{{{{ {call} }}}}.").strip() == (left and f"{left}.")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{{ here | each("{mss}") }}', "no column mss"),
        ('{{ here | each("{ms:precent}") }}', "no filter precent"),
        ("{{ here.leest('ms') }}", "leest"),
        ("{{ here.one.ms }}", "2 rows of lrpe hold, which differ in shape; choose one by .where"),
        ("{{ gone.frame.iloc[0] }}", "no element 0"),  # a slip, not a value that is missing
        ("{% filter table(here) %}shape: {shape}\nx: {mss}{% endfilter %}", "no column mss"),
        ("{% filter table(here) %}shape: {shape}\nx: ms{% endfilter %}", "'x: ms' is no column"),
        ('{% if gone.one.dtype == "tf32" %}{% endif %}', "compared with 'tf32'"),
        ('{{ "in" if here.over("triton") == "faster" }}', "compare their"),
    ],
)
def test_slip_is_an_error_with_its_line(said, text, words):
    with pytest.raises(UserError) as error:
        said("\n" + text)
    assert "mine.md.j2:2: " in str(error.value) and words in str(error.value)


def test_table_is_written_as_it_reads(said):
    made = said(
        """{% filter table(here, again=False) %}
## Kernels
Times
{shape} numerics {dtype}
time (ms): {triton.ms} (interval) | {{ "both: {ms} (at {shape:name})" }}
{phase}, half (ms): {ms / 2}
{phase}, over itself: {over.triton}
gone: {{ gone.least("ms").ms }} {ms}
One
note.
It takes {{ gone.least("ms").ms | sig }} ms.
{% endfilter %}"""
    )
    caption = "**Times, float32.**"
    head = "| shape | time (ms) | both | backward, half (ms) |"
    line = "| 256 | 1.00 (0.998-1.00) | 1.00 (at 256) | 0.500 |"
    assert made.startswith("## Kernels\n") and made.endswith("\n\nOne note.\n")
    assert caption in made and head in made and line in made


def test_axis_is_a_column_where_pandas_has_an_attribute_of_its_name(said):
    shapes = "{{ here.frame.shape | list | listed }}, {{ here.least('ms').shape }}"
    assert said(shapes) == "256 and 8192, 256\n"


def test_code_keeps_its_lines_and_blanks():
    code = "Do this.\n\n```python\nif x:\n\n    y = a[b[0]]\n```\nThen\nthat.\n"
    assert sentences.finished(code) == code.replace("Then\nthat", "Then that")


@pytest.mark.machine
def test_times_of_withheld_rows_are_on_no_page(tmp_path):
    withheld = [
        {"status": "failed_check"},
        {"flops": 1e18},  # faster than the ceiling below allows
    ]
    ceiling = {"operation": "matmul", "load": "burst", "flops": 1e11}
    rows = [row("ceilings", 1.0, dtype=of, **ceiling) for of in ("float32", "bfloat16", "tf32")]
    for stem in {*stems()} - {"ceilings"}:
        benchmark = load(stem)
        why = withheld if stem == "end_to_end" else withheld[:1]
        names = [one.name for one in benchmark.implementations]
        for place, (name, phase) in enumerate(product(names, benchmark.phases)):
            of = {"implementation": name, "phase": phase, "tokens": 4096, "step": 100, "loss": 2}
            of = {axis: value for axis, value in of.items() if axis in benchmark.kinds}
            is_withheld = place % 2
            more = why[place // 2 % len(why)] if is_withheld else {}
            rows.append(row(stem, 777.1 if is_withheld else 2.0, **of, **more))
    here = evidence(*rows)
    every = "".join(f'{{{{ rows("{stem}") | each("[[{{ms}}]] x") }}}}.\n' for stem in stems())
    (tmp_path / "mine.md.j2").write_text(every)
    load_templates.cache_clear()
    for name in pages.page_names(tmp_path, here):
        text = page(name, here, own=tmp_path).text
        assert "withheld" in text or name in ("mine", "course", "published")
        assert "777" not in text and "5,271" not in text, name
