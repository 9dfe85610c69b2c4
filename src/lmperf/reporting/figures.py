"""The style of the figures: reproducible SVG, in a light and a dark theme.

A figure is WIDTH inches (700 px) wide. The title is the sentence that the figure supports. Lines
and bars differ by marker, dash or hatch as well as by colour. Text has a contrast of at least 4.5:1
against the background of its theme and stays text in the SVG.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.collections import LineCollection
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from lmperf.names import IMPLEMENTATIONS, Look
from lmperf.reporting.foreign import in_figure
from lmperf.reporting.numbers import percent
from lmperf.statistics import CONFIDENCE

WIDTH, HEIGHT = 7.3, 3.4  # inches; at 96 dpi 700 px
TITLE_CHARACTERS = 76
# An interval is drawn where one of its ends is further than this from the value, as a fraction.
WIDE = 0.03
INTERVAL = f"{percent(CONFIDENCE, 0)} interval, if beyond ±{percent(WIDE, 0)}"
WHISKER, CAP = 1.2, 2.5  # points: width of the line, half the length of its ends
SMALL_TEXT, TEXT_INCHES = 8.5, 0.15  # points; height of such a line with a little space around it


@dataclass(frozen=True)
class Theme:
    """The background that a figure is drawn for, and its colours by name."""

    name: str
    background: str
    ink: str
    colours: dict[str, str]


LIGHT = Theme(
    "light",
    "#ffffff",
    "#1f2328",
    {
        "blue": "#0b5cad",
        "orange": "#b34700",
        "green": "#0f7355",
        "pink": "#a8327f",
        "mustard": "#7a6400",
        "violet": "#5b46c2",
        "grey": "#59636e",
    },
)
DARK = Theme(
    "dark",
    "#0d1117",
    "#e6edf3",
    {
        "blue": "#6cb6ff",
        "orange": "#ff9d57",
        "green": "#57d3a4",
        "pink": "#f497d0",
        "mustard": "#d9bf4a",
        "violet": "#b3a4ff",
        "grey": "#9198a1",
    },
)
THEMES = (LIGHT, DARK)
SPARE_LOOKS = (
    Look("pink", "X", (0, (2, 1)), "oo"),
    Look("mustard", "<", (0, (5, 1, 1, 1)), "**"),
    Look("violet", ">", (0, (1, 2)), "||"),
)


def _style(theme: Theme) -> dict:
    ink = (
        *("text.color", "axes.labelcolor", "axes.edgecolor", "axes.titlecolor"),
        *("xtick.color", "ytick.color", "legend.labelcolor"),
    )
    return {
        **dict.fromkeys(ink, theme.ink),
        "svg.hashsalt": "lmperf",
        "svg.fonttype": "none",
        "figure.facecolor": "none",
        "savefig.facecolor": "none",
        "axes.facecolor": "none",
        "grid.color": theme.colours["grey"],
        "grid.alpha": 0.25,
        "grid.linewidth": 0.5,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlesize": 10,
        "figure.titlesize": 11,
        "font.size": 9.5,
        "legend.frameon": False,
        "legend.fontsize": 9,
        "lines.linewidth": 1.8,
        "lines.markersize": 5.5,
        "hatch.linewidth": 0.8,
    }


@dataclass(frozen=True)
class Pen:
    """Colours and line styles for drawing a figure in a theme."""

    theme: Theme

    def colour(self, name: str) -> str:
        """A colour of the theme: blue, orange, green, pink, mustard, violet, grey."""
        return self.theme.colours[name]

    def line(self, implementation: str, among: Sequence[str] = ()) -> dict:
        """Arguments of ``plot`` for an implementation; ``among`` are all names of the figure."""
        look = look_of(implementation, among)
        colour = self.colour(look.colour)
        return {"color": colour, "marker": look.marker, "linestyle": look.dash}

    def bar(self, implementation: str, among: Sequence[str] = ()) -> dict:
        """Arguments of ``bar`` for an implementation."""
        look = look_of(implementation, among)
        return self.filled(look.colour, look.hatch)

    def filled(self, colour: str, hatch: str = "") -> dict:
        """Arguments of ``bar`` or ``fill_between`` for a colour and a hatch."""
        return {
            "facecolor": self.colour(colour),
            "edgecolor": self.theme.background,
            "hatch": hatch,
            "linewidth": 0.5,
        }


def look_of(implementation: str, among: Sequence[str] = ()) -> Look:
    """The look of an implementation; unknown names get the SPARE_LOOKS in alphabetical order."""
    if implementation in IMPLEMENTATIONS:
        return IMPLEMENTATIONS[implementation].look
    unknown = sorted(name for name in among if name not in IMPLEMENTATIONS)
    place = unknown.index(implementation) if implementation in unknown else 0
    return SPARE_LOOKS[place % len(SPARE_LOOKS)]


def themed(build: Callable[[Pen], Figure | None], theme: Theme) -> Figure | None:
    """The figure that ``build`` draws in a theme, laid out; None if there is nothing to draw."""
    with matplotlib.rc_context({**matplotlib.rcParamsDefault, **_style(theme)}):
        figure = build(Pen(theme))
        if figure is not None:
            figure.draw_without_rendering()
        return figure


def draw(build: Callable[[Pen], Figure | None]) -> dict[str, str]:
    """Theme -> SVG of the figure that ``build`` makes; empty if there is nothing to draw."""
    made, first = {}, None
    for theme in THEMES:
        with matplotlib.rc_context({**matplotlib.rcParamsDefault, **_style(theme)}):
            figure = build(Pen(theme))
            if figure is None:
                return {}
            if first is not None:
                _lay_out_as(figure, first)
            svg, first = _svg(figure), figure
        lines = in_figure(svg).splitlines()
        made[theme.name] = "\n".join(line.rstrip() for line in lines) + "\n"
    return made


def _lay_out_as(figure: Figure, other: Figure) -> None:
    """Give a figure the layout of another one that has been drawn and differs only in colours.

    To find a layout takes longer than to draw.
    """
    figure.set_layout_engine(None)
    for part, drawn in zip(figure.subfigs, other.subfigs, strict=True):
        part.bbox_relative.set(drawn.bbox_relative)
    for axis, drawn in zip(figure.axes, other.axes, strict=True):
        axis.set_position(drawn.get_position(original=True))
    for text, drawn in zip(_titles(figure), _titles(other), strict=True):
        text.set_position(drawn.get_position())


def _titles(figure: Figure) -> list[Text]:
    """The texts of a figure and its parts that belong to no panel."""
    return [text for part in (figure, *figure.subfigs) for text in part.texts]


def _svg(figure: Figure) -> str:
    """The figure as SVG, without matplotlib's warnings about missing glyphs and tight layouts.

    ``savefig`` would draw it twice, the first time for the layout alone.
    """
    buffer = io.StringIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph|constrained_layout", UserWarning)
        FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def panels(title: str, count: int = 1, height: float = HEIGHT, **shared) -> tuple[Figure, list]:
    """A figure with ``count`` panels side by side under its title."""
    figure, axes = grid(title, 1, count, height, **shared)
    return figure, list(axes[0])


def grid(
    title: str, rows: int, columns: int, height: float = HEIGHT, **shared
) -> tuple[Figure, np.ndarray]:
    """A figure with panels in rows and columns under its title; axes as [rows, columns]."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **shared)
    figure.suptitle(wrapped(title), x=0.01, ha="left", fontweight="bold")
    return figure, axes


