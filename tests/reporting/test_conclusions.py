"""No finding and no figure's title rests on a marked row or an unresolved comparison.

In each section's evidence some rows are planted, in two variants that differ in their times only.
Findings and titles must be the same for both variants.
"""

import random

import pytest
import synthetic

from lmperf.benchmark import Timed
from lmperf.benchmarks import load
from lmperf.reporting.figures import LIGHT, Pen
from lmperf.reporting.sections import compose, stems

MACHINES = {"gpu": synthetic.small_gpu_evidence, "cpu": synthetic.cpu_evidence}
SECTIONS = [stem for stem in stems(synthetic.TEMPLATES) if stem not in ("method", "published")]
TIMES = ("median_ms", "mean_ms", "host_ms", "least_ms", "sustained_ms", "eager_ms")
# Relative times of the rounds of an unresolved row: far more apart than any two implementations.
SCATTER = [1e-4, 9e3, 2e-4, 6e3, 3e-4, 8e3, 1.0, 2e-4, 7e3]


def scaled(text, factors):
    if not isinstance(text, str):
        return text
    times = [float(ms) for ms in text.split(";")]
    return ";".join(repr(ms * factors[i % len(factors)]) for i, ms in enumerate(times))


def planted(make, every, offset, change):
    """Evidence with ``change`` applied to every n-th timed row of each timed benchmark."""
    evidence = make()
    for stem, frame in evidence.frames.items():
        if stem == "ceilings" or not isinstance(load(stem), Timed):
            continue
        frame = frame.copy()
        frame["marks"] = frame.get("marks", None)
        ok = frame.index[(frame["status"] == "ok") & frame["rounds_ms"].notna()]
        change(frame, ok[offset::every])
        evidence.frames[stem] = frame
    evidence.derived.clear()
    return evidence


def marked(mark, factor):
    def change(frame, rows):
        frame["marks"] = frame["marks"].astype(object)
        frame.loc[rows, "marks"] = mark
        frame["reference"] = 1.0
        for name in TIMES:
            if name in frame:
                frame.loc[rows, name] = frame.loc[rows, name] * factor
        for name in ("rounds_ms", "again_ms"):
            frame.loc[rows, name] = [scaled(t, [factor]) for t in frame.loc[rows, name]]

    return change


def unresolved(factor):
    def change(frame, rows):
        shuffled = random.Random(0)  # two planted rows of a group must not scatter alike
        for row in rows:
            factors = [factor * f for f in shuffled.sample(SCATTER, len(SCATTER))]
            frame.loc[row, "rounds_ms"] = scaled(frame.loc[row, "rounds_ms"], factors)
        frame["again_ms"] = None

    return change


def said(stem, evidence):
    """Every statement's values and answer, and the title of the figure."""
    made = compose(stem, evidence)
    figure = made.section.figure and made.section.figure(evidence, Pen(LIGHT))
    title = figure and figure.get_suptitle()
    return {**{s.name: str(s) for s in made.statements}, "title": title}


@pytest.mark.slow
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("kind", ["loaded", "unresolved"])
def test_findings_and_titles_ignore_marked_and_unresolved_rows(machine, kind, offset):
    changes = [unresolved(f) if kind == "unresolved" else marked(kind, f) for f in (1.9, 7.0)]
    one, other = (planted(MACHINES[machine], 5, offset, change) for change in changes)
    for stem in SECTIONS:
        assert said(stem, one) == said(stem, other), stem


@pytest.mark.slow
@pytest.mark.parametrize("stem", SECTIONS)
def test_findings_on_times_are_silent_if_every_row_is_marked(stem):
    clean = said(stem, synthetic.small_gpu_evidence())
    quiet = [said(stem, planted(MACHINES["gpu"], 1, 0, marked("loaded", f))) for f in (1.9, 7.0)]
    assert quiet[0] == quiet[1] and set(quiet[0]) <= set(clean)
    assert not any("faster" in str(text) for text in quiet[0].values())
