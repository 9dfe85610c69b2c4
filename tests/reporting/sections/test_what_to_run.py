"""The recipe, the first table and the code on the first page follow the data."""

import re
from dataclasses import replace
from pathlib import Path

import planted
import pytest
from planted_steps import AUTOCAST, loss, rung, sdpa, step

from lmperf.benchmarks import load
from lmperf.evidence.cases import case_of_row, texts_of
from lmperf.reporting.calculations.steps import GRAPH, SDPA
from lmperf.reporting.revisions import evidence_in
from lmperf.reporting.sections import section
from lmperf.transformer.sizes import ModelSize

SMALL = "0.13B"
GRAPHS = ("sdpa_graph", "fused_graph", "sdpa_copies_graph", "graph")
REPORT = Path(__file__).parents[3] / "report"


def run(*rows, **more):
    return section(planted.evidence(*rows, **more), "what_to_run")


def page(*rows, **more):
    of = planted.evidence(*rows, **more)
    values = {"run": section(of, "what_to_run"), "report": section(of, "report")}
    return planted.page("report/what_to_run", of, values)


def gains(made):
    """The speed-ups that the part about what to run prints, to three digits."""
    said = ("as fast", "**Fused blocks**")
    found = [
        one
        for one in made.numbers
        if one.kind == "sentence" and any(words in one.where for words in said)
    ]
    return [round(float(one.value), 3) for one in found]


def first_headers(made):
    return [one.header for one in made.tables[0].columns if not one.is_axis]


# The recipe.


@pytest.mark.parametrize(("ms", "is_graph"), [(101.0, True), (103.0, False), (50.0, True)])
def test_recipe_is_graph_within_two_percent_of_fastest(ms, is_graph):
    assert run(sdpa(100.0), rung("graph", ms)).is_graph is is_graph


@pytest.mark.parametrize(("ms", "exceptions"), [(97.0, []), (80.0, ["tiny"])])
def test_on_a_cpu_the_simplest_step_within_the_noise_is_advised(ms, exceptions):
    rows = [step(size, "float32", "eager", 100.0) for size in ("tiny", SMALL)]
    rows += [step("tiny", "float32", "compiled", ms), step(SMALL, "float32", "compiled", 200.0)]
    rows += [step("0.42B", "float32", way, ms) for way, ms in (("eager", 1.0), ("compiled", 2.0))]
    made = run(*rows, facts=planted.CPU)
    assert [*made.exceptions["size"]] == exceptions
    assert made.recipe == ("eager", "float32")


@pytest.mark.parametrize("marks", ["", "loaded"])
def test_advice_from_loaded_steps_says_so(marks):
    assert run(sdpa(100.0), rung("graph", 50.0, marks=marks)).is_in_doubt is bool(marks)


def test_loaded_steps_on_a_cpu_are_chosen_by_their_times():
    ways = (("eager", 100.0), ("compiled", 50.0))
    rows = [step("tiny", "float32", way, ms, marks="loaded") for way, ms in ways]
    assert run(*rows, facts=planted.CPU).recipe.implementation == "compiled"


def test_recipe_is_that_of_most_sizes():
    rows = [sdpa(90.0), rung("graph", 100.0), sdpa(300.0, "2.0B"), rung("graph", 400.0, "2.0B")]
    made = run(sdpa(10.0, SMALL), rung("graph", 9.0, SMALL), *rows)
    assert made.recipe == SDPA
    assert [*made.exceptions["size"]] == ["small"] and [*made.exceptions["way"]] == [GRAPH]


def test_size_of_a_single_way_decides_nothing():
    slow, fast = step("tiny", "float32", "eager", 100.0), step("tiny", "float32", "compiled", 50.0)
    alone = step(SMALL, "float32", "eager", 700.0)
    assert run(alone, facts=planted.CPU).recipe == ("eager", "float32")
    assert run(slow, fast, alone, facts=planted.CPU).recipe == ("compiled", "float32")


