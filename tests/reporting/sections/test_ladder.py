"""The ladder: train steps that each add one optimization (a rung) to the step before.

Tests table E6, the speed-up from the first to the last rung, and the loss with bf16 weights.
"""

import math
import re

import pandas as pd
import pytest
from finding_checks import assert_answers_reached
from step_evidence import line_of, sentence_of, with_rows, with_values
from synthetic import cpu_evidence, gpu_evidence

from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.numbers import Spread, ranged, ratio, rounded, significant
from lmperf.reporting.sections.end_to_end import (
    SECTION,
    ladder,
    ladder_findings,
    losses,
    recipes,
    waterfall,
    ways,
)
from lmperf.reporting.sections.end_to_end.figure import labels
from lmperf.reporting.speedup import compared
from lmperf.transformer.rungs import RUNGS


def rung(name: str) -> dict[str, str]:
    """The columns that select the rows of a rung among the train steps of end to end."""
    found = next(rung for rung in RUNGS if rung.name == name)
    where = {"dtype": found.dtype, "implementation": found.implementation}
    return {**where, "phase": "train_step", "context_length": 1024}


def with_rung_times_scaled(evidence: MachineEvidence, factor: float, **where) -> MachineEvidence:
    """The evidence with the times of the rungs selected by ``where`` multiplied by ``factor``."""
    frame = evidence.frames[ladder.STEM].copy()
    rows = having(frame, **where).index
    assert len(rows), where
    for column in ("rounds_ms", "sustained_rounds_ms"):
        frame.loc[rows, column] = [
            ";".join(repr(float(ms) * factor) for ms in text.split(";"))
            for text in frame.loc[rows, column]
        ]
    return with_rows(evidence, frame, ladder.STEM)


def with_equal_rounds() -> MachineEvidence:
    evidence = gpu_evidence()
    frame = evidence.frames[ladder.STEM]
    equal = dict.fromkeys(("rounds_ms", "sustained_rounds_ms"), "1.0;1.0;1.0;1.0;1.0;1.0;1.0")
    return with_rows(evidence, frame.assign(**equal))


def with_scattered_losses(**where) -> MachineEvidence:
    """Evidence in which a rung with float32 weights has a loss of its own, only by rounding."""
    return with_values(
        gpu_evidence(), {"loss": 9.0}, losses.LOSS, step=100, implementation="autocast", **where
    )


CASES = {
    "ladder": {
        "all": gpu_evidence,
        "some": lambda: with_rung_times_scaled(gpu_evidence(), 500, **rung("graph"), size="small"),
        "none": lambda: with_rung_times_scaled(gpu_evidence(), 500, **rung("graph")),
    },
    "ladder_most": {
        "one": gpu_evidence,
        "by_size": lambda: with_rung_times_scaled(
            gpu_evidence(), 0.01, **rung("graph"), size="small"
        ),
        "none": with_equal_rounds,
    },
    "ladder_loss": {
        "near": gpu_evidence,
        "apart": lambda: with_values(
            gpu_evidence(),
            {"loss": 9.0},
            losses.LOSS,
            size="small",
            step=100,
            implementation="graph",
        ),
        "undecided": with_scattered_losses,
    },
}


@pytest.mark.slow
def test_findings_give_every_declared_answer():
    assert_answers_reached(ladder_findings.FINDINGS, CASES)


def test_table_e6_compares_each_rung_with_the_rung_above(gpu):
    parts = {t.id: t for t in SECTION.tables}["E6"].make(gpu)
    assert [part.caption.split(", ", 1)[1] for part in parts] == [
        *("size small, context 1024, batch 4", "size small, context 1024, batch 64"),
        *("size large, context 1024, batch 4", "size large, context 1024, batch 16"),
        *("size 3.4B, context 1024, batch 4", "size 3.4B, context 1024, batch 8"),
    ]
    lines = parts[0].frame
    assert list(lines["implementation"])[:2] == ["float32", "TF32"] and len(lines) == 9
    graph = line_of(parts[0], implementation="CUDA graph")
    assert graph["over the rung above"].startswith("1.20x (")
    assert (
        graph["loss (over float32)"] == "6.520"
        and "Loss: mean of the last tenth of 100 steps" in parts[0].notes
    )
    frame = having(gpu.frame(ladder.STEM), size="small", batch=4)
    for name, words in ("graph", "CUDA graph"), ("float32", "float32"):
        line, row = line_of(parts[0], implementation=words), having(frame, **rung(name)).iloc[0]
        mfu = row["flops"] / row["sustained_ms"] / 1e9 / 989.5
        assert line["MFU (%)"] == significant(100 * mfu), "of bf16's peak, in every line"
    row = having(frame, **rung("graph")).iloc[0]
    assert graph["peak memory (GiB)"] == significant((row["peak_mib"] + 1024) / 1024)
    assert graph["burst (ms)"].startswith(f"{significant(row['mean_ms'])} ± ")
    assert graph["sustained (ms)"].startswith(f"{significant(row['sustained_ms'])} (")
    assert graph["tokens/s"] == rounded(4096 / row["sustained_ms"] * 1e3)
    assert (graph["its clock (MHz)"], graph["its power (W)"]) == ("1575", "690")
    assert line_of(parts[1], implementation="flash attention")["over the rung above"] == "–"
    assert "6.520" in set(parts[1].frame["loss (over float32)"]), "beside every batch"


