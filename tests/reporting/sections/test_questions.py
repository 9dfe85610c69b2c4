"""Course questions: which answers stand, on both sides of each threshold, and their links."""

import itertools
import re
from statistics import stdev

import planted
import pytest
from planted_steps import AUTOCAST

from lmperf.errors import UserError
from lmperf.reporting.html import to_html
from lmperf.reporting.render import Page
from lmperf.reporting.sections import section

CELL = {"size": "0.97B", "context_length": 256, "batch": 4, "dtype": "float32"}
KERNELS = {"matmul": "nvjet_tst", "reduction": "softmax_warp", "optimizer": "multi_tensor_apply"}


def timed(ms, implementation="eager", phase="train_step", spread=0.01, **values):
    known = {"host_ms": 0.1, "together": "one", "spread": spread / stdev(planted.ROUNDS)}
    known |= CELL | {"implementation": implementation, "phase": phase}
    return planted.row("end_to_end", ms, **(known | values))


def model(step=30, **values):
    """A forward of 10 ms, a backward of 20 and a step."""
    phases = {"forward": 10, "backward": 20, "train_step": step}
    return [timed(ms, phase=phase, **values) for phase, ms in phases.items()]


def profiled(wall=None, dtype="float32", **classes):
    """The phases of a float32 model of 36 layers; classes: class of kernels -> ms, calls."""
    for phase, (name, (ms, calls)) in itertools.product(
        ("forward", "forward_backward", "train_step"), classes.items()
    ):
        known = CELL | {"table": "kernel", "implementation": "eager", "phase": phase}
        known |= {"dtype": dtype, "wall_ms": wall or sum(one for one, _ in classes.values())}
        yield planted.row("profiles", name=KERNELS[name], total_ms=ms, instances=calls, **known)


def attention(times, phases=("forward", "backward"), **values):
    """Plain attention; times: length -> ms."""
    for (length, ms), phase in itertools.product(times.items(), phases):
        cell = {"batch": 8, "seq_len": length, "d_head": 64, "dtype": "float32", "causal": False}
        known = {"implementation": "eager", "phase": phase, "peak_mib": length}
        yield planted.row("attention", ms, **(cell | known | values))


def head(implementation, ms, length=512, **values):
    """One causal head."""
    for phase in ("forward", "backward", "forward_backward"):
        cell = {"batch": 1, "heads": 1, "seq_len": length, "d_head": 64, "dtype": "bfloat16"}
        known = {"causal": True, "cuda_graph": False, "phase": phase, "together": length}
        known |= cell | {"implementation": implementation}
        yield planted.row("flash_attention", ms, **(known | values))


def lrpe(implementation, ms, shape="32768", **values):
    for phase in ("forward", "backward"):
        cell = {"batch": 12, "heads": 12, "d_head": 128, "dtype": "bfloat16", "extra_tokens": 0}
        cell |= {"shape": shape, "together": shape, "phase": phase}
        yield planted.row("lrpe", ms, implementation=implementation, bytes=1e9, **cell, **values)


def of(*rows, stem="questions", **more):
    return section(stem, planted.evidence(*rows, **more))


def answer(question, *rows, **more):
    """The answer to the question that begins so, or None."""
    page = planted.page("questions", planted.evidence(*rows, **more))
    return next((one for one in page.said if one.startswith(f"**{question}")), None)


@pytest.mark.parametrize("facts", [planted.H200, planted.CPU], ids=["gpu", "cpu"])
def test_without_rows_there_are_no_questions(facts):
    page = planted.page("questions", planted.evidence(facts=facts))
    assert page.said == [] and "##" not in page.text


@pytest.mark.parametrize(
    ("ms", "spread", "said"),
    [(15, 1, "step 2.00 "), (60, 1, "step 0.50 "), (30, 1, "1.00"), (30, 100, None), (0, 1, None)],
    ids=["faster", "slower", "equal", "noisy", "missing"],
)
def test_answer_on_compiling_follows_the_data(ms, spread, said):
    ours = [timed(ms, "compiled_blocks")] if ms else []
    rows = [timed(30), *ours]
    if spread > 1:
        rows = [
            planted.row("end_to_end", 30, spread, implementation=name, host_ms=0.1, **CELL)
            for name in ("eager", "compiled_blocks")
        ]
    found = answer("How much does `torch.compile` help", *rows)
    assert said in found if said else found is None


def test_times_stand_in_order_of_size():
    rows = [*model(), *model(40, size="0.13B", host_ms=40)]
    found = answer("How long do forward", *rows)
    assert "context 256, batch 4 (small, large)" in found and "Step: *40.0*, 30.0 ms" in found


def test_cpu_never_sees_words_of_a_gpu():
    rows = [*model(), *profiled(matmul=(8, 145), optimizer=(1, 1)), *attention({256: 1, 1024: 4})]
    page = planted.page("questions", planted.evidence(*rows, facts=planted.CPU))
    assert len(page.said) > 5
    assert not any(word in page.text for word in ("GPU", "CUDA", "kernel", "Nsight", "tensor core"))


