"""The head of the first page and its last section say what was measured, and what to doubt."""

import re

import planted
import pytest
from planted_steps import rung, step

from lmperf.reporting.sections import section
from lmperf.reporting.words import NotMeasured
from lmperf.workflow import TEMPLATES


def report(*rows, **more):
    return section(planted.evidence(*rows, **more), "report")


def page(*rows, **more):
    return planted.page("report", planted.evidence(*rows, **more))


def ok(**values):
    return step("0.97B", "float32", "eager", 100.0, **values)


# The head.


@pytest.mark.parametrize(
    ("first", "last", "words"),
    [
        ("2026-11-26", "2026-11-26", "26 November 2026"),
        ("2026-11-24", "2026-11-26", "24 to 26 November 2026"),
        ("2026-10-30", "2026-11-02", "30 October to 2 November 2026"),
        ("2025-12-31", "2026-01-01", "31 December 2025 to 1 January 2026"),
    ],
)
def test_dates_name_what_differs(first, last, words):
    rows = [ok(measured_at=f"{day}T10:00:00+00:00") for day in (first, last)]
    assert report(*rows).dates == words


@pytest.mark.parametrize(
    ("facts", "words"),
    [({}, "2 cores · "), ({"cores": 0.5, "cores_of_host": 2}, "0.5 cores (of 2) · ")],
)
def test_cores_of_a_cpu_are_those_that_may_be_used(facts, words):
    assert words in page(ok(), facts=planted.CPU | facts).text


def test_mfu_without_data_sheet_is_a_share_of_the_matmul():
    matmul = planted.row(
        "ceilings", 1.0, operation="matmul", dtype="bfloat16", flops=8e11, tflops=800
    )
    made = page(ok(), matmul, facts=planted.H200 | {"device": "NVIDIA X"})
    assert 800 in planted.printed(made)


def test_checks_name_what_results_were_compared_with():
    checked = {"max_error": 0.1, "error_bound": 0.2}
    alone = page(ok(**checked)).text
    assert "All 1 checks passed: results against float64, within rounding." in alone
    old = ok(**checked)
    of_older_code = planted.evidence(ok(**checked), old, stale=frozenset({old["key"]}))
    words = "All 2 checks passed, 1 of them of older code or another environment: results against"
    assert words in planted.page("report", of_older_code).text
    ranks = planted.row("distributed", 10.0, ranks=2, **checked)
    assert "; steps of several processes against one." in page(ok(**checked), ranks).text


# How far to trust this.


def test_faults_are_those_of_verify_with_the_reason():
    faults = ["missing: 12 (ceilings 12)", "stale: 26 (profiles 26)"]
    said = "count once): missing: 12 (ceilings 12); stale: 26 (profiles 26)."
    text = page(ok(), faults=faults, anyway="a rented host").text
    assert f"{said} Published all the same: a rented host." in text
    assert said in (text := page(ok(), faults=faults).text) and "all the same" not in text
    assert "lmperf verify" not in page(ok()).text


def test_jobs_that_overlap_on_other_gpus_ran_at_once():
    times = [("10:00", "10:20", 1), ("10:05", "10:10", 2), ("10:06", "10:08", 2)]
    times += [("10:10", "10:30", 3)]
    names = "started_at", "measured_at", "gpus"
    cost = [{"stem": "lrpe", **dict(zip(names, of, strict=True))} for of in times]
    assert report(ok(), cost_rows=cost).at_once == 2
    assert report(ok()).at_once == 1


def test_machine_of_kernels_alone_is_named_so():
    kernel = planted.row("attention", 1.0)
    assert "# Kernels of" in page(kernel).text and "# Kernels of" not in page(kernel, ok()).text


@pytest.mark.parametrize(
    ("watts", "mhz", "throttled"), [(690, 1500, True), (600, 1500, False), (690, 1980, False)]
)
def test_throttled_step_is_slow_at_the_power_limit(watts, mhz, throttled):
    row = rung("bf16_graph", 100.0, power_w=watts, clock_mhz=mhz)
    made = report(row, facts=planted.H200 | {"clock_sm_mhz": 1980})
    if throttled:
        assert made.at_limit["size"].to_list() == ["large"]
        shown = planted.printed(page(row, facts=planted.H200 | {"clock_sm_mhz": 1980}))
        assert shown[-4:] == [690, 700, 1500, 1980]  # W and MHz
        return
    with pytest.raises(NotMeasured):
        _ = made.at_limit


# The frame.


def test_cpu_links_to_machines_with_a_gpu():
    gpu = planted.evidence(ok(), machine="nvidia-h200")
    made = page(ok(), facts=planted.CPU, others=[gpu])
    assert "What a GPU adds: [NVIDIA H200](../nvidia-h200/report.md)." in made.text


def test_first_page_links_to_tables_that_exist():
    texts = [path.read_text() for path in (TEMPLATES / "report").glob("*.j2")]
    named = {
        table
        for text in texts
        for call in re.findall(r"see\((.*?)\) ?}}", text)
        for table in re.findall(r"\b[A-Z]\d\b", call)
    }
    assert len(named) > 10 and named <= {*section(planted.evidence(), "course").places}