def test_rungs_are_the_rows_of_end_to_end(gpu):
    frame = gpu.frame(ladder.STEM)
    found = ladder.rungs(frame)
    assert set(found["context_length"]) == {1024} and set(found["phase"]) == {"train_step"}
    assert set(found["size"]) == {"small", "large", "3.4B"} and len(found) == 3 * (9 + 5)
    assert set(found["implementation"]) == {rung.name for rung in RUNGS}
    alone = with_rows(gpu, having(frame, implementation=[ways.EAGER, ways.BLOCKS]))
    assert ladder.rungs(alone.frame(ladder.STEM)).empty and not ladder.tables(alone)


@pytest.mark.slow
def test_ladder_without_sustained_times_labels_its_rates_burst(gpu):
    burst = with_values(gpu, {"sustained_ms": None}, ladder.STEM, phase="train_step")
    header = {*{t.id: t for t in SECTION.tables}["E6"].make(burst)[0].frame}
    assert {"burst (ms)", "tokens/s, burst", "MFU, burst (%)"} <= header
    assert not header & {"sustained (ms)", "tokens/s", "MFU (%)"}
    assert " % (burst). " in sentence_of("ladder", burst)


def with_gap(gpu) -> MachineEvidence:
    """The evidence without four rungs of size small, batch 4, which are configured all the same."""
    frame = gpu.frames[ladder.STEM]
    names = ("compiled_blocks", "flash_attention", "fused_loss", "bf16_weights")
    gone = [having(frame, size="small", batch=4, **rung(name)) for name in names]
    gone = pd.concat(gone)
    partial = with_rows(gpu, frame.drop(gone.index))
    partial.lacking[ladder.STEM] = gone
    return partial


@pytest.mark.slow
def test_rung_after_a_gap_is_not_compared_with_the_line_above(gpu):
    table = {t.id: t for t in SECTION.tables}["E6"].make(with_gap(gpu))[0]
    over = table.frame.set_index("implementation")["over the rung above"]
    assert over["fused blocks"] == over["CUDA graph"] == "–" and over["bf16 autocast"] != "–"
    assert "adds a technique to the rung before it" in table.notes
    assert (
        "Not measured, so without a line: compiled by block; flash attention; loss in chunks;"
        " bf16 weights, compiled AdamW. The next line has no speed-up" in table.notes
    )
    assert "not measured:" not in {t.id: t for t in SECTION.tables}["E6"].make(gpu)[0].notes


def test_figure_shows_no_saving_after_a_gap(gpu):
    partial = with_gap(gpu)
    rows = having(waterfall.usual(partial), size="small")
    steps = waterfall.times(partial, rows).set_index("implementation")
    assert steps.loc[["fused_blocks", "graph"], "before"].isna().all()
    assert not steps.loc[["fused_blocks", "graph"], "saves"].any()
    assert steps.loc["autocast", "before"] == steps.loc["tf32", "ms"]
    assert labels(partial, rows)["fused_blocks"] == "fused blocks"
    assert labels(gpu, waterfall.usual(gpu))["fused_blocks"] == "+ fused blocks"


def test_largest_speedup_of_a_rung_spans_no_gap(gpu):
    partial = with_gap(gpu)
    small = having(partial.frames[ladder.STEM], size="small", batch=4, context_length=1024)
    partial = with_rows(partial, small)
    assert "CUDA graph" not in sentence_of("ladder_most", partial)


