"""The course's problems: which answers stand, on both sides of each threshold, and about whom."""

import re

import planted
import planted_ranks as ranks
import pytest

from lmperf.benchmarks import load
from lmperf.errors import UserError
from lmperf.reporting.html import to_html
from lmperf.reporting.pages import page_names
from lmperf.reporting.render import Page
from lmperf.reporting.sections import section
from lmperf.reporting.sections.course_ranks import kind_of
from lmperf.workflow import TEMPLATES

STEP = {"size": "0.97B", "context_length": 256, "batch": 4, "dtype": "float32"}
STEP |= {"implementation": "eager", "phase": "train_step"}
OWN = {"end_to_end": "net", "flash_attention": "flash", "distributed": "my_flat"}
HEAD = {"batch": 1, "heads": 1, "seq_len": 512, "d_head": 64, "dtype": "bfloat16", "causal": True}
HEAD |= {"cuda_graph": False}


def of(*rows, stem="course"):
    return section(planted.evidence(*rows), stem)


def own(*rows, **more):
    """Evidence of a report on custom implementations: those of OWN."""
    entries = {f"{stem}.{name}": {"entry": f"student:{name}"} for stem, name in OWN.items()}
    facts = ranks.TWO_H200 | {"implementations": entries}
    return planted.evidence(*rows, facts=facts, **more)


def answer(problem, evidence):
    """The text below the heading of a problem; empty without one."""
    text = planted.page("course", evidence).text
    return text.partition(f"\n## {problem}\n")[2].partition("\n## ")[0]


def numbers(problem, evidence):
    """The numbers in the sentences of a problem, in their order, to three digits."""
    said = answer(problem, evidence)
    found = planted.page("course", evidence).numbers
    return [float(f"{float(one.value):.3g}") for one in found if one.where in said]


def profile(**values):
    kernel = {"table": "kernel", "name": "nvjet_tst", "instances": 145, "wall_ms": 33}
    return planted.row("profiles", total_ms=33, **STEP | kernel | values)


def head(name, ms, phase="forward", **values):
    known = {"max_error": 0.001, "error_bound": 0.01, "implementation": name, "phase": phase}
    return planted.row("flash_attention", ms, **HEAD | known | values)


@pytest.mark.parametrize(("bound", "waits"), [("host", True), ("device", False)])
def test_phase_waits_if_it_did_when_it_was_timed(bound, waits):
    timed = planted.row("end_to_end", 30, bound=bound, **STEP)
    assert of(timed, profile(), stem="course_profile").confirmed.frame["waits"].all() == waits


@pytest.mark.parametrize(("least_ms", "is_said"), [(40, True), (38, False)])
def test_autocast_is_slower_beyond_interval_and_noise_floor(least_ms, is_said):
    half = STEP | {"dtype": "autocast_bfloat16", "bound": "host"}
    half |= {"rounds_ms": ";".join([str(least_ms)] * 2 + ["50"] * 6)}
    rows = planted.row("end_to_end", 30, **STEP), planted.row("end_to_end", 50, **half)
    found = numbers("benchmarking_mixed_precision", planted.evidence(*rows))
    assert ({30, 50} <= {*found}) is is_said


def test_times_of_every_width_grow_with_the_length():
    cell = {"batch": 8, "phase": "forward", "implementation": "eager", "dtype": "float32"}
    times = {(64, 256): 1, (64, 1024): 15, (16, 256): 1, (16, 1024): 12}
    rows = [
        planted.row("attention", ms, d_head=d_head, seq_len=length, **cell)
        for (d_head, length), ms in times.items()
    ]
    [grown] = of(*rows, stem="course_attention").growths
    assert grown == {"start": 256, "end": 1024, "times": (12, 13.5, 15)}


@pytest.mark.parametrize("stale", [False, True])
def test_stale_profile_answers_nothing(stale):
    forward = profile(phase="forward")
    evidence = planted.evidence(forward, stale=frozenset([forward["key"]] if stale else ()))
    assert (145 in numbers("nsys_profile", evidence)) is not stale
    assert ("To measure: `lmperf measure profiles`" in answer("nsys_profile", evidence)) is stale


def test_answer_without_its_profiled_forward_keeps_the_rest():
    timed = planted.row("end_to_end", 33, bound="device", **STEP)
    assert numbers("nsys_profile", planted.evidence(timed, profile())) == [0]


def test_links_lead_to_the_headings_of_tables():
    step = planted.row("end_to_end", 30, **STEP)
    text = to_html(planted.page("end_to_end", planted.evidence(step)).text)
    course = of(step)
    page, anchor = course.places["E1"].split("#")
    assert page == "end_to_end.md" and f'id="{anchor}"' in text
    assert [table for table, _ in course.linked("E1 D1 Ceilings")] == ["E1", "Ceilings"]


