import pytest

from lmperf.errors import UserError
from lmperf.transformer.sizes import COURSES, SIZES, canonical


def test_size_name_is_its_parameter_count():
    for name in {*SIZES} - {"tiny"}:
        billions = SIZES[name].parameters() / 1e9
        assert name == (f"{billions:.2f}B" if billions < 1 else f"{billions:.1f}B")


def test_short_names_and_aliases_are_unambiguous():
    names = [n for key, s in SIZES.items() for n in {key, s.short, *s.aliases}]
    assert len(names) == len(set(names))


def test_error_of_ambiguous_size_names_both_meanings():
    with pytest.raises(UserError, match=r"xl-2025 \(2\.0B\) or xl-2026 \(3\.4B\)"):
        canonical("xl")


def test_unknown_size_is_refused_with_the_known_ones():
    with pytest.raises(UserError, match=r"unknown size 'huge'.*12\.8B, small"):
        canonical("huge")


def test_names_and_aliases_resolve_to_canonical_sizes():
    for year, sizes in COURSES.items():
        for name, expected in sizes.items():
            assert canonical(f"{name}-{year}" if name == "xl" else name) == expected
    assert [canonical(name) for name in ("tiny", "0.13B", "2.7B", "10B")] == [
        *("tiny", "0.13B", "3.4B", "12.8B")
    ]