@pytest.mark.parametrize(("spread", "steady"), [(0.019, True), (0.021, False)])
def test_steps_are_steady_below_two_percent(spread, steady):
    assert of(*model(spread=spread)).is_steady == steady


@pytest.mark.parametrize(("ms", "linear"), [(131, True), (133, False), (109, True), (107, False)])
def test_growth_is_linear_within_ten_percent(ms, linear):
    found = of(timed(30), timed(ms, context_length=1024))
    assert found.growth == (4, ms / 30) and found.growth_is_linear == linear


@pytest.mark.parametrize(("second", "enough"), [(118, True), (121, False)])
def test_one_warm_up_step_is_enough_up_to_half_more_spread(second, enough):
    times = [200, second, *[95, 105] * 7]
    rows = [planted.row("warmup", step=n, step_ms=ms) for n, ms in enumerate(times, 1)]
    assert of(*rows).one_is_enough == enough


@pytest.mark.parametrize("host_ms", [40, 0.1])
def test_autocast_is_explained_only_if_both_steps_wait(host_ms):
    rows = [timed(30, host_ms=30), timed(40, dtype=AUTOCAST, host_ms=host_ms)]
    found = answer("Why is mixed precision slower", *rows)
    assert ("*40.0* instead of *30.0*" in found) if host_ms == 40 else found is None


@pytest.mark.parametrize(("wall", "agrees"), [(31.4, True), (31.6, False)])
def test_profile_agrees_within_five_percent(wall, agrees):
    found = of(*model(), *profiled(wall, matmul=(29, 145)))
    found.confirmed = found.confirmed[found.confirmed["phase"] == "train_step"]
    assert found.profile_agrees == agrees


@pytest.mark.parametrize(("wall", "waits"), [(10.9, False), (11.1, True)])
def test_profiled_phase_waits_from_a_tenth_more_on(wall, waits):
    found = of(*model(), *profiled(wall, matmul=(10, 145))).confirmed
    assert [*found["waits"]] == [waits] * len(found)


@pytest.mark.parametrize(("host_ms", "waits"), [(0.1, False), (29, True)])
def test_profiled_phase_waits_if_it_did_so_when_timed(host_ms, waits):
    found = of(timed(30, host_ms=host_ms), *profiled(matmul=(33, 145)))
    assert [*found.confirmed["waits"]] == [waits]


def test_spread_names_the_setting_of_its_steps():
    rows = [*model(), timed(50, context_length=512, spread=0.5)]
    found = answer("How variable are the times", *rows)
    assert "In float32 at context 256, eager steps" in found and "by 1.0 %" in found


def test_errors_of_a_float16_sum_add_up():
    known = {"experiment": "accumulation", "subject": "float16 + float16", "exact": 10}
    found = answer("Why 9.9531", planted.row("mixed_precision", value=9.953125, **known))
    errors = [float(one) for one in re.findall(r"[+-][0-9]\.[0-9]{2}", found)]
    assert len(errors) == 3 and 10 + sum(errors) == pytest.approx(9.953, abs=0.01)


@pytest.mark.parametrize(("ms", "alike"), [(1.04, True), (1.06, False)])
def test_update_is_the_same_within_five_percent(ms, alike):
    single, half = profiled(optimizer=(1, 9)), profiled(dtype=AUTOCAST, optimizer=(ms, 9))
    assert of(*single, *half).update_is_alike == alike


@pytest.mark.parametrize(("step", "dilutes"), [(1.1, True), (0.9, False)])
def test_update_dilutes_if_the_share_of_matmuls_falls(step, dilutes):
    rows = [*profiled(matmul=(8, 1), reduction=(1, 1))]
    step_of = (KERNELS["reduction"], "train_step")
    rows = [
        one | {"total_ms": str(step)} if (one["name"], one["phase"]) == step_of else one
        for one in rows
    ]
    assert of(*rows).update_dilutes == dilutes


@pytest.mark.parametrize(("calls", "said"), [(145, True), (146, False)])
def test_kernel_of_each_linear_layer_is_counted(calls, said):
    found = answer("Which kernel takes most time", *profiled(matmul=(8, calls), reduction=(1, 36)))
    assert f"in {calls} calls" in found and ("36 blocks" in found) is said


@pytest.mark.parametrize(("bf16", "alike"), [(104, True), (106, False), (96, True), (94, False)])
def test_speed_is_the_same_within_five_percent(bf16, alike):
    rates = {"float16": 100, "bfloat16": bf16}
    rows = [
        planted.row("ceilings", operation="matmul", dtype=one, load="sustained", tflops=rate)
        for one, rate in rates.items()
    ]
    assert ("Speed is the same" in answer("float16 or bf16", *rows)) is alike


