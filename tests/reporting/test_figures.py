"""Every figure, in the light and the dark theme, is legible at 700 px without overlapping text."""

from __future__ import annotations

import functools
import itertools
import re

import pytest
import synthetic
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from lmperf.benchmarks import load
from lmperf.names import IMPLEMENTATIONS
from lmperf.reporting.figures import (
    DARK,
    INTERVAL,
    LIGHT,
    SPARE_LOOKS,
    WIDTH,
    Pen,
    apart,
    draw,
    legend_below,
    themed,
    whiskers,
)
from lmperf.reporting.sections import declared, stems

pytestmark = pytest.mark.machine

MACHINES = {"gpu": synthetic.gpu_evidence, "cpu": synthetic.cpu_evidence}
LEAST_POINTS = 8
SLACK = 1.0  # pixels by which boxes of text may touch


@pytest.fixture(scope="module")
def evidences():
    return {name: make() for name, make in MACHINES.items()}


@pytest.fixture(scope="module")
def figure_of(evidences):
    """A function (benchmark, machine) -> light figure, or None if nothing is drawn.

    It makes each figure once.
    """

    @functools.cache
    def make(stem, machine):
        return themed(lambda pen: declared(stem).figure(evidences[machine], pen), LIGHT)

    return make


def pytest_generate_tests(metafunc):
    if "stem" in metafunc.fixturenames:
        templates = synthetic.TEMPLATES
        metafunc.parametrize("stem", [s for s in stems(templates) if declared(s).figure])