def wrapped(title: str, width: int = TITLE_CHARACTERS) -> str:
    """A title broken between words into lines of ``width`` characters; ``93 %`` stays whole."""
    lines = [""]
    for word in title.replace(" %", "\u00a0%").split(" "):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return "\n".join(lines)


def powers_of_two(axis: Axes, values) -> None:
    """Make an x axis of lengths logarithmic, with at most six labelled values."""
    values = sorted(set(values))
    axis.set_xscale("log", base=2)
    shown = values if len(values) <= 6 else values[:: -(-len(values) // 6)]
    axis.set_xticks(shown, [length(v) for v in shown])
    axis.xaxis.set_minor_locator(NullLocator())


def length(value: float) -> str:
    """A length as a label: ``16k`` for 16,384."""
    return f"{int(value) // 1024}k" if value >= 1024 and value % 1024 == 0 else f"{value:g}"


def logarithmic(axis: Axes) -> None:
    """Make a y axis logarithmic, with plain numbers at its ticks."""
    axis.set_yscale("log")
    low, high = axis.get_ylim()
    subs = (1.0,) if high / low > 200 else (1.0, 2.0, 5.0)
    axis.yaxis.set_major_locator(LogLocator(base=10, subs=subs))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axis.yaxis.set_minor_formatter(NullFormatter())


def number_at_end(axis: Axes, x: float, y: float, words: str) -> None:
    """Write a number at the end of a horizontal bar."""
    look = {"textcoords": "offset points", "va": "center_baseline", "fontsize": SMALL_TEXT}
    axis.annotate(words, (x, y), (4, 0), **look)


def whiskers(axis: Axes, at, values, ends, color: str, across: bool = False) -> None:
    """Draw the intervals of values that are wider than ``WIDE``, named ``INTERVAL``.

    Args:
        at: position of each value on the other axis.
        values: the values; ends: (low, high) ends of their intervals, NaN where unknown.
        color: of the whiskers.
        across: whether the values are on the x axis.
    """
    at, values, low, high = (np.asarray(each, float) for each in (at, values, *ends))
    wide = np.maximum(values - low, high - values) > WIDE * values
    reach = np.stack([values - low, high - values])[:, wide].clip(0)
    places = (values, at) if across else (at, values)
    look = {"fmt": "none", "ecolor": color, "elinewidth": WHISKER, "capsize": CAP, "zorder": 3}
    if wide.any():
        reaches = {"xerr" if across else "yerr": reach}
        axis.errorbar(*(each[wide] for each in places), **reaches, **look, label=INTERVAL)


def apart(values: Sequence[float], least: float) -> np.ndarray:
    """Places near the values, in the same order, that are at least ``least`` from each other."""
    values = np.asarray(values, float)
    order = np.argsort(values, kind="stable")
    steps = least * np.arange(len(values))
    up = np.maximum.accumulate(values[order] - steps) + steps
    down = np.minimum.accumulate((values[order] - steps)[::-1])[::-1] + steps
    places = np.empty(len(values))
    places[order] = (up + down) / 2
    return places


def legend_below(figure: Figure, axes: Sequence[Axes]) -> None:
    """Add one legend below all panels, each name once."""
    entries = {}
    for axis in axes:
        handles, labels = axis.get_legend_handles_labels()
        for handle, label in zip(handles, labels, strict=True):
            entries.setdefault(label, handle)
    if not entries:
        return
    if INTERVAL in entries:
        entries[INTERVAL] = _whisker(across=entries.pop(INTERVAL).has_xerr)
    # Columns are as wide as their widest name, so a single row may fit where several do not.
    beside = sum(len(name) + 7 for name in entries) <= 100
    columns = len(entries) if beside else max(1, 100 // (max(map(len, entries)) + 7))
    figure.legend(
        entries.values(),
        entries.keys(),
        loc="outside lower center",
        ncols=columns,
        handlelength=3.2,
    )


def _whisker(across: bool) -> ErrorbarContainer:
    """The whisker of a legend, in the colour of text: whiskers have the colours of their lines."""
    ink = matplotlib.rcParams["text.color"]
    ends = Line2D([], [], color=ink, marker="|" if across else "_", markersize=2 * CAP)
    line = LineCollection([], colors=ink, linewidths=WHISKER)
    return ErrorbarContainer((None, (ends,), (line,)), has_xerr=across, has_yerr=not across)
