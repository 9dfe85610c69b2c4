"""The first tables of the write-up: the fastest recipe for a train step of each model size."""

import pytest
from step_evidence import (
    line_of,
    with_equal_times,
    with_rows,
    with_times_scaled,
    with_values,
    without_rows,
)
from synthetic import gpu_evidence, small_gpu_evidence

from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.numbers import ratio, rounded, significant
from lmperf.reporting.sections.end_to_end import choice, losses, recipes, ways
from lmperf.reporting.speedup import resolved

EAGER, BLOCKS, WHOLE, BF16 = ways.EAGER, ways.BLOCKS, ways.WHOLE, ways.BF16
RECIPE = "recipe, float32 weights"
NOT_COMPARED = "Not compared, since another GPU (or one not recorded) timed it"
CHUNKS = "bf16 autocast, Triton attention, compiled, loss in chunks"
# No job was running at this time: the GPU is unknown.
APART = {"together": "another", "measured_at": "2027-01-01T00:00:00.000+00:00"}


def implementations(evidence):
    """Size -> implementation of the recipe to run."""
    best = choice.fastest(evidence)
    return dict(zip(best["size"], best["implementation"], strict=True))


@pytest.mark.slow
def test_first_table_has_the_fastest_recipe_of_each_size(gpu):
    table = recipes.tables(gpu)[0]
    assert [*table.frame] == [
        *("size", RECIPE, "time (ms)", "tokens/s", "MFU (%)", "peak (GiB)", "over TF32"),
    ]
    assert table.caption == "Recommended train step, context 1024, batch 4" and table.length == 5
    line = line_of(table, size="small")
    where = {"size": "small", "context_length": 1024, "batch": 4, "phase": "train_step"}
    way = {"dtype": BF16, "implementation": "fused_blocks"}
    row = having(gpu.frame(ways.STEM), **where, **way).iloc[0]
    assert line[RECIPE] == f"{CHUNKS}, fused blocks" and line_of(table, size="medium")[
        RECIPE
    ].endswith(", compiled")
    assert line["time (ms)"].startswith(f"{significant(row['sustained_ms'])} (")
    assert line["tokens/s"] == rounded(4096 / row["sustained_ms"] * 1e3)
    assert line["peak (GiB)"] == significant(row["peak_mib"] / 1024)
    pair = ways.Way("fused_blocks", BF16).series, recipes.TF32.series
    gain = resolved(gpu, ways.STEM, *pair).loc[row.name, "ratio"]
    assert line["over TF32"].startswith(f"{ratio(gain)} (")


@pytest.mark.slow
def test_without_tf32_the_speedup_is_over_float32(gpu):
    table = recipes.tables(without_rows(gpu, dtype="tf32"))[0]
    assert "over float32" in table.frame and "over eager float32" in table.notes


@pytest.mark.slow
def test_note_says_that_blocks_are_compiled_unless_a_model_is(gpu):
    said = "Compiled: one block, which all layers share."
    assert said not in recipes.tables(gpu)[0].notes  # medium compiles the whole model
    assert said in recipes.tables(without_rows(gpu, implementation=WHOLE))[0].notes


@pytest.mark.slow
def test_burst_times_are_labelled(gpu):
    table, faster = recipes.tables(with_values(gpu, {"sustained_ms": None}, phase="train_step"))
    assert "time, burst (ms)" in table.frame and "time, burst (ms)" in faster.frame
    assert "single calls with pauses" in table.notes


@pytest.mark.slow
def test_bf16_weights_have_a_table_of_their_own_with_their_loss(gpu):
    grown = with_values(gpu, {"loss": 9.0}, "ladder_loss", step=100, implementation="graph")
    first, faster = recipes.tables(grown)
    assert not first.frame[RECIPE].str.contains("bf16 weights").any()
    line = line_of(faster, size="large")
    assert line["recipe, bf16 weights"] == "bf16 weights, CUDA graph"
    assert (line["loss"], line["mean loss, float32 weights"]) == ("9.000 (+38.4 %)", "6.502")
    assert line["over the above"].startswith("1.2") and faster.length == 3


