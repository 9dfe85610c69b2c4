"""Templates and claims hold words: every number on the page is computed."""

import re

import pytest
from jinja2 import nodes
from jinja2.exceptions import SecurityError, UndefinedError

from lmperf.reporting.environment import environment
from lmperf.reporting.sections import claims_of, stems

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
    found = [re.findall(r"\d+", NAME_WITH_DIGITS.sub("", part)) for part in words + strings]
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


def test_an_undefined_name_is_an_error(templates):
    with pytest.raises(UndefinedError):
        environment(templates).from_string("{{ nothing }}").render()


def test_the_environment_is_sandboxed(templates):
    made = environment(templates)
    with pytest.raises(SecurityError):
        made.from_string("{{ ''.__class__.__mro__[1].__subclasses__() }}").render()