def test_unknown_table_of_a_problem_is_an_error(tmp_path):
    block = "{% block page %}{{ section('course').places['E99'] }}{% endblock %}"
    text = '{% extends "lmperf/course.md.j2" %}' + block
    (tmp_path / "course.md.j2").write_text(text)
    with pytest.raises(UserError, match="E99"):
        Page("course", planted.evidence(), own=tmp_path).render()


def test_answers_repeat_findings_that_exist():
    text = (TEMPLATES / "course.md.j2").read_text()
    for page, names in re.findall(r'said\("(\w+)", ([^)]*)\)', text):
        known = re.findall(r'finding\(("[^"]*")\)', (TEMPLATES / f"{page}.md.j2").read_text())
        assert {*names.split(", ")} <= {*known}, page


def test_peaks_are_of_contexts_with_forward_and_step():
    cells = [(128, "forward"), (256, "forward"), (256, "train_step")]
    found = of(
        *(
            planted.row(
                "memory", peak_mib=1024 * n, **STEP | {"context_length": at, "phase": phase}
            )
            for n, (at, phase) in enumerate(cells, 1)
        ),
        stem="course_model",
    )
    known = {"context_length": 256, "forward": 2.0, "train_step": 3.0}
    assert found.peaks.frame.to_dict("records") == [known]


# Which problems there are.


@pytest.mark.parametrize(
    ("year", "there", "gone"),
    [
        (2025, "## communication_accounting (2025)", "## fsdp (2026)"),
        (2026, "## fsdp (2026)", "## communication_accounting (2025)"),
    ],
)
def test_year_chooses_the_problems(year, there, gone):
    step = planted.row("end_to_end", 30, **STEP)
    both = planted.page("course", planted.evidence(step)).text
    one = planted.page("course", planted.evidence(step, course=year)).text
    assert there in both and gone in both and there in one and gone not in one


def test_report_without_benchmarks_of_the_course_has_no_page():
    assert "course" in page_names(None, planted.evidence(profile()))
    assert "course" not in page_names(None, planted.evidence(planted.row("lrpe", 1.0)))


# What is said of strategies, and with the rates of a machine.


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (("mine", "get_ddp"), "overlapped"),
        (("mine", "get_ddp_bucketed"), "bucketed"),
        (("naive", "get_ddp_bucketed"), "naive"),
        (("mine", "get_sharded_optimizer"), "sharded_optimizer"),
        (("mine", "get_fsdp"), "fsdp"),
    ],
)
def test_names_tell_what_a_strategy_is(names, kind):
    assert kind_of(*names) == kind


def test_strategy_is_compared_with_that_of_the_problem_before():
    rows = [ranks.step("one_by_one", 100), ranks.step("flat", 50), ranks.profiled("flat", 60)]
    found = numbers("minimal_ddp_flat_benchmarking", ranks.evidence(*rows))
    assert {2, 50, 60} <= {*found}


def rates(tflops=500):
    matmul = {"operation": "matmul", "dtype": "bfloat16", "load": "sustained", "tflops": tflops}
    yield planted.row("ceilings", 1.0, flops=1e9 * tflops, bytes=0, **matmul)
    yield ranks.collective("all_reduce", 1e3, 0.01)
    yield ranks.collective("all_reduce", 1e9, 4.0)


def test_limits_follow_from_the_rates_of_the_machine():
    here = ranks.evidence(*rates())
    assert section(here, "course_ranks").intensity == pytest.approx(2000)  # 500 TFLOP/s, 250 GB/s
    assert {2.02} <= {*numbers("data_parallel_calcs (2026)", here)}
    assert numbers("tp_calcs (2026)", here) == [8.68, 16.4]
    assert numbers("communication_accounting (2025)", here) == [500, 250, 2000, 500]


def test_limits_without_rates_are_formulas():
    step = planted.row("end_to_end", 30, **STEP)
    assert not numbers("data_parallel_calcs (2026)", planted.evidence(step))
    said = answer("data_parallel_calcs (2026)", planted.evidence(step))
    assert "1 + B W / C" in said
    assert "To measure: `lmperf measure ceilings`.\n\nNeeds several GPUs: collectives." in said


@pytest.mark.parametrize(
    ("left_out", "words"), [(0, "Not among the cells"), (1, "To measure: `lmperf measure distr")]
)
def test_command_to_measure_is_given_where_it_adds_rows(left_out, words):
    """A CPU measures few strategies: the command adds the naive one to none of its cells."""
    cases = load("distributed").cases("cpu")[left_out:]
    rows = [planted.row("distributed", 30, **case.columns) for case in cases]
    assert words in answer("naive_ddp", planted.evidence(*rows, facts=planted.CPU))


def test_best_buckets_follow_from_gradients_and_two_all_reduces():
    found = section(ranks.evidence(*rates(), ranks.step("overlapped", 50)), "course_ranks").buckets
    number = (4 * ranks.PARAMETERS / (250e9 * 1e-5)) ** 0.5
    assert found["number"] == pytest.approx(number)
    assert found["each"] == pytest.approx(4 * ranks.PARAMETERS / number)


# Reports on custom implementations.