@pytest.mark.slow
def test_loss_within_the_range_of_float32_weights_has_no_bracket(gpu):
    rungs = losses.exact_rungs()[:2]
    of_large = {"size": "large", "step": 100}
    wide = with_values(gpu, {"loss": 6.7}, losses.LOSS, **of_large, implementation=rungs[0])
    wide = with_values(wide, {"loss": 6.45}, losses.LOSS, **of_large, implementation=rungs[1])
    for loss, shown in ((6.69, "6.690"), (6.8, "6.800 (+4.2 %)")):
        found = with_values(wide, {"loss": loss}, losses.LOSS, **of_large, implementation="graph")
        faster = recipes.tables(found)[1]
        assert line_of(faster, size="large")["loss"] == shown
        assert "Rounding alone moves it by up to 3.9 % (large)." in faster.notes


@pytest.mark.slow
def test_table_of_losses_says_on_how_many_tokens_each_size_trained(gpu):
    longer = with_values(gpu, {"context_length": 1024}, "ladder_loss", size="small")
    assert recipes.tables(longer)[1].notes.endswith(
        "Loss: after 100 steps of one run on the same tokens: 2,048 tokens a step (small), 256"
        " tokens a step (large and 3.4B)."
    )


@pytest.mark.slow
def test_bf16_weights_have_a_line_where_no_recipe_is_known(gpu):
    where = {"phase": "train_step", "implementation": "fused_blocks", "size": "small"}
    first, faster = recipes.tables(with_values(gpu, {"marks": "host"}, **where, dtype=BF16))
    assert "small" not in set(first.frame["size"])
    assert faster.caption.startswith("Recommended, with bf16 weights")
    assert line_of(faster, size="small")["over the above"] == "–"
    assert line_of(faster, size="large")["over the above"] != "–"
    assert faster.notes.endswith(
        "At small no step with float32 weights is recommended to compare with."
    )


@pytest.mark.slow
def test_note_names_recipes_that_rules_left_out(gpu):
    assert "in bursts alone" not in recipes.tables(gpu)[0].notes
    where = {"size": "small", "dtype": BF16, "context_length": 1024, "phase": "train_step"}
    burst = {"sustained_ms": float("nan"), "sustained_rounds_ms": None}
    said = "At small other recipes were timed in bursts alone: not compared."
    slow = with_values(gpu, burst, **where, implementation=EAGER)
    assert said not in recipes.tables(slow)[0].notes
    near = with_values(gpu, burst | {"median_ms": 7.0}, **where, implementation="fused_loss")
    assert said in recipes.tables(near)[0].notes


@pytest.mark.slow
def test_recipe_timed_on_another_gpu_is_not_compared(gpu):
    assert NOT_COMPARED not in recipes.tables(gpu)[0].notes
    fused = {"size": "small", "implementation": "fused_blocks", "dtype": BF16}
    found = with_values(gpu, APART, **fused)
    assert f"{NOT_COMPARED}: {CHUNKS}, fused blocks, " in recipes.tables(found)[0].notes
    assert implementations(found)["small"] != "fused_blocks"


@pytest.mark.slow
def test_speedup_over_tf32_of_another_run_is_not_shown(gpu):
    found = with_values(gpu, APART, size="small", dtype="tf32")
    table = recipes.tables(found)[0]
    assert line_of(table, size="small")["over TF32"] == "another run"
    assert NOT_COMPARED not in table.notes, "eager TF32 is slower"
    assert implementations(found) == implementations(gpu)


@pytest.mark.slow
def test_eager_float32_alone_on_its_gpu_is_not_the_recipe_to_run(gpu):
    where = {"size": "small", "dtype": "float32", "implementation": EAGER, "phase": "train_step"}
    assert implementations(with_values(gpu, APART, **where)) == implementations(gpu)


@pytest.mark.slow
def test_recipes_of_two_gpus_are_not_called_tied(gpu):
    gpu = without_rows(gpu, dtype="float32", implementation=EAGER)
    where = {"size": "small", "dtype": BF16, "implementation": "fused_blocks"}
    found = with_values(gpu, APART, **where, phase="train_step")
    best = choice.fastest(found).set_index("size").loc["small"]
    assert best["implementation"] == "fused_blocks" and not best["tied"]
    assert NOT_COMPARED not in recipes.tables(found)[0].notes, "the others are slower"


