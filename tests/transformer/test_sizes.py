from lmperf.transformer.sizes import ALIASES, COURSES, SIZES


def test_size_name_is_its_parameter_count():
    for name in {*SIZES} - {"tiny"}:
        billions = SIZES[name].parameters() / 1e9
        assert name == (f"{billions:.2f}B" if billions < 1 else f"{billions:.1f}B")


def test_short_names_and_aliases_are_unambiguous():
    names = [n for key, s in SIZES.items() for n in {key, s.short, *s.aliases}]
    assert len(names) == len(set(names))


def test_names_of_the_courses_are_names_or_aliases():
    for year, names in COURSES.items():
        for name, expected in names.items():
            written = f"{name}-{year}" if name == "xl" else name
            assert ALIASES.get(written, written) == expected
