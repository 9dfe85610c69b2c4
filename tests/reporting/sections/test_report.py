"""The head of the first page and its last section say what was measured, and what to doubt."""

import re

import planted
import pytest
from planted_steps import rung, step

from lmperf.reporting.sections import section
from lmperf.reporting.words import NotMeasured
from lmperf.workflow import TEMPLATES


def report(*rows, **more):
    return section("report", planted.evidence(*rows, **more))


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


def test_title_names_the_device():
    made = page(ok())
    assert made.text.startswith("# Transformer language models on one NVIDIA H200\n")
    assert "PyTorch 2.11.0, CUDA 13.0, cuDNN 9.19 · Triton 3.6.0" in made.text


def test_versions_of_two_environments_are_both_named():
    evidence = planted.evidence(ok())
    old = planted.H200 | {"torch": "2.10.0+cu130", "measured_at": "2026-01-01T00:00:00+00:00"}
    evidence.facts["environments"]["e0"] = old
    assert section("report", evidence).versions("torch") == "2.10.0 and 2.11.0"


@pytest.mark.parametrize(("cpu", "lacks"), [("AVX2", 3), ("AVX-512", 2), ("AMX BF16", 0), ("?", 0)])
def test_processor_names_what_it_lacks(cpu, lacks):
    assert len(report(facts=planted.CPU | {"cpu_model": f"CPU, {cpu}"}).lacks) == lacks


def test_failed_check_is_named():
    rows = [ok(max_error=0.1, error_bound=0.2), rung("tf32", 9.0, max_error=0.3, error_bound=0.2)]
    made = page(*rows)
    assert "1 of 2 checks failed:" in made.text and "end_to_end, PyTorch (1)." in made.text


@pytest.mark.parametrize(
    ("device", "words"), [("NVIDIA H200", "data sheet's 989"), ("NVIDIA X", "")]
)
def test_mfu_is_a_share_of_the_data_sheet(device, words):
    made = page(ok(), facts=planted.H200 | {"device": device})
    assert ("MFU is the share of" in made.text) is bool(words)
    assert words in made.text


def test_mfu_without_data_sheet_is_a_share_of_the_matmul():
    matmul = planted.row(
        "ceilings", 1.0, operation="matmul", dtype="bfloat16", flops=8e11, tflops=800
    )
    made = page(ok(), matmul, facts=planted.H200 | {"device": "NVIDIA X"})
    assert "share of 800 TFLOP/s, the fastest bf16 matmul measured here" in made.text


# How far to trust this.


def test_gpus_are_counted_with_those_of_second_times():
    first = ok()
    again = {"end_to_end": [first | {"gpus": "GPU-3"}]}
    assert report(first, ok(gpus="GPU-2;GPU-1"), again=again).gpus == 3


@pytest.mark.parametrize(
    ("watts", "mhz", "throttled"), [(690, 1500, True), (600, 1500, False), (690, 1950, False)]
)
def test_throttled_step_is_slow_at_the_power_limit(watts, mhz, throttled):
    row = rung("bf16_graph", 100.0, power_w=watts, clock_mhz=mhz)
    made = report(row, facts=planted.H200 | {"clock_sm_mhz": 1980})
    if throttled:
        assert made.throttled["size"] == "large"
        return
    with pytest.raises(NotMeasured):
        _ = made.throttled


def test_loaded_and_stale_rows_are_counted():
    rows = ok(marks="loaded"), ok()
    made = page(*rows, stale=frozenset([rows[1]["key"]]))
    assert "1 of 2 rows were timed while other processes" in made.text
    assert "1 of 2 rows are older than the code" in made.text


def test_damaged_files_and_rows_published_anyway_are_named():
    made = page(ok(), damaged={"lrpe": "cut off"}, anyway="3 rows fail: a rented host")
    assert "Damaged, so not used: lrpe (cut off)." in made.text
    assert "Published all the same: 3 rows fail: a rented host." in made.text


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
    assert len(named) > 10 and named <= {*section("questions", planted.evidence()).places}