@pytest.mark.slow
def test_bf16_weights_on_another_gpu_are_not_said_to_be_slower(gpu):
    found = with_values(gpu, APART, dtype=ways.BF16_WEIGHTS, phase="train_step")
    (table,) = recipes.tables(found)
    assert "No recipe with bf16 weights is known to be faster." in table.notes
    assert f"{NOT_COMPARED}: bf16 weights, CUDA graph, " in table.notes
    assert all(f"ms ({size})" in table.notes for size in ("small", "large", "3.4B"))


def test_recipe_without_a_rival_is_no_winner_and_has_no_speedup(gpu):
    frame = gpu.frames[ways.STEM]
    alone = having(frame, size="small", dtype=BF16, implementation="fused_blocks")
    table = recipes.tables(with_rows(gpu, alone))[0]
    assert "At small no other recipe with float32 weights was measured." in table.notes
    assert "Speed-up" not in table.notes and not any("over" in name for name in table.frame)
    assert "no other recipe" not in recipes.tables(gpu)[0].notes


@pytest.mark.slow
def test_bf16_weights_that_are_not_faster_have_no_table(gpu):
    slow = with_times_scaled(gpu, 10, dtype=ways.BF16_WEIGHTS)
    (only,) = recipes.tables(slow)
    assert "No recipe with bf16 weights is known to be faster." in only.notes


@pytest.mark.slow
def test_unmeasured_loss_is_said_in_the_table(gpu):
    lacking = with_rows(gpu, gpu.frames["ladder_loss"].iloc[:0], "ladder_loss")
    table = recipes.tables(lacking)[1]
    assert set(table.frame["loss"]) == {"not measured"}
    assert "Loss" not in table.notes and "  " not in table.notes


@pytest.mark.slow
def test_marked_step_is_no_recipe(gpu):
    marked = with_values(gpu, {"marks": "drift"}, phase="train_step", implementation="fused_blocks")
    assert "fused_blocks" not in implementations(marked).values()
    assert "Left out, since marked: 3 steps." in recipes.tables(marked)[0].notes


@pytest.mark.slow
def test_size_whose_fastest_step_is_marked_is_left_out(gpu):
    where = {"phase": "train_step", "implementation": "fused_blocks", "size": "small"}
    marked = with_values(gpu, {"marks": "host"}, **where)
    assert implementations(gpu).keys() - implementations(marked).keys() == {"small"}
    notes = recipes.tables(marked)[0].notes
    said = f"No line for small: its fastest step is marked ({CHUNKS}"
    assert said in notes


def test_size_keeps_its_recipe_beside_a_slower_marked_step(gpu):
    where = {"phase": "train_step", "implementation": "eager", "dtype": BF16}
    assert implementations(with_values(gpu, {"marks": "host"}, **where)) == implementations(gpu)


def test_burst_time_takes_no_part_beside_sustained_ones(gpu):
    where = {"phase": "train_step", "implementation": BLOCKS, "dtype": BF16, "size": "large"}
    quick = {"median_ms": 0.1, "sustained_ms": None, "flops": None}
    assert implementations(with_values(gpu, quick, **where)) == implementations(gpu)


def test_recipe_must_beat_eager_float32_beyond_noise():
    """A median that is shorter, but not resolved from noise, does not make a step the fastest."""
    evidence = small_gpu_evidence()
    evidence = with_rows(evidence, having(evidence.frames[ways.STEM], dtype="float32"))
    evidence = with_equal_times(
        without_rows(evidence, implementation=WHOLE),
        {"implementation": BLOCKS},
        {"implementation": EAGER},
    )
    evidence = with_values(evidence, {"median_ms": 0.1, "flops": None}, implementation=BLOCKS)
    assert set(implementations(evidence).values()) == {EAGER}


