"""The sentences below the title: how far the numbers of a write-up can be trusted."""

import pytest

from lmperf.reporting import trust
from lmperf.reporting.numbers import Count

REPEATS = ["Kernels repeat within 1 %."]
NONE_UNRESOLVED = Count(0, 9)


def said(unresolved=NONE_UNRESOLVED, repeats=REPEATS, mostly=None, **health):
    known = {"gated": 2584, "red": 0, "stale": 0, "missing": 0, "unmeasured": 0, "damaged": []}
    known |= {"unmeasured_rows": 0, "unchecked": 0}
    return " ".join(trust.sentences({**known, **health}, repeats, unresolved, mostly))


def test_clean_report_passes_repeats_and_resolves():
    assert said() == (
        "All 2,584 checked results pass. Kernels repeat within 1 %. Every comparison is resolved."
    )
    assert said(Count(83, 900)).endswith("83 of 900 comparisons are unresolved.")


@pytest.mark.parametrize(
    ("health", "words"),
    [
        ({"red": 1}, "1 of 2,584 checked results failed and is withheld."),
        (
            {"unchecked": 20},
            "20 results were not checked and are withheld: their checks do not fit into memory.",
        ),
        (
            {"unchecked": 1},
            "1 result was not checked and is withheld: its check does not fit into memory.",
        ),
        ({"stale": 2}, "2 results are stale: code or environment has changed since."),
        ({"missing": 1}, "1 result is missing."),
        (
            {"missing": 99, "unmeasured": 14, "unmeasured_rows": 90},
            "99 results are missing, 90 of them of 14 benchmarks that were not measured.",
        ),
        ({"damaged": ["lrpe"]}, "**Damaged evidence is withheld: lrpe.**"),
        ({"gated": 0}, "No result was checked."),
        ({"repeats": []}, "Repeatability was not measured."),
    ],
)
def test_every_fault_has_its_sentence(health, words):
    assert words in said(**health)


@pytest.mark.parametrize(
    ("unresolved", "number", "words"),
    [
        (83, 60, "83 of 900 comparisons are unresolved, 60 of them of End to end."),
        (83, 83, "83 of 900 comparisons are unresolved, all of them of End to end."),
        (1, 1, "1 of 900 comparisons is unresolved (End to end)."),
    ],
)
def test_section_with_most_unresolved_comparisons_is_named(unresolved, number, words):
    assert said(Count(unresolved, 900), mostly=("End to end", number)).endswith(words)


def test_report_without_comparisons_says_nothing_of_them():
    assert "comparison" not in said(Count(0, 0))
