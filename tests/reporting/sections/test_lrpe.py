"""Tests of the page of md_lrpe_cosine and of its part of the first page."""

import itertools

import planted
import pytest

from lmperf.reporting.frames import having
from lmperf.reporting.sections import section

STEM, PART = "lrpe", "report/lrpe"
# Times in ms of 32,768 positions, as on an H200.
MS = {"copy": 1.0, "eager": 10.0, "compiled": 4.0, "triton": 1.05, "triton_cached": 1.2}
SHAPES = {"256": 0.01, "8192": 0.25, "32768": 1.0, "32x32x32": 1.0}


def rows(implementation, factor=1.0, **values):
    """Rows in bf16 with and without extra tokens; ``factor``: of the times in MS."""
    one = {"batch": 12, "heads": 12, "d_head": 128, "dtype": "bfloat16"}
    one |= {"implementation": implementation, "peak_mib": 100.0, "host_ms": 0.1} | values
    return [
        planted.row(
            STEM,
            MS[implementation] * factor * SHAPES[shape],
            **{"shape": shape, "extra_tokens": tokens, "phase": phase} | one,
            bytes=1.8e9 * SHAPES[shape],
        )
        for shape, tokens, phase in itertools.product(SHAPES, (0, 10), ("forward", "backward"))
    ]


def everything(**factors):
    """Rows of all implementations; ``factors``: of the times of some; None leaves one out."""
    factors = dict.fromkeys(MS, 1.0) | factors
    return [one for name, f in factors.items() if f is not None for one in rows(name, f)]


def part(*made):
    return planted.page(PART, planted.evidence(*made))


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (
            everything(triton=0.5),
            "kernel (Triton) runs at 190 % of the speed of the fastest copy; little",
        ),
        (everything(triton=2.0), "runs at 48 % of the speed of the fastest copy, so bytes do not"),
        (everything(triton=1 / 1.05), "runs at 100 % of the speed of the fastest copy; little"),
        (everything(triton=None, triton_cached=None), "Compiled code runs at 25 % of the speed"),
        (everything(copy=None), None),
        ([], None),
    ],
    ids=["fast", "slow", "equal", "missing", "no copy", "nothing"],
)
def test_first_page_follows_the_data(made, said):
    text = part(*made).text
    assert said in text if said else "of a copy" not in text


@pytest.mark.parametrize(
    ("factor", "said"),
    [
        (1 / 1.05, "as fast as the fastest copy, forward and backward."),
        (1.9, "memory-bound, at 50.1 % of the speed"),
        (1.92, "49.6 % of the speed"),
    ],
)
def test_page_says_what_bounds_it(factor, said):
    first = planted.page(STEM, planted.evidence(*everything(triton=factor))).said[0]
    assert first.startswith(f"md_lrpe_cosine, lmperf's kernel (bf16, from 8,192 positions): {said}")


@pytest.mark.parametrize("facts", [planted.H200, planted.CPU])
def test_a_slow_copy_is_not_the_baseline(facts):
    made = everything(copy=None)
    for tokens, ms in (("0", 1.2), ("10", 1.0)):  # the one without extra tokens was compiled badly
        made += [one for one in rows("copy", ms) if one["extra_tokens"] == tokens]
    if facts is planted.CPU:
        made = [one | {"gpus": "", "together": one["extra_tokens"]} for one in made]
    evidence = planted.evidence(*made, facts=facts)
    page = planted.page(PART, evidence)
    assert "runs at 95 % of the speed of the fastest copy" in page.text
    drawn = having(section(evidence, STEM).curves, implementation="copy", positions=32768)
    assert drawn["gbps"].to_list() == pytest.approx([1800, 1800]) and drawn["gbps_low"].isna().all()


@pytest.mark.parametrize(("least", "is_said"), [(3.9, True), (0.5, False)])
def test_speed_up_is_said_only_if_it_is_known_of_every_shape(least, is_said):
    noisy = {"rounds_ms": ";".join(["4.0", str(least)] * 4)}
    made = [
        one | (noisy if one["implementation"] == "compiled" and one["shape"] == "32768" else {})
        for one in everything()
    ]
    text = planted.page(STEM, planted.evidence(*made)).text
    assert ("Speed-up of lmperf's kernel over compiled (from" in text) is is_said


def test_a_loaded_copy_is_no_baseline():
    made = everything(copy=None) + rows("copy", 1.2, marks="loaded", other_load=0.3)
    assert "of a copy" not in part(*made).text


def test_slow_host_at_one_size_makes_no_kernel_launch_bound():
    made = [one | ({"host_ms": "0.5"} if one["shape"] == "8192" else {}) for one in everything()]
    page = planted.page(STEM, planted.evidence(*made))
    assert (
        "Up to about 256 positions forward, 256 positions backward, lmperf's kernel takes"
        in page.text
    )


@pytest.mark.parametrize(("second", "positions"), [("64x64", "4,096"), ("16x16", "256")])
def test_axes_are_compared_at_as_many_positions(second, positions):
    cell = {"batch": 12, "heads": 12, "d_head": 128, "dtype": "bfloat16", "extra_tokens": 0}
    times = {"256": 1, "16x16": 1, "4096": 16, "16384": 64, second: 16 if second == "64x64" else 1}
    rows = [
        planted.row("lrpe", ms, shape=shape, phase=phase, implementation=name, bytes=ms, **cell)
        for shape, ms in times.items()
        for phase in ("forward", "backward")
        for name in ("copy", "triton", "compiled")
    ]
    said = f"with 1 and 2 axes ({positions} positions)"
    assert said in planted.page("lrpe", planted.evidence(*rows)).text