@pytest.mark.parametrize(
    ("slower", "chosen", "tied"), [(1.01, "sdpa", False), (1.5, "graph", True)]
)
def test_simpler_recipe_stands_if_it_is_not_beaten(slower, chosen, tied):
    """The rounds of two recipes are equal, so that neither beats the other."""
    evidence = without_rows(
        gpu_evidence(), implementation=["fused_loss", "fused_blocks", "compiled"]
    )
    frame = evidence.frames[ways.STEM]
    sdpa = having(frame, dtype=BF16, implementation=BLOCKS, phase="train_step")
    frame = frame.assign(
        implementation=frame["implementation"].replace({"triton_compiled_blocks": "graph"})
    ).drop(having(frame, dtype=ways.BF16_WEIGHTS).index)
    frame.loc[sdpa.index, "implementation"] = "sdpa"
    where = {"dtype": BF16, "size": "large", "context_length": 1024, "phase": "train_step"}
    evidence = with_equal_times(
        with_rows(evidence, frame[frame["batch"] == 4]),
        {"implementation": "sdpa"},
        {"implementation": "graph"},
        **where,
    )
    graph = having(evidence.frames[ways.STEM], **where, implementation="graph").iloc[0]
    ms = {"sustained_ms": slower * graph["sustained_ms"], "flops": None}
    evidence = with_values(evidence, ms, **where, implementation="sdpa")
    row = choice.fastest(evidence).set_index("size").loc["large"]
    assert (row["implementation"], row["tied"]) == (chosen, tied)
    said = "At large the lead over a simpler recipe is unresolved."
    assert (said in recipes.tables(evidence)[0].notes) == tied


def test_machine_without_steps_has_no_first_table():
    assert recipes.tables(MachineEvidence("empty")) == []


@pytest.mark.slow
def test_size_whose_bf16_weights_another_gpu_timed_is_named(gpu):
    where = {"size": "large", "phase": "train_step"}
    marked = with_values(gpu, {"marks": "host"}, **where, implementation="fused_blocks", dtype=BF16)
    found = with_values(marked, APART, **where, dtype=ways.BF16_WEIGHTS)
    first, second = recipes.tables(found)
    assert "large" not in {*first.frame["size"], *second.frame["size"]}
    said = "No line for large: another GPU than that of eager float32 timed it (bf16 weights,"
    assert said in second.notes and "stochastically" in second.notes
    assert "No line for large: another GPU" not in recipes.tables(gpu)[1].notes


@pytest.mark.slow
def test_size_whose_marked_bf16_weights_are_faster_is_named(gpu):
    where = {"size": "large", "phase": "train_step"}
    found = with_values(gpu, {"marks": "host"}, **where, implementation="fused_blocks", dtype=BF16)
    found = with_values(found, {"marks": "host"}, **where, implementation="graph")
    assert (
        "No line for large: a marked step is faster (bf16 weights, "
        in recipes.tables(found)[1].notes
    )


@pytest.mark.slow
def test_second_table_says_where_the_simplest_recipe_is_shown(gpu):
    where = {"size": "large", "context_length": 1024, "batch": 4, "phase": "train_step"}
    where |= {"dtype": ways.BF16_WEIGHTS}
    simpler, faster = {"implementation": "fused_blocks"}, {"implementation": "graph"}
    found = with_equal_times(gpu, simpler, faster, **where)
    ms = having(found.frames[ways.STEM], **faster, **where)["sustained_ms"].iloc[0]
    found = with_values(found, {"sustained_ms": 1.01 * ms}, **simpler, **where)
    second = recipes.tables(found)[1]
    assert line_of(second, size="large")["recipe, bf16 weights"] == "bf16 weights"
    assert "Shown at large: the simplest recipe that is within 2 % of the fastest" in second.notes
    assert "Shown at large" not in recipes.tables(gpu)[1].notes


@pytest.mark.slow
def test_steps_that_could_not_be_checked_are_counted(gpu):
    where = {"size": "3.4B", "context_length": 1024, "phase": "train_step", "batch": 4}
    lost = {"status": "unchecked", "median_ms": None, "sustained_ms": None, "rounds_ms": None}
    found = with_values(gpu, lost, **where, implementation=[EAGER, BLOCKS], dtype=BF16)
    said = "Left out, since the check does not fit into memory: 2 steps (3.4B)."
    assert said in recipes.tables(found)[0].notes
    assert "does not fit" not in recipes.tables(gpu)[0].notes


@pytest.mark.slow
def test_larger_batch_with_more_tokens_is_named(gpu):
    where = {"size": "large", "batch": 16, "phase": "train_step", "dtype": BF16}
    found = with_times_scaled(gpu, 0.8, **where)
    notes = recipes.tables(found)[0].notes
    assert "With memory left, raise the batch. At batch 16 large makes 2" in notes
    other = with_times_scaled(gpu, 0.5, **where, implementation="fused_loss")
    assert f" GiB, with {CHUNKS}." in recipes.tables(other)[0].notes
    assert "raise the batch" not in recipes.tables(gpu)[0].notes
