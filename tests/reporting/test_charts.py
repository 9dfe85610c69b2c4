"""Tests of the interactive figures: their data are those of the static ones."""

import json

import pytest
import synthetic
from rendered_evidence import custom, hostile, marked

from lmperf.reporting.charts import bar_chart, line_chart
from lmperf.reporting.evidence import having
from lmperf.reporting.figures import DARK, LIGHT
from lmperf.reporting.sections import compose, declared, stems
from lmperf.reporting.sections.end_to_end import waterfall
from lmperf.reporting.sections.flash_attention.figure import selected


@pytest.fixture(scope="module")
def machine():
    return synthetic.gpu_evidence()


def values_of(spec):
    return spec["data"]["values"]


def colours_in(value):
    if isinstance(value, dict):
        value = [*value.values()]
    if isinstance(value, list):
        return {name for one in value for name in colours_in(one)}
    is_colour = isinstance(value, str) and value.startswith("colour:")
    return {value.removeprefix("colour:")} if is_colour else set()


@pytest.mark.slow
def test_every_figure_of_the_report_has_a_chart(machine, templates):
    for stem in stems(templates):
        section = declared(stem)
        if section.figure and stem != "distributed":
            specs = section.charts(machine)
            assert specs and all(map(values_of, specs)), stem
            known = {*LIGHT.colours, "ink"}
            assert colours_in(json.loads(json.dumps(specs, allow_nan=False))) <= known
    assert {*LIGHT.colours} == {*DARK.colours}


def test_lines_have_the_rates_intervals_and_calls_of_the_rows(machine):
    (spec,) = declared("flash_attention").charts(machine)
    _, rows, _ = selected(machine)
    points = [record for record in values_of(spec) if "y" in record]
    assert sorted(record["y"] for record in points) == sorted(rows["rate"])
    assert all(record["low"] <= record["y"] <= record["high"] for record in points)
    assert {record["n"] for record in points} == set(rows["repetitions"])
    assert points[0]["panel"].startswith("forward"), "phases have the order of reports"


def test_bars_add_up_to_the_times_of_the_figure(machine):
    (spec,) = declared("end_to_end").charts(machine)
    steps = having(waterfall.usual(machine), size="small")
    found = waterfall.times(machine, steps)
    bars = [record for record in values_of(spec) if record["panel"].startswith("small")]
    for ms, before in zip(found["ms"], found["before"], strict=True):
        ends = {ms, before} if before == before else {ms}
        assert any(abs(sum(_bar(bars, record["line"])) - max(ends)) < 1e-9 for record in bars)


def test_bars_keep_their_order_if_the_first_panel_lacks_one():
    bars = [
        {"panel": panel, "line": line, "name": "step", "y": 1.0}
        for panel, line in (("small", "b"), ("large", "a"), ("large", "b"))
    ]
    spec = bar_chart("", bars, {"step": "blue"}, "ms", lines=("a", "b"))
    assert spec["spec"]["encoding"]["y"]["sort"] == ["a", "b"]


def test_one_length_has_no_line_of_a_ceiling():
    def names(*lengths):
        dots = [{"panel": "", "name": "eager", "x": x, "y": 1.0} for x in lengths]
        spec = line_chart("", dots, ["eager"], ("length", "rate"), {"peak": 9.0})
        return {record["name"].partition(":")[0] for record in values_of(spec)}

    assert names(128, 256) == {"eager", "peak"} and names(128) == {"eager"}


def _bar(records, line):
    return [record["y"] for record in records if record["line"] == line]


@pytest.mark.slow
def test_charts_of_hostile_and_empty_evidence_are_data(machine, cpu, templates):
    few = synthetic.small(machine)
    for evidence in (hostile(marked(custom(few))), cpu, type(cpu)("empty")):
        for stem in stems(templates):
            json.dumps(list(compose(stem, evidence).charts), allow_nan=False)