def test_first_table_of_a_quick_run_has_graphs_alone():
    graphs = step(SMALL, AUTOCAST, "sdpa_graph", 12.5), rung("graph", 10.0, SMALL)
    made = page(*graphs)
    first, second, *_ = first_headers(made)
    assert (first, second) == ("SDPA, compiled, graph (ms)", "fused, graph, bf16 copies (ms)")
    assert gains(made) == [1.25]
    assert first_headers(page(*graphs, sdpa(20.0, SMALL)))[0] == "SDPA, compiled (ms)"


@pytest.mark.parametrize("waits", [True, False])
def test_first_table_shows_the_time_of_the_gpu_beside_one_that_waits(waits):
    rows = sdpa(20.0, SMALL, waits=waits, device_ms=9.0), sdpa(90.0, device_ms=80.0)
    columns = page(*rows).tables[0].columns
    shown = [one for one in columns if one.header == "its GPU time, if it waits (ms)"]
    assert [[cell.value for cell in one.cells] for one in shown] == [[9.0, None]] * waits


# What each part gains.


def of_parts(sdpa_ms, fused_ms, sdpa_copies_ms, copies_ms, **values):
    """The four graphs that differ in kernels or in copies."""
    times = zip(GRAPHS, (sdpa_ms, fused_ms, sdpa_copies_ms, copies_ms), strict=True)
    return [step(SMALL, AUTOCAST, name, ms, **values) for name, ms in times if ms]


def test_kernels_and_copies_are_compared_in_equal_numerics():
    assert gains(page(*of_parts(13.2, 12.0, 12.5, 10.0))) == [1.1, 1.25, 1.2, 1.056, 1.32]
    made = page(*of_parts(12.0, 12.0, None, 10.0))
    assert gains(made) == [1.0, 1.2, 1.2]
    assert "**Fused blocks** over SDPA, each in a graph: 1.00x at small, within noise." in made.text


@pytest.mark.parametrize(
    ("sdpa_ms", "said"),
    [
        (13.2, "1.10x at small, 1.20x at large."),
        (12.36, "1.03x at small, 1.20x at large (within noise at small)."),
        (None, "1.20x at large."),
    ],
)
def test_speed_ups_name_the_sizes_within_noise_and_those_compared(sdpa_ms, said):
    rows = [step("0.97B", AUTOCAST, "sdpa_graph", 60.0), rung("fused_graph", 50.0)]
    made = page(*rows, *of_parts(sdpa_ms, 12.0, None, None))
    assert f"over SDPA, each in a graph: {said}" in made.text


@pytest.mark.parametrize(("waits", "gib"), [(True, 2), (True, 0.5), (False, 2)])
def test_steps_that_all_wait_are_ranked_by_memory(waits, gib):
    plain = rung("compiled_blocks", 20.0, SMALL, waits=waits, peak_mib=1024 * gib)
    made = planted.printed(page(plain, sdpa(30.0, SMALL, waits=True)))
    assert ({25.0, 20.0} <= {*made}) is waits, "the middle of steps, and of the time of the GPU"
    assert ({1.0, 2.0} <= {*made}) is (waits and gib == 2)


# A machine without a GPU.


def on_cpu(*rows):
    return page(*rows, facts=planted.CPU)


def test_cpu_sees_no_words_of_gpus():
    names = ("float32", "autocast", "compiled_blocks", "fused_loss", "bf16_weights")
    rows = [rung(name, 100.0 / n, "tiny") for n, name in enumerate(names, 1)]
    larger = rung("bf16_weights", 30.0, "tiny", batch=16, tokens=16384)
    rows += [larger, *(loss(name, 2.0, "tiny") for name in names)]
    made = planted.page("report", planted.evidence(*rows, facts=planted.CPU))
    assert "## Why: the steps of the ladder" in made.text and "With bf16 weights" in made.text
    for word in ("GPU", "MFU", "CUDA", "launch", "tensor core", "SDPA", "```"):
        assert word not in made.text + str(made.figures)


def matmul(dtype, tflops):
    about = {"operation": "matmul", "dtype": dtype, "load": "burst", "tflops": tflops, "flops": 1e9}
    return planted.row("ceilings", 1.0, **about)


@pytest.mark.parametrize(("tflops", "slower"), [(0.5, True), (0.95, False), (2.0, False)])
def test_bf16_on_a_cpu_is_judged_by_matmuls(tflops, slower):
    rows = matmul("float32", 1.0), matmul("bfloat16", tflops)
    made = on_cpu(step("tiny", "float32", "eager", 300.0, flops=1e9), *rows)
    assert (1 / tflops in planted.printed(made)) is slower


