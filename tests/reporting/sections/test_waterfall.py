"""The figure of end to end: a waterfall of the ladder's rungs, a panel for each size."""

from dataclasses import replace

import pytest
from matplotlib.colors import to_hex
from step_evidence import (
    light_figure,
    with_equal_times,
    with_rows,
    with_sdpa,
    with_times_scaled,
    with_values,
    without_rows,
)
from synthetic import cpu_evidence, gpu_evidence, small_gpu_evidence

from lmperf.reporting.evidence import having
from lmperf.reporting.figures import LIGHT
from lmperf.reporting.numbers import significant
from lmperf.reporting.sections.end_to_end import losses, waterfall, ways
from lmperf.reporting.sections.end_to_end.figure import MARKED, SAVED, SLOWER_BY, STEP, UNCLEAR
from lmperf.transformer.rungs import RUNGS

pytestmark = pytest.mark.slow

FUSED = {"implementation": "fused_loss", "dtype": ways.BF16}


def panel_of(figure, size):
    return next(axis for axis in figure.axes if axis.get_title() == size)


def rungs_of(axis):
    """The words for the lines, which only the first panel of a row shows."""
    return [label.get_text() for label in axis.figure.axes[0].get_yticklabels()]


def numbers_of(axis):
    """Rung in words -> the text at the end of its bar."""
    names = rungs_of(axis)
    return {names[round(text.xy[1])]: text.get_text() for text in axis.texts}


def kinds_of(axis, rung):
    """The names of the bars that a rung has in a panel."""
    names = rungs_of(axis)
    place, found = names.index(rung), set()
    for bars in axis.containers:
        if hasattr(bars, "patches") and bars.get_label() in (SAVED, SLOWER_BY, UNCLEAR):
            middles = [bar.get_y() + bar.get_height() / 2 for bar in bars.patches]
            found |= {bars.get_label()} if any(abs(m - place) < 0.1 for m in middles) else set()
    return found


@pytest.mark.parametrize("make", [gpu_evidence, cpu_evidence, with_sdpa])
def test_waterfall_is_drawn(make):
    assert light_figure(make()) is not None


def test_each_size_has_a_panel_with_every_rung_in_ms(gpu):
    drawn = light_figure(gpu)
    assert [axis.get_title() for axis in drawn.axes] == ["small", "medium", "large", "2.0B", "3.4B"]
    axis = panel_of(drawn, "large")
    assert len(rungs_of(axis)) == len(RUNGS)
    row = having(gpu.frame(ways.STEM), **FUSED, size="large", batch=4).iloc[0]
    assert numbers_of(axis)["+ loss in chunks"] == significant(row["sustained_ms"])
    assert axis.get_xlabel() == "ms, sustained"


def test_without_the_ladder_the_rungs_that_exist_are_shown():
    drawn = light_figure(small_gpu_evidence())
    assert rungs_of(drawn.axes[0]) == ["float32", "TF32", "bf16 autocast", "+ compiled by block"]


def test_steps_without_sustained_times_are_shown_in_bursts(gpu):
    burst = with_values(gpu, {"sustained_ms": None, "sustained_rounds_ms": None})
    assert {axis.get_xlabel() for axis in light_figure(burst).axes} == {"ms, burst"}


def test_rungs_are_drawn_by_the_verdict_over_the_rung_before(gpu):
    assert kinds_of(panel_of(light_figure(gpu), "large"), "+ loss in chunks") == {SAVED}
    slow = with_times_scaled(gpu, 1.5, size="large", batch=4, **FUSED)
    assert kinds_of(panel_of(light_figure(slow), "large"), "+ loss in chunks") == {SLOWER_BY}
    above = {"implementation": "triton_compiled_blocks", "dtype": ways.BF16}
    cell = {"size": "large", "context_length": 1024, "batch": 4, "phase": ways.STEP}
    equal = with_equal_times(gpu, FUSED, above, **cell)
    assert kinds_of(panel_of(light_figure(equal), "large"), "+ loss in chunks") == {UNCLEAR}
    marked = with_values(gpu, {"marks": "drift"}, size="large", batch=4, **FUSED)
    assert kinds_of(panel_of(light_figure(marked), "large"), "+ loss in chunks") == {UNCLEAR}