def visible_texts(figure):
    """(text, bounding box in pixels) of each visible text of a figure."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    texts = [t for t in figure.findobj(Text) if t.get_text().strip() and t.get_visible()]
    ticks = {label for axis in figure.axes for label in _hidden_ticks(axis)}
    return [(t, t.get_window_extent(renderer)) for t in texts if t not in ticks]


def _hidden_ticks(axes):
    """Labels of ticks outside the range of their axis, which Matplotlib does not draw."""
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
            if not low * (1 - 1e-9) <= tick.get_loc() <= high * (1 + 1e-9):
                yield from (tick.label1, tick.label2)


@pytest.mark.parametrize("machine", MACHINES)
def test_text_stays_on_the_canvas_and_never_overlaps(figure_of, stem, machine):
    figure = figure_of(stem, machine)
    if figure is None:
        pytest.skip(f"{stem}: nothing to draw on the {machine}")
    assert figure.get_size_inches()[0] == pytest.approx(WIDTH)
    boxes = visible_texts(figure)
    canvas = figure.bbox
    for text, box in boxes:
        inside = box.x0 >= -SLACK and box.x1 <= canvas.width + SLACK
        inside &= box.y0 >= -SLACK and box.y1 <= canvas.height + SLACK
        assert inside, f"{text.get_text()!r} leaves the canvas"
        assert text.get_fontsize() >= LEAST_POINTS, f"{text.get_text()!r} is too small"
    for (one, a), (other, b) in itertools.combinations(boxes, 2):
        apart = a.x1 - SLACK <= b.x0 or b.x1 - SLACK <= a.x0
        apart |= a.y1 - SLACK <= b.y0 or b.y1 - SLACK <= a.y0
        assert apart, f"{one.get_text()!r} lies over {other.get_text()!r}"


def test_every_figure_has_a_sentence_as_title(figure_of, stem):
    figures = [figure_of(stem, machine) for machine in MACHINES]
    titles = [figure.get_suptitle() for figure in figures if figure is not None]
    if load(stem).least_devices > 1:
        pytest.skip("drawn from evidence of several GPUs: sections/test_distributed.py")
    assert titles and all(len(title.split()) >= 4 for title in titles)


def test_figures_are_drawn_byte_for_byte_the_same(evidences, stem):
    made = [draw(lambda pen: declared(stem).figure(evidences["cpu"], pen)) for _ in range(2)]
    assert made[0] == made[1] and set(made[0]) in ({"light", "dark"}, set())


@pytest.mark.parametrize("machine", MACHINES)
def test_dark_figure_has_the_layout_of_the_light_one(evidences, stem, machine):
    made = draw(lambda pen: declared(stem).figure(evidences[machine], pen))
    # Colours decide on the names of markers and clip paths as well.
    alike = [re.sub(r"#[0-9a-f]{6}|#?\b[mphi][0-9a-f]{10}\b", "", svg) for svg in made.values()]
    assert alike[1:] == alike[:-1]


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", (LIGHT, DARK), ids=lambda theme: theme.name)
def test_ink_and_colours_have_enough_contrast(theme):
    background = luminance(theme.background)
    for colour in (theme.ink, *theme.colours.values()):
        high, low = sorted((luminance(colour), background), reverse=True)
        assert (high + 0.05) / (low + 0.05) >= 4.5, f"{colour} on {theme.background}"


def test_lines_differ_by_marker_and_dash_not_only_by_colour():
    stand_ins = ("torch", "tiled")  # they share the looks of eager and Triton, which they replace
    looks = [i.look for name, i in IMPLEMENTATIONS.items() if name not in stand_ins]
    lines = [(look.marker, str(look.dash)) for look in (*looks, *SPARE_LOOKS)]
    assert len(set(lines)) == len(lines)
    assert Pen(LIGHT).line("mine", ["mine"]) != Pen(LIGHT).line("eager", ["mine"])


@pytest.mark.parametrize("machine", MACHINES)
def test_data_stay_inside_the_axes(figure_of, stem, machine):
    figure = figure_of(stem, machine)
    for axis in figure.axes if figure else ():
        lines = [line for line in axis.lines if line.get_transform() == axis.transData]
        places = [line.get_xydata() for line in lines]
        places += [box.get_bbox().get_points() for box in axis.patches if box.get_visible()]
        limits = [sorted(axis.get_xlim()), sorted(axis.get_ylim())]
        for place in itertools.chain(*places):
            for value, (low, high) in zip(place, limits, strict=True):
                slack = 1e-6 * (high - low)
                assert not (value < low - slack or value > high + slack), axis.get_title()


def test_only_wide_intervals_are_drawn():
    axis = Figure().subplots()
    whiskers(axis, [1, 2, 3], [100, 100, 100], ([98, 90, None], [102, 101, None]), "#000000")
    (bars,) = axis.containers
    (lines,) = bars.lines[2]
    assert [list(segment[:, 1]) for segment in lines.get_segments()] == [[90, 101]]
    whiskers(axis, [1], [100], ([99], [101]), "#000000")
    assert len(axis.containers) == 1


def test_numbers_are_kept_apart_in_their_order():
    assert list(apart([10.0, 50.0], 5)) == [10, 50]
    places = apart([50.0, 10.0, 51.0, 50.0], 5)
    assert sorted(places) == [places[1], places[0], places[3], places[2]]
    assert min(abs(a - b) for a, b in itertools.combinations(places, 2)) >= 5


@pytest.mark.parametrize("across", [True, False])
def test_legend_says_what_whiskers_are_only_if_some_are_drawn(across):
    figure = Figure()
    narrow, wide = figure.subplots(1, 2)
    whiskers(narrow, [1], [100], ([99], [101]), LIGHT.colours["blue"], across)
    narrow.plot([1], [100], label="eager")
    legend_below(figure, [narrow, wide])
    whiskers(wide, [1], [100], ([90], [101]), LIGHT.colours["blue"], across)
    legend_below(figure, [narrow, wide])
    names = [[text.get_text() for text in legend.get_texts()] for legend in figure.legends]
    assert names == [["eager"], ["eager", INTERVAL]] and "95 %" in INTERVAL and "3 %" in INTERVAL
    figure.draw_without_rendering()