def test_largest_speedup_needs_all_rungs_compared(gpu):
    assert "at small, large and 3.4B: " in sentence_of("ladder_most", gpu)
    # No job was running at this time: the GPU is unknown.
    elsewhere = {"together": "another", "measured_at": "2027-01-01T00:00:00.000+00:00"}
    apart = with_values(gpu, elsewhere, ladder.STEM, size="small", **rung("tf32"))
    assert "at large and 3.4B: " in sentence_of("ladder_most", apart)


def test_largest_speedup_is_open_where_a_larger_one_is_not_resolved(gpu):
    marked = with_values(gpu, {"marks": "host"}, ladder.STEM, size="small", **rung("tf32"))
    assert "at large and 3.4B: " in sentence_of("ladder_most", marked)


def test_rung_after_an_oom_rung_has_no_speedup(gpu):
    full = {"status": "oom", "requested_bytes": 2 * 2**30, "free_bytes": 2**30, "rounds_ms": None}
    failed = with_values(gpu, full, ladder.STEM, size="small", batch=4, **rung("autocast"))
    part = {t.id: t for t in SECTION.tables}["E6"].make(failed)[0]
    line = line_of(part, implementation="bf16 autocast")
    assert line["burst (ms)"].startswith("OOM") and line["peak memory (GiB)"] == "–"
    assert line_of(part, implementation="compiled by block")["over the rung above"] == "–"


def test_ladder_finding_states_total_speedup_and_loss(gpu):
    sentence = sentence_of("ladder", gpu)
    series = (ways.Way(each.implementation, each.dtype).series for each in (RUNGS[-1], RUNGS[0]))
    gain = compared(gpu, ladder.STEM, *series).set_index("size")["ratio"]
    ends = ranged(Spread.of(gain), ratio)
    assert f"makes a step {ends} as fast at small, large and 3.4B." in sentence
    assert "% (burst)" not in sentence and sentence.endswith(
        "within 1 % of the mean with float32 weights."
    )
    loss = sentence_of("ladder_loss", gpu)
    assert "within 0.26 %" in loss and loss.endswith(
        "of those with float32 weights, which are up to 0.05 % apart."
    )
    apart = sentence_of("ladder_loss", CASES["ladder_loss"]["apart"]())
    assert re.search(r"the range \(and its width\): small \+\d+\.\d % \(0\.\d\d %\)", apart)
    assert "bf16 weights" in sentence_of("ladder", cpu_evidence())


def test_ladder_finding_and_table_state_a_loss_that_grows(gpu):
    grown = with_values(
        gpu, {"loss": 9.0}, losses.LOSS, size="3.4B", step=100, implementation="graph"
    )
    sentence = sentence_of("ladder", grown)
    assert sentence.endswith("weights raise the loss after 100 steps by up to 38.4 % (3.4B).")
    parts = {t.id: t for t in SECTION.tables}["E6"].make(grown)
    for part in parts[-2:]:
        line = line_of(part, implementation="CUDA graph")
        assert line["loss (over float32)"] == "9.000 (+38.4 %)"
    unknown = with_rows(gpu, gpu.frames[losses.LOSS].iloc[:0], losses.LOSS)
    assert sentence_of("ladder", unknown).endswith("Its loss was not measured.")


def test_loss_in_the_range_of_float32_weights_is_not_raised(gpu):
    """Rounding alone moves losses as far: see the runs with float32 weights."""

    def with_loss(evidence, *names):
        where = {"size": "3.4B", "step": 100, "implementation": [*names]}
        return with_values(evidence, {"loss": 6.7}, losses.LOSS, **where)

    steps = having(gpu.frames[ladder.STEM], size="3.4B")
    above = with_loss(gpu, "bf16_weights", "graph")
    assert losses.raises(above, "3.4B", "graph")
    assert "bf16 weights raise the loss: 3.4B +" in losses.growth_words(above, steps)
    assert "weights raise the loss" in sentence_of("ladder", above)
    within = with_loss(above, "autocast")
    assert losses.growth(within, "3.4B", "graph") > losses.NEAR
    assert losses.growth_words(within, steps) == ""
    assert sentence_of("ladder", within).endswith("about as far as rounding alone moves it.")