def recorded():
    """A recorded train step that peaks as the backward begins."""
    owners = ("parameters", "optimizer", "inputs", "gradients", "activations", "temporary")
    known = dict.fromkeys((f"{name}_mib" for name in owners), 1) | CELL
    kinds = [("phase", "forward", 0), ("phase", "end", 9), ("curve", None, 1)]
    return [
        planted.row("memory_timeline", table=kind, name=name, position=at, **known)
        for kind, name, at in kinds
    ]


@pytest.mark.parametrize(("gradients", "late"), [(101, True), (99, False)])
def test_step_peaks_at_the_end_with_more_gradients_than_activations(gradients, late):
    known = {"phase": "train_step", "gradients_mib": gradients, "activations_mib": 100}
    rows = [*recorded(), planted.row("memory", **CELL, **known)]
    assert of(*rows, stem="questions_memory").ends == [(late, [256])]


@pytest.mark.parametrize(
    ("tensor", "explained"),
    [("float32[4, 512, 512]", True), ("float32[4, 512, 511]", False), ("x[[", False)],
)
def test_largest_allocation_is_explained_by_its_shape(tensor, explained):
    block = {"table": "block", "tensor": tensor, "size_mib": 4, "position": 1, "frame": "here"}
    rows = [*recorded(), planted.row("memory_timeline", **CELL, **block)]
    found = answer("What is the largest", *rows)
    assert ("every byte" in found) is explained


@pytest.mark.parametrize(
    ("longest", "square"), [(14.1, True), (13.9, False), (16.9, True), (17.1, False)]
)
def test_time_grows_with_the_square_from_14_to_17(longest, square):
    found = of(*attention({4096: 1, 16384: longest}), stem="questions_memory")
    assert found.time_is_square == square


@pytest.mark.parametrize(("short", "less"), [(7.9, True), (8.1, False)])
def test_short_calls_fill_less_below_half_the_growth(short, less):
    times = {256: 1 / short, 1024: 1, 4096: 50, 16384: 800}
    assert of(*attention(times), stem="questions_memory").short_fills_less == less


@pytest.mark.parametrize(("length", "small"), [(2048, True), (4096, False)])
def test_small_scores_explain_a_slower_kernel(length, small):
    rows = [*head("triton", 2, length), *head("eager", 1, length)]
    found = answer("Where is it slower", *rows)
    assert f"up to length {length:,}" in found and ("the cache" in found) is small


def test_faster_kernel_is_slower_nowhere():
    found = answer("Where is it slower", *head("triton", 1), *head("eager", 2))
    assert "Nowhere, in 2 comparisons" in found


@pytest.mark.parametrize(("cube", "same"), [(1.019, True), (1.022, False)])
def test_axes_matter_from_two_points_of_a_copy_on(cube, same):
    shapes = {"32768": 1, "32x32x32": cube}
    rows = [one for shape, ms in shapes.items() for one in lrpe("triton", ms, shape)]
    rows += [one for shape in shapes for one in lrpe("copy", 1, shape)]
    assert of(*rows, stem="questions_memory").matters_not("axes") == same


@pytest.mark.parametrize(("cube", "phases"), [(2.3, 0), (2.5, 2)])
def test_speed_ups_that_vary_by_a_fifth_are_shown(cube, phases):
    rows = [*lrpe("triton", 1), *lrpe("triton", 1, "32x32x32")]
    rows += [*lrpe("compiled", 2), *lrpe("compiled", cube, "32x32x32")]
    assert len(of(*rows, stem="questions_memory").varying("axes")) == phases


@pytest.mark.parametrize(("mib", "shown"), [(121, True), (119, False)])
def test_memory_of_more_axes_is_shown_if_a_fifth_larger(mib, shown):
    rows = [*lrpe("triton", 1, peak_mib=100), *lrpe("triton", 1, "32x32x32", peak_mib=mib)]
    found = answer("How much memory do the versions need", *rows)
    assert "Triton 100 / 100 MiB" in found
    assert (f"With 3 axes the forward of Triton needs {mib} MiB" in found) is shown


def test_links_lead_to_the_headings_of_tables():
    places, rows = of().places, model()
    text = to_html(planted.page("end_to_end", planted.evidence(*rows)).text)
    page, anchor = places["E1"].split("#")
    assert page == "end_to_end.md" and f'id="{anchor}"' in text
    assert places["P1"] == "profiles.md"


def test_unknown_table_of_a_question_is_an_error(tmp_path):
    block = "{% block page %}{{ section('questions').places['E99'] }}{% endblock %}"
    text = '{% extends "lmperf/questions.md.j2" %}' + block
    (tmp_path / "questions.md.j2").write_text(text)
    with pytest.raises(UserError, match="E99"):
        Page("questions", planted.evidence(), own=tmp_path).render()