# The code.


def code(*rows):
    return re.search(r"```python\n(.*?)```", page(*rows).text, re.DOTALL)[1]


def on_this_machine(text):
    return text.replace(".cuda()", "").replace("cuda", "cpu").replace("1024", "16")


@pytest.mark.parametrize(
    "row",
    [sdpa(1.0, SMALL), *(step(SMALL, AUTOCAST, name, 1.0) for name in GRAPHS)],
    ids=["sdpa", *GRAPHS],
)
def test_code_makes_a_step(row, monkeypatch):
    torch = pytest.importorskip("torch")
    from lmperf.transformer import sizes

    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    monkeypatch.setitem(sizes.SIZES, SMALL, ModelSize(32, 64, 2, 2))
    names = {}
    exec(on_this_machine(code(row)), names)
    assert 9 < float(names["loss"]) < 10


@pytest.mark.gpu
@pytest.mark.compile
@pytest.mark.parametrize("dtype", ["autocast_bfloat16", "bfloat16"])
def test_code_trains_on_a_gpu(dtype):
    names = {}
    exec(code(rung("graph", 1.0, SMALL)).replace("autocast_bfloat16", dtype), names)
    batch = names["tokens"], names["targets"]
    losses = [names["trainer"].step(*batch).item() for _ in range(20)]
    assert losses[-1] < losses[0]


def test_larger_batch_without_a_time_did_not_run():
    large = step("0.13B", AUTOCAST, "graph", None, batch=64)
    said = page(sdpa(20.0, "0.13B"), rung("graph", 10.0, "0.13B"), large).text
    assert "**Batch 64.**" in said and "| small | OOM | OOM |" in said


def test_larger_batches_are_beside_sdpa():
    rows = [*of_parts(11.0, 10.5, 10.2, 10.0), *of_parts(44.0, None, 42.0, 40.0, batch=16)]
    assert gains(page(*rows))[-1] == 1.05


def test_loaded_steps_are_not_compared():
    rows = rung("graph", 10.0), step("0.97B", AUTOCAST, "sdpa_graph", 20.0, marks="loaded")
    assert not gains(page(*rows))


def test_page_without_float32_weights_at_the_usual_batch():
    narrow = rung("bf16_graph", 50.0)
    assert "| large | 90.0 |" in page(narrow, rung("graph", 90.0, batch=8)).text
    larger = rung("bf16_weights", 50.0), rung("float32", 90.0, batch=8)
    for made in (page(narrow), page(narrow, facts=planted.CPU), page(*larger, facts=planted.CPU)):
        text = made.text
        assert ("## What to run" in text) == ("**Use " in text)
        for said in ("With float32 weights", "belong to", "not time", "do not make it faster"):
            assert said not in text


# What a part of the grid can say.


@pytest.mark.machine
@pytest.mark.parametrize(
    ("machine", "preset"),
    [("cpu-amd-epyc-avx-512-bf16", "cpu"), ("nvidia-h200", "gpu")],
)
def test_quick_recommends_what_the_whole_report_does(machine, preset):
    whole = evidence_in(REPORT / machine, machine)
    head = {texts_of(case) for case in load("end_to_end").head_cases(preset)}
    rows = whole.raw["end_to_end"]
    rows = [row for row in rows if case_of_row(load("end_to_end"), row) in head]
    quick = replace(whole, raw={"end_to_end": rows}, again={})
    full, part = (section(of, "what_to_run") for of in (whole, quick))
    assert part.recipe == full.recipe
    assert (part.unmeasured == full.unmeasured) is (preset == "cpu"), "cells that nothing else has"