def test_losses_on_other_tokens_are_not_compared(gpu):
    other = {"loss": 9.0, "seed": 7}
    mixed = with_values(gpu, other, losses.LOSS, step=100, implementation="autocast")
    found = losses.losses(mixed).loc["3.4B"]
    assert math.isnan(found.loc["autocast", "base"]), "one run is no reference"
    alike = found.drop(index="autocast")
    assert alike["base"].nunique() == 1 and alike["base"].iloc[0] < 7
    assert sentence_of("ladder", mixed).endswith("within 1 % of the mean with float32 weights.")
    assert "within 0.26 %" in sentence_of("ladder_loss", mixed)
    notes = {t.id: t for t in SECTION.tables}["E6"].make(mixed)[-1].notes
    assert "other tokens are compared among themselves" in notes
    lone = with_values(gpu, {"seed": 7}, losses.LOSS, size="3.4B", implementation="graph")
    assert losses.growth(lone, "3.4B", "graph") is None


def test_losses_of_a_second_cell_stand_for_nothing(gpu):
    frame = gpu.frames[losses.LOSS]
    more = having(frame, size="3.4B", implementation=["float32", "autocast"])
    more = more.assign(context_length=64, loss=9.0)
    both = with_rows(gpu, pd.concat([frame, more], ignore_index=True), losses.LOSS)
    assert losses.losses(both).equals(losses.losses(gpu))
    assert losses.loss_words(both, "3.4B") == losses.loss_words(gpu, "3.4B")


def test_losses_that_rounding_scatters_decide_nothing():
    small = with_scattered_losses(size="small")
    assert losses.growth(small, "small", "graph") is None
    assert losses.growth(small, "3.4B", "graph") is not None
    for name in ("ladder", "ladder_loss"):
        said = sentence_of(name, small)
        assert re.search(
            r" At small rounding alone changes the loss by up to \d+ %: it is no", said
        )
    everywhere = sentence_of("ladder", with_scattered_losses())
    assert "was not measured" not in everywhere and "of float32's" not in everywhere


@pytest.mark.slow
def test_one_run_with_float32_weights_is_no_reference(gpu):
    frame = gpu.frames[losses.LOSS]
    few = having(frame, implementation=["float32", "graph"])
    few = pd.concat([having(few, size="small"), frame[frame["size"] != "small"]])
    lone = with_rows(gpu, few, losses.LOSS)
    lone = with_values(lone, {"loss": 9.0}, losses.LOSS, size="small", implementation="graph")
    assert losses.growth(lone, "small", "graph") is None
    table = {t.id: t for t in SECTION.tables}["E6"].make(lone)[0]
    assert line_of(table, implementation="CUDA graph")["loss"] == "9.000"
    assert "No reference: fewer than 2 runs have float32 weights." in table.notes
    said = " At small its loss has no reference: fewer than 2 runs have float32 weights."
    assert sentence_of("ladder", lone).endswith(said)
    assert "small" not in sentence_of("ladder_loss", lone)
    assert waterfall.loss_changes(lone, "small") == {"graph": "loss unclear"}
    assert recipes.tables(lone)[1].notes.endswith(
        "No reference at small: fewer than 2 runs have float32 weights."
    )


def test_ladder_finding_states_a_loss_that_falls(gpu):
    fallen = with_values(
        gpu, {"loss": 6.0}, losses.LOSS, size="3.4B", step=100, implementation="graph"
    )
    assert sentence_of("ladder", fallen).endswith(
        "Its loss exceeds the mean with float32 weights by at most 1 %,"
        " and is up to 7.7 % lower (3.4B)."
    )


@pytest.mark.slow
def test_table_e6_shows_float8_steps_over_the_highest_rung():
    evidence = gpu_evidence()
    frame = evidence.frames[ladder.STEM]
    graph = having(frame, implementation="graph", size="3.4B", batch=8)
    (blocks,) = graph["sustained_rounds_ms"]
    faster = ";".join(str(float(ms) / 1.25) for ms in blocks.split(";"))
    float8 = graph.assign(implementation="fp8_tensorwise", sustained_rounds_ms=faster)
    evidence = with_rows(evidence, pd.concat([frame, float8], ignore_index=True))
    shown = [t for t in ladder.tables(evidence) if "FP8, tensorwise (torchao)" in str(t.frame)]
    assert len(shown) == 1 and "1.25x tensorwise and 1.10x rowwise" in shown[0].notes
    over = line_of(shown[0], implementation="FP8, tensorwise (torchao)")["over the rung above"]
    assert over.startswith("1.25x")
    assert [t.notes for t in ladder.tables(gpu_evidence()) if "FP8" in t.notes] == []