def test_slower_rung_that_is_unclear_has_a_bar_to_its_time(gpu):
    slow = with_times_scaled(gpu, 1.5, size="large", batch=4, **FUSED)
    slow = with_values(slow, {"marks": "drift"}, size="large", batch=4, **FUSED)
    axis = panel_of(light_figure(slow), "large")
    frame = having(slow.frames[ways.STEM], size="large", batch=4, phase=ways.STEP, **FUSED)
    bars = [bars for bars in axis.containers if bars.get_label().startswith(MARKED)]
    ends = [bar.get_width() for each in bars for bar in each.patches]
    assert any(end == pytest.approx(frame["sustained_ms"].iloc[0]) for end in ends)


@pytest.mark.parametrize("factor", [1.5, 0.5])
def test_outline_of_an_unclear_rung_is_visible_over_its_bar(gpu, factor):
    changed = with_times_scaled(gpu, factor, size="large", batch=4, **FUSED)
    marked = with_values(changed, {"marks": "drift"}, size="large", batch=4, **FUSED)
    axis = panel_of(light_figure(marked), "large")
    bars, outlines = (
        [
            bar
            for bars in axis.containers
            if bars.get_label().startswith(kind)
            for bar in bars.patches
        ]
        for kind in (MARKED, UNCLEAR)
    )
    place = rungs_of(axis).index("+ loss in chunks")
    (bar,), (outline,) = (
        [each for each in found if each.get_y() < place < each.get_y() + each.get_height()]
        for found in (bars, outlines)
    )
    assert outline.get_height() > bar.get_height() and outline.get_width() > 0
    assert outline.get_edgecolor() != bar.get_facecolor()


def test_title_never_rests_on_a_marked_step(gpu):
    assert "(3.4B, context 1024, batch 4)" in " ".join(light_figure(gpu).get_suptitle().split())
    marked = with_values(gpu, {"marks": "drift"}, size="3.4B", dtype="float32")
    assert "(2.0B, context 1024, batch 4)" in " ".join(light_figure(marked).get_suptitle().split())
    marked = with_values(gpu, {"marks": "drift"}, dtype="float32")
    assert " ms " not in light_figure(marked).get_suptitle()


def test_title_calls_no_rung_the_fastest_beside_a_marked_one(gpu):
    """A marked step may be faster than its time."""
    cell = {"size": "3.4B", "batch": 4, "context_length": 1024}
    slow = with_times_scaled(gpu, 1.5, **cell, implementation="fused_blocks", dtype=ways.BF16)
    marked = with_values(
        slow, {"marks": "host"}, **cell, implementation="fused_blocks", dtype=ways.BF16
    )
    title = " ".join(light_figure(marked).get_suptitle().split())
    assert "fastest" not in title and " ms (float32) to " in title
    assert " ms (loss in chunks), marked rungs aside (3.4B, context 1024, batch 4)" in title
    assert "at its fastest rung, loss in chunks (3.4B" in " ".join(
        light_figure(slow).get_suptitle().split()
    )


def test_title_states_whether_the_ladder_helps(gpu):
    title = " ".join(light_figure(gpu).get_suptitle().split())
    assert title.startswith("With float32 weights, the ladder takes a train step from ")
    quick = with_times_scaled(gpu, 1e-3, implementation=ways.EAGER, dtype="float32")
    assert " slows a train step" in " ".join(light_figure(quick).get_suptitle().split())


def test_title_names_the_fastest_rung_with_float32_weights(gpu):
    cell = {"size": "3.4B", "batch": 4, "context_length": 1024}
    quick = {"implementation": "compiled_blocks", "dtype": ways.BF16}
    title = light_figure(with_times_scaled(gpu, 0.5, **cell, **quick)).get_suptitle()
    assert "at its fastest rung, compiled by block (3.4B, " in " ".join(title.split())
    quick = {"implementation": "graph", "dtype": "bfloat16"}
    title = light_figure(with_times_scaled(gpu, 0.1, **cell, **quick)).get_suptitle()
    assert "at its fastest rung, fused blocks (3.4B, " in " ".join(title.split())


def test_batch_is_stated_in_the_title_or_at_each_panel(gpu):
    drawn = light_figure(gpu)
    assert "(3.4B, context 1024, batch 4)" in " ".join(drawn.get_suptitle().split())
    frame = gpu.frames[ways.STEM]
    several = with_rows(gpu, frame.drop(having(frame, size="small", batch=4).index))
    titles = {axis.get_title() for axis in light_figure(several).axes}
    assert {"small, batch 64", "3.4B, batch 4"} <= titles
    unclear = light_figure(with_values(several, {"marks": "drift"}, dtype="float32"))
    assert unclear.get_suptitle().endswith("(context 1024)")
    unclear = light_figure(with_values(gpu, {"marks": "drift"}, dtype="float32"))
    assert unclear.get_suptitle().endswith("(context 1024, batch 4)")