def test_ways_that_were_not_measured_are_named_beside_the_advice():
    rows = [
        step("tiny", dtype, "eager", ms, context_length=256)
        for dtype, ms in (("float32", 9.0), (AUTOCAST, 5.0))
    ]
    assert "a full run adds 4 other ways." in on_cpu(*rows).text
    slow = [
        planted.row("ceilings", ms, operation="matmul", shape="512x512x512", dtype=dtype)
        for dtype, ms in (("float32", 1.0), ("bfloat16", 9.0))
    ]
    unmeasured = run(rows[0], *slow, facts=planted.CPU).unmeasured
    assert unmeasured and {way.dtype for way in unmeasured} == {"float32"}, "no bf16 in its grid"
    on_gpu = run(sdpa(20.0, SMALL)).unmeasured
    assert on_gpu and not {"clipped_graph", "accumulated_graph"} & {way[0] for way in on_gpu}


@pytest.mark.parametrize(("ms", "over_eager"), [(50.0, [2.0]), (99.9, [])])
def test_narrow_vectors_of_compiled_code_are_said_with_their_gain(ms, over_eager):
    eager, compiled = (
        step("tiny", AUTOCAST, name, of, **more)
        for name, of, more in (("eager", 100.0, {}), ("compiled_blocks", ms, {"vector_bits": 256}))
    )
    made = on_cpu(eager, compiled)
    assert 256 in planted.printed(made) and gains(made) == over_eager
    assert 256 not in planted.printed(on_cpu(eager))


def with_larger_vocabulary(name, ms, gib):
    known = {"bound": "device", "tokens": 16384, "flops": 1e12, "peak_mib": 1024 * gib}
    return planted.row("vocabulary", ms, implementation=name, size=SMALL, **known)


@pytest.mark.parametrize(
    ("ms", "gib", "advice"),
    [
        (44.0, 28.0, " and takes 44.0 ms instead of 40.0 (small, batch 16): use it where memory"),
        (38.0, 28.0, " and takes 38.0 ms instead of 40.0 (small, batch 16): use it."),
        (40.1, 28.0, " (small, batch 16), without a loss of speed beyond noise: use it."),
        (44.0, 31.0, None),
    ],
)
def test_loss_in_chunks_is_advised_by_what_it_saves_and_costs(ms, gib, advice):
    rows = [sdpa(100.0), with_larger_vocabulary("stored_logits_graph", 40.0, 30.0)]
    rows.append(with_larger_vocabulary("graph", ms, gib))
    made = page(*rows)
    said = "With a vocabulary of 50,304, the loss in chunks saves 2.00 GiB of 30.0"
    assert (f"{said}{advice}" in made.text) if advice else ("loss in chunks saves" not in made.text)


def test_larger_vocabulary_has_a_table_but_one_way_no_advice():
    rows = [sdpa(100.0), with_larger_vocabulary("stored_logits_graph", 40.0, 30.0)]
    assert "loss in chunks saves" not in page(*rows).text
    rows.append(with_larger_vocabulary("graph", 44.0, 28.0))
    tables = planted.page("end_to_end", planted.evidence(*rows)).tables
    [columns] = [{column.name for column in table.columns} for table in tables if table.id == "E9"]
    assert {"implementation", "over.stored_logits_graph"} <= columns


def test_costs_of_clipping_and_micro_batches_are_said():
    made = page(
        *(rung("graph", 10.0, SMALL), rung("graph", 30.0, SMALL, batch=64)),
        *(step(SMALL, AUTOCAST, "clipped_graph", 12.5), sdpa(20.0, SMALL)),
        step(SMALL, AUTOCAST, "accumulated_graph", 36.0, batch=64),
    )
    assert "36.0 ms instead of 30.0" in made.text and {0.8, 36.0} <= {*planted.printed(made)}
    assert {0.8, 36.0}.isdisjoint(planted.printed(page(rung("graph", 10.0, SMALL), sdpa(20.0))))


@pytest.mark.parametrize(("ms", "said"), [(10.0, "as fast"), (11.0, "0.91 times as fast")])
def test_clipping_costs_what_its_verdict_says(ms, said):
    made = page(rung("graph", 10.0, SMALL), step(SMALL, AUTOCAST, "clipped_graph", ms))
    assert f"the graph is {said} as without it: {ms} ms instead of 10.0 at small." in made.text


def test_bold_recipe_is_that_of_the_code():
    said = page(sdpa(20.0, SMALL), rung("graph", 10.0, SMALL)).text
    assert "one CUDA graph (`steps.GRAPH`).**" in said and "maker, dtype = steps.GRAPH," in said
