import subprocess
import sys

import pytest

from lmperf.errors import UserError
from lmperf.transformer.sizes import COURSES, SIZES, ModelSize, canonical


def test_heads_have_width_64_except_in_two_sizes():
    d_heads = {name: size.d_head for name, size in SIZES.items()}
    assert d_heads == dict.fromkeys(SIZES, 64) | {"3.4B": 80, "12.8B": 128}


@pytest.mark.parametrize("name", [name for name in SIZES if name != "tiny"])
def test_size_name_is_its_parameter_count(name):
    billions = SIZES[name].parameters() / 1e9
    assert name == (f"{billions:.2f}B" if billions < 1 else f"{billions:.1f}B")


@pytest.mark.parametrize(
    "name, millions",
    [
        ("0.13B", 128.6),
        ("0.42B", 423.2),
        ("0.97B", 969.4),
        ("2.0B", 1998),
        ("3.4B", 3407),
        ("12.8B", 12_830),
    ],
)
def test_parameter_counts(name, millions):
    assert SIZES[name].parameters() / 1e6 == pytest.approx(millions, rel=5e-4)


@pytest.mark.parametrize(
    "name, expected",
    [
        ("tiny", "tiny"),
        ("0.13B", "0.13B"),
        ("small", "0.13B"),
        ("medium", "0.42B"),
        ("large", "0.97B"),
        ("xl-2025", "2.0B"),
        ("2.7B", "3.4B"),
        ("xl-2026", "3.4B"),
        ("10B", "12.8B"),
    ],
)
def test_canonical_resolves_names_and_aliases(name, expected):
    assert canonical(name) == expected


def test_short_names_and_aliases_are_unambiguous():
    names = [n for key, s in SIZES.items() for n in {key, s.short, *s.aliases}]
    assert len(names) == len(set(names))


def test_error_of_ambiguous_size_names_both_meanings():
    with pytest.raises(UserError, match=r"xl-2025 \(2\.0B\) or xl-2026 \(3\.4B\)"):
        canonical("xl")


def test_unknown_size_is_refused_with_the_known_ones():
    with pytest.raises(UserError, match=r"unknown size 'huge'.*12\.8B, small"):
        canonical("huge")


@pytest.mark.parametrize("year", COURSES)
def test_course_names_resolve_to_canonical_sizes(year):
    for name, expected in COURSES[year].items():
        assert canonical(f"{name}-{year}" if name == "xl" else name) == expected


@pytest.mark.parametrize("d_model, num_heads, says", [(30, 4, "not divisible"), (12, 4, "is odd")])
def test_invalid_number_of_heads_is_refused(d_model, num_heads, says):
    with pytest.raises(ValueError, match=says):
        ModelSize(d_model, 8, 1, num_heads)


def test_closed_forms_import_no_torch():
    modules = "lmperf.transformer.flops, lmperf.transformer.memory, lmperf.transformer.rounding"
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