def test_loss_stands_beside_rungs_with_bf16_weights(gpu):
    numbers = numbers_of(panel_of(light_figure(gpu), "large"))
    with_loss = [rung for rung, words in numbers.items() if "(loss +0.3 %)" in words]
    assert with_loss == ["+ bf16 weights,\ncompiled AdamW", "+ CUDA graph"]
    without = {stem: frame for stem, frame in gpu.frames.items() if stem != "ladder_loss"}
    drawn = light_figure(replace(gpu, frames=without))
    assert numbers_of(panel_of(drawn, "large"))["+ CUDA graph"].endswith(" (loss –)")


def test_loss_within_the_range_of_float32_is_no_change(gpu):
    of_large = {"size": "large", "step": 100}
    high, low = losses.exact_rungs()[:2]
    wide = with_values(gpu, {"loss": 6.7}, losses.LOSS, **of_large, implementation=high)
    wide = with_values(wide, {"loss": 6.45}, losses.LOSS, **of_large, implementation=low)
    found = with_values(wide, {"loss": 6.69}, losses.LOSS, **of_large, implementation="graph")
    assert waterfall.loss_changes(found, "large")["graph"] == "loss as float32"


def test_numbers_at_bars_end_within_the_figure(gpu):
    """The bar before a number may be the longest of its panel."""
    slow = with_times_scaled(gpu, 20.0, implementation=["fused_blocks", "graph"], dtype="bfloat16")
    without = {stem: frame for stem, frame in slow.frames.items() if stem != "ladder_loss"}
    for evidence in (slow, replace(slow, frames=without)):
        drawn = light_figure(evidence)
        for axis in drawn.axes:
            for text in axis.texts:
                assert text.get_window_extent().x1 <= drawn.bbox.x1, text


def bars_at(axis, rung):
    """The names and colours of the filled bars that a rung has in a panel."""
    place = rungs_of(axis).index(rung)
    return {
        (bars.get_label(), to_hex(bar.get_facecolor()))
        for bars in axis.containers
        for bar in getattr(bars, "patches", ())
        if bar.get_y() < place < bar.get_y() + bar.get_height() and bar.get_facecolor()[3]
    }


def test_marked_bar_has_another_look_and_the_sign_of_its_mark(gpu):
    marked = with_values(gpu, {"marks": "host"}, size="large", batch=4, **FUSED)
    drawn = light_figure(marked)
    large, small = panel_of(drawn, "large"), panel_of(drawn, "small")
    words = "train step, marked: ᵒ beside a slow host"
    assert bars_at(large, "+ loss in chunks") == {(words, LIGHT.colours["grey"])}
    assert bars_at(small, "+ loss in chunks") == {(STEP, LIGHT.colours["blue"])}
    assert "ᵒ" in numbers_of(large)["+ loss in chunks"]
    assert "ᵒ" not in numbers_of(small)["+ loss in chunks"]
    assert words in [text.get_text() for text in drawn.legends[0].get_texts()]


def test_rung_without_a_time_says_why(gpu):
    cell = {"size": "large", "context_length": 1024, "batch": 4, "dtype": "float32"}
    red = with_values(gpu, {"max_error": 1.0, "error_bound": 1e-3}, **cell, implementation="eager")
    assert numbers_of(panel_of(light_figure(red), "large"))["float32"] == "gate failed, withheld"
    full = with_values(gpu, {"status": "oom"}, **cell, implementation="eager")
    assert numbers_of(panel_of(light_figure(full), "large"))["float32"] == "OOM"
    assert numbers_of(panel_of(light_figure(gpu), "2.0B"))["+ CUDA graph"] == "not measured"


def test_a_size_with_one_time_has_no_panel(gpu):
    alone = without_rows(gpu, size="medium", dtype=["tf32", ways.BF16])
    assert "medium" not in [axis.get_title() for axis in light_figure(alone).axes]
    alone = with_rows(gpu, having(gpu.frames[ways.STEM], implementation="eager", dtype="float32"))
    assert light_figure(alone) is None