def test_own_model_answers_in_place_of_that_of_lmperf():
    phases = {"forward": 10, "backward": 20, "train_step": 35}
    rows = [
        planted.row("end_to_end", ms * factor, **STEP | {"implementation": name, "phase": phase})
        for phase, ms in phases.items()
        for name, factor in (("eager", 1.0), ("net", 2.0))
    ]
    found = numbers("benchmarking_script", own(*rows))
    assert {20, 2} <= {*found} and 10 not in found


@pytest.mark.parametrize(("error", "fails"), [(0.009, False), (1.2, True)])
def test_own_attention_that_fails_is_a_finding(error, fails):
    status = "failed_check" if fails else "ok"
    ours = head("flash", 1.0, max_error=error, status=status)
    found = numbers("flash_backward", own(ours, head("triton", 1.0), head("eager", 3.0)))
    assert ({1.2, 0.01} <= {*found}) is fails and found


def test_own_attention_is_compared_with_plain_pytorch():
    assert 3 in numbers("flash_benchmarking", own(head("flash", 1.0), head("eager", 3.0)))


def test_only_the_same_model_compiled_answers_torch_compile():
    entries = {"net": {}, "net_compiled": {"compiles": True}, "adamw": {"entry": "student:AdamW"}}
    facts = {f"end_to_end.{name}": {"entry": "student:net"} | of for name, of in entries.items()}
    times = {"net": 60.0, "net_compiled": 20.0, "adamw": 42.0}
    rows = [
        planted.row("end_to_end", ms, **STEP | {"implementation": n}) for n, ms in times.items()
    ]
    here = planted.evidence(*rows, facts=planted.H200 | {"implementations": facts})
    assert [gain[:2] for gain in section(here, "course_model").compiled_models] == [
        ("net_compiled", "net")
    ]
    assert 3.0 in numbers("torch_compile", here)


def test_own_strategy_stands_under_its_problem():
    here = own(ranks.step("my_flat", 50.0), ranks.step("flat", 70.0))
    assert 50 in numbers("minimal_ddp_flat_benchmarking", here)
    assert 70 not in planted.printed(planted.page("course", here))
    assert "To measure" in answer("naive_ddp", here)


@pytest.mark.parametrize("name, problem", [("overlapped", "ddp_overlap_individual_parameters")])
def test_check_of_a_strategy_stands_beside_load(name, problem):
    here = planted.evidence(ranks.step(name, 50.0, marks="loaded"), facts=ranks.TWO_H200)
    assert 0.1 in numbers(problem, here) and 50 not in numbers(problem, here)


def test_own_report_names_what_was_not_brought_or_is_out_of_scope():
    steps = planted.row("checkpointing", 30, peak_mib=10, implementation="eager")
    rows = [head("flash", 1.0), steps, ranks.step("flat", 70)]
    entries = {"flash_attention.flash": {"entry": "student:flash"}}
    here = planted.evidence(*rows, facts=planted.H200 | {"implementations": entries})
    assert "Not brought" in answer("naive_ddp", here)
    assert "To measure" in answer("naive_ddp", own(*rows))
    assert "checkpointing of its own model only" in answer("gradient_checkpointing (2026)", here)
    shown = answer("gradient_checkpointing (2026)", own(*rows, reference=True))
    assert "of its own model only" not in shown


def test_block_of_the_model_brought_keeps_its_largest_tensors():
    cell = {"size": "0.13B", "context_length": 512, "batch": 4, "dtype": "float32"}
    cell |= {"phase": "train_step", "implementation": "my_model", "table": "kept"}
    rows = [
        planted.row("memory_timeline", position=n, tensor=f"float32[4, {n}]", size_mib=mib, **cell)
        for n, mib in enumerate((30.0, 10.0), start=1)
    ]
    recorded = {"memory_timeline.my_model": {"entry": "student:LM"}}
    facts = planted.H200 | {"implementations": recorded}
    found = numbers("memory_profiling", planted.evidence(*rows, facts=facts))
    assert found == [40, 2, 512, 30, 0.75, 10, 0.25]


def test_parts_of_brought_attention_are_measured_or_explained():
    cell = {"size": "0.97B", "context_length": 512, "batch": 4, "dtype": "float32"}
    cell |= {"implementation": "my_model", "phase": "forward", "wall_ms": 3, "instances": 1}
    kernel = planted.row("profiles", table="kernel", name="nvjet", total_ms=2, **cell)
    softmax = {"table": "attention", "name": "softmax", "total_ms": 1, "flops_share": 0.02}
    part = planted.row("profiles", **cell | softmax)
    facts = planted.H200 | {"implementations": {"profiles.my_model": {"entry": "student:LM"}}}
    without = answer("nsys_profile", planted.evidence(kernel, facts=facts))
    both = answer("nsys_profile", planted.evidence(kernel, part, facts=facts))
    assert "`torch.profiler.record_function`" in without and "record_function" not in both
    assert "softmax and mask, with their casts, take" in both
