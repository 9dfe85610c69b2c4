"""Course questions: which answers stand, on both sides of each threshold, and their links."""

import re

import planted
import pytest

from lmperf.errors import UserError
from lmperf.reporting.html import to_html
from lmperf.reporting.render import Page
from lmperf.reporting.sections import section
from lmperf.workflow import TEMPLATES

STEP = {"size": "0.97B", "context_length": 256, "batch": 4, "dtype": "float32"}
STEP |= {"implementation": "eager", "phase": "train_step"}


def of(*rows):
    return section(planted.evidence(*rows), "questions")


def profile(**values):
    kernel = {"table": "kernel", "name": "nvjet_tst", "instances": 145, "wall_ms": 33}
    return planted.row("profiles", total_ms=33, **STEP | kernel | values)


@pytest.mark.parametrize(("bound", "waits"), [("host", True), ("device", False)])
def test_phase_waits_if_it_did_when_it_was_timed(bound, waits):
    profiled = profile()
    timed = planted.row("end_to_end", 30, bound=bound, **STEP)
    assert of(timed, profiled).confirmed.frame["waits"].all() == waits


@pytest.mark.parametrize(("least_ms", "is_said"), [(40, True), (38, False)])
def test_autocast_is_slower_beyond_interval_and_noise_floor(least_ms, is_said):
    half = STEP | {"dtype": "autocast_bfloat16", "bound": "host"}
    half |= {"rounds_ms": ";".join([str(least_ms)] * 2 + ["50"] * 6)}
    rows = planted.row("end_to_end", 30, **STEP), planted.row("end_to_end", 50, **half)
    said = "a step takes *50.0* instead of 30.0 ms. It then waits for the CPU"
    assert (said in planted.page("questions", planted.evidence(*rows)).text) is is_said


def test_times_of_every_width_grow_with_the_length():
    cell = {"batch": 8, "phase": "forward", "implementation": "eager", "dtype": "float32"}
    times = {(64, 256): 1, (64, 1024): 15, (16, 256): 1, (16, 1024): 12}
    rows = [
        planted.row("attention", ms, d_head=d_head, seq_len=length, **cell)
        for (d_head, length), ms in times.items()
    ]
    said = "12.0 to 15.0 times for 4 times the length (256 to 1,024, any d_head)"
    assert said in planted.page("questions", planted.evidence(*rows)).text


@pytest.mark.parametrize(("second", "positions"), [("64x64", "4,096"), ("16x16", "256")])
def test_axes_are_compared_at_as_many_positions(second, positions):
    cell = {"batch": 12, "heads": 12, "d_head": 128, "dtype": "bfloat16", "extra_tokens": 0}
    times = {"256": 1, "16x16": 1, "4096": 16, "16384": 64, second: 16 if second == "64x64" else 1}
    rows = [
        planted.row("lrpe", ms, shape=shape, phase=phase, implementation=name, bytes=ms, **cell)
        for shape, ms in times.items()
        for phase in ("forward", "backward")
        for name in ("copy", "triton", "compiled")
    ]
    said = f"of the speed of the fastest copy, with 1 and 2 axes ({positions} positions)."
    assert said in planted.page("questions", planted.evidence(*rows)).text


@pytest.mark.parametrize("stale", [False, True])
def test_stale_profile_answers_nothing(stale):
    forward = profile(phase="forward")
    of = planted.evidence(forward, stale=frozenset([forward["key"]] if stale else ()))
    said = "takes most time in the forward"
    assert (said in planted.page("questions", of).text) is not stale


def test_links_lead_to_the_headings_of_tables():
    places = of().places
    step = planted.row("end_to_end", 30, **STEP)
    text = to_html(planted.page("end_to_end", planted.evidence(step)).text)
    page, anchor = places["E1"].split("#")
    assert page == "end_to_end.md" and f'id="{anchor}"' in text


def test_unknown_table_of_a_question_is_an_error(tmp_path):
    block = "{% block page %}{{ section('questions').places['E99'] }}{% endblock %}"
    text = '{% extends "lmperf/questions.md.j2" %}' + block
    (tmp_path / "questions.md.j2").write_text(text)
    with pytest.raises(UserError, match="E99"):
        Page("questions", planted.evidence(), own=tmp_path).render()


def test_answers_repeat_findings_that_exist():
    text = (TEMPLATES / "questions.md.j2").read_text()
    for page, names in re.findall(r'said\("(\w+)", ([^)]*)\)', text):
        known = re.findall(r'finding\(("[^"]*")\)', (TEMPLATES / f"{page}.md.j2").read_text())
        assert {*names.split(", ")} <= {*known}, page


def test_answer_without_its_profiled_forward_keeps_the_rest():
    timed = planted.row("end_to_end", 33, bound="device", **STEP)
    text = planted.page("questions", planted.evidence(timed, profile())).text
    assert "**Does the profile agree with the timer?** Yes, where the GPU is the limit" in text
    assert "Forward of" not in text


def test_peaks_are_of_contexts_with_forward_and_step():
    cells = [(128, "forward"), (256, "forward"), (256, "train_step")]
    found = of(
        *(
            planted.row(
                "memory", peak_mib=1024 * n, **STEP | {"context_length": at, "phase": phase}
            )
            for n, (at, phase) in enumerate(cells, 1)
        )
    )
    found.__dict__["recorded"] = found.rows("memory")
    known = {"context_length": 256, "forward": 2.0, "train_step": 3.0}
    assert found.peaks.to_dict("records") == [known]


def test_answer_is_the_finding_of_another_page():
    rows = [
        planted.row("end_to_end", ms, **STEP | {"dtype": dtype})
        for dtype, ms in (("float32", 30), ("autocast_bfloat16", 10))
    ]
    of = planted.evidence(*rows)
    [found] = [one for one in planted.page("end_to_end", of).said if "over float32" in one]
    assert any(found in one for one in planted.page("questions", of).said)
