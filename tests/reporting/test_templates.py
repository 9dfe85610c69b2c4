"""Templates and claims hold words: every number on the page is computed."""

import ast
import re
from pathlib import Path

import pytest
from jinja2 import nodes
from jinja2.exceptions import SecurityError, UndefinedError

import lmperf.reporting
from lmperf.reporting.environment import environment
from lmperf.reporting.sections import claims_of, stems

# What names a cell in words is no measurement: a width, a length from or up to which.
CELL_WORDS = re.compile(r"\b[dn] [≥≤]? ?\d+")
NAME_WITH_DIGITS = re.compile(r"[A-Za-z][\w-]*\d[\w-]*")


def typed_numbers(text, made):
    """Numbers that someone typed: in the words, or as constants in an expression."""
    tree = made.parse(text)
    words = [data.data for data in tree.find_all(nodes.TemplateData)]
    constants = [node.value for node in tree.find_all(nodes.Const)]
    compared = {id(side.expr) for c in tree.find_all(nodes.Compare) for side in c.ops}
    numbers = [
        node.value
        for node in tree.find_all(nodes.Const)
        if isinstance(node.value, int | float)
        and not isinstance(node.value, bool)
        and id(node) not in compared
    ]
    strings = [value for value in constants if isinstance(value, str)]
    words = [CELL_WORDS.sub("", part) for part in words + strings]
    found = [re.findall(r"\d+", NAME_WITH_DIGITS.sub("", part)) for part in words]
    return numbers + [number for part in found for number in part]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Backward takes 1.9 times", ["1", "9"]),
        ("{{ 1.9 }} times", [1.9]),
        ("about {{ '68' }} %", ["68"]),
        ("float32, bf16, Table E1, FlashAttention-2 and {{ x | sig }}", []),
        ("{{ 'row' if n == 1 else 'rows' }}", []),
    ],
)
def test_a_typed_number_is_found(text, found, templates):
    assert typed_numbers(text, environment(templates)) == found


def test_no_template_holds_a_typed_number(templates):
    made = environment(templates)
    paths = sorted(templates.rglob("*.md.j2"))
    assert len(paths) >= 9
    found = {path.name: typed_numbers(path.read_text(), made) for path in paths}
    assert not {name: numbers for name, numbers in found.items() if numbers}


def test_no_claim_holds_a_typed_number(templates):
    made = environment(templates)
    texts = [
        text
        for stem in stems(templates)
        for claim in claims_of(stem)
        for text in (claim.text, claim.instead, claim.about)
    ]
    assert len(texts) >= 60
    assert not [text for text in texts if typed_numbers(text, made)]


WORDS = re.compile(r"[a-z]{2,}.* | .*[a-z]{2,}")


def prose_of(source):
    """Strings of a module that hold words: no docstring, no format of a number, no lone name."""
    tree = ast.parse(source)
    skipped = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    formats = [n.format_spec for n in ast.walk(tree) if isinstance(n, ast.FormattedValue)]
    skipped |= {id(part) for spec in formats if spec for part in ast.walk(spec)}
    strings = [n for n in ast.walk(tree) if isinstance(n, ast.Constant) and id(n) not in skipped]
    return [n.value for n in strings if isinstance(n.value, str) and WORDS.search(n.value)]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('"""Takes 3 times."""\nx = "a word or 2"', ["2"]),
        ('x = f"about {y:.2f} of 68 %"', ["68"]),
        ('x = f"d {d:g}, {y:.3f} ms, float32, d 64, n ≥ 2048"', []),
        ('x = "2.7B"', []),
    ],
)
def test_a_number_typed_in_prose_is_found(source, found):
    assert [n for text in prose_of(source) for n in prose_numbers(text)] == found


def prose_numbers(text):
    """Numbers typed in a string of a module; one with Jinja in it is read as Jinja."""
    text = CELL_WORDS.sub("", text)
    if "{{" in text or "{%" in text:
        text = re.sub(r"\{\{.*?\}\}|\{%.*?%\}", "", text)
    return re.findall(r"\d+", NAME_WITH_DIGITS.sub("", text))


def test_no_module_of_the_report_types_a_number_in_prose():
    paths = sorted(Path(lmperf.reporting.__file__).parent.rglob("*.py"))
    assert len(paths) > 20
    found = {
        f"{path.parent.name}/{path.name}: {text}": prose_numbers(text)
        for path in paths
        for text in prose_of(path.read_text())
    }
    assert not {name: numbers for name, numbers in found.items() if numbers}


def test_an_undefined_name_is_an_error(templates):
    with pytest.raises(UndefinedError):
        environment(templates).from_string("{{ nothing }}").render()


def test_the_environment_is_sandboxed(templates):
    made = environment(templates)
    with pytest.raises(SecurityError):
        made.from_string("{{ ''.__class__.__mro__[1].__subclasses__() }}").render()
