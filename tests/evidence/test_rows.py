"""Rows that nothing can have measured are refused; rows of every published machine are not."""

from pathlib import Path

import pytest

from lmperf.benchmarks import load, stems
from lmperf.evidence.plan import evidence_of
from lmperf.evidence.rows import as_read, fault, is_loaded, sound
from lmperf.gate import UNCHECKED

REPORT = Path(__file__).parents[2] / "report"
AXES = {"batch": "1", "seq_len": "32", "d_head": "16", "dtype": "float32", "causal": "False"}
ABOUT = {"environment": "e" * 16, "key": "0" * 16, "measured_at": "2026-01-02T03:04:05+00:00"}
CASE = {**AXES, "implementation": "eager", "phase": "forward"}
ROW = {**CASE, **ABOUT, "status": "ok", "median_ms": "1.5"}
ROW |= {"max_error": "1e-07", "error_bound": "1e-06"}
FAILED = {**CASE, **ABOUT, "status": "failed_check", "reason": "it differs"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"median_ms": "-1.5"}, "median_ms is '-1.5': Input should be greater than 0"),
        ({"median_ms": "0"}, "median_ms is '0'"),
        ({"median_ms": "inf"}, "median_ms is 'inf'"),
        ({"median_ms": ""}, "status is ok, but median_ms is empty"),
        ({"median_ms": "fast"}, "median_ms is 'fast'"),
        ({"rounds_ms": "1.5;-2"}, "rounds_ms is"),
        ({"peak_mib": "-1"}, "peak_mib is '-1'"),
        ({"other_load": "1.5"}, "other_load is '1.5'"),
        ({"max_error": "2e-06"}, "status is ok, but max_error 2e-06 is over error_bound 1e-06"),
        ({"max_error": "nan"}, "status is ok, but max_error nan is over error_bound"),
        ({"max_error": ""}, "max_error and error_bound are not both there"),
        ({"max_error": "-1"}, "max_error is '-1'"),
        ({"error_bound": "inf"}, "error_bound is 'inf'"),
        ({"status": "fine"}, "status is 'fine'"),
        ({"status": "timeout"}, "status is timeout, but there is a median_ms"),
        ({"phase": "sideways"}, "phase is 'sideways'"),
        ({"dtype": "float4"}, "dtype is 'float4'"),
        ({"seq_len": "0"}, "seq_len is '0'"),
        ({"causal": "perhaps"}, "causal is 'perhaps'"),
        ({"implementation": "rm -rf"}, "implementation is 'rm -rf'"),
        ({"key": ""}, "key is"),
        ({"measured_at": "yesterday"}, "measured_at is 'yesterday'"),
        ({"reason": "x" * 20_000}, "reason is"),
    ],
    ids=lambda value: next(iter(value.items()))[0] if isinstance(value, dict) else "",
)
def test_impossible_row_is_refused(change, words):
    benchmark = load("attention")
    assert words in fault(benchmark, {**ROW, **change})
    kept, (line,) = sound(benchmark, [{**ROW, **change}, ROW][:1])
    assert kept == [] and words in line and len(line) < 400


def test_failed_row_has_a_reason_and_no_time():
    assert fault(load("attention"), {**FAILED, "reason": ""}) == (
        "status is failed_check, but reason is empty"
    )
    assert "there is a rounds_ms" in fault(load("attention"), {**FAILED, "rounds_ms": "1;2"})
    assert fault(load("attention"), {**FAILED, "max_error": "nan", "error_bound": "1e-6"}) == ""


def test_median_lies_in_its_interval():
    of = load("end_to_end")
    row = {"size": "tiny", "context_length": "64", "batch": "1", "dtype": "float32"}
    row |= {**ABOUT, "implementation": "eager", "phase": "train_step", "status": "ok"}
    assert fault(of, {**row, "median_ms": "2", "low_ms": "1", "high_ms": "3"}) == ""
    assert "outside 3 to 4" in fault(of, {**row, "median_ms": "2", "low_ms": "3", "high_ms": "4"})


@pytest.mark.machine
@pytest.mark.parametrize("machine", sorted(path.name for path in REPORT.glob("*/")))
def test_published_rows_are_sound(machine):
    number = 0
    for benchmark in map(load, stems()):
        rows, faults = evidence_of(benchmark, REPORT / machine).published()
        rows, more = sound(benchmark, rows)
        assert not [*faults, *more], benchmark.stem
        number += len(rows)
    assert number > 100


@pytest.mark.parametrize(
    ("columns", "loaded"),
    [
        ({"other_load": "0.2"}, True),
        ({"other_load": "0.09"}, False),
        ({"other_load": ""}, False),
        ({"other_load": "0.2", "gpus": "GPU-1"}, False),
        ({"other_load": "0.2", "gpus": "GPU-1", "bound": "device"}, False),
        ({"other_load": "0.2", "gpus": "GPU-1", "bound": "host"}, True),
    ],
)
def test_load_counts_where_a_row_waits_for_the_host(columns, loaded):
    assert is_loaded({**ROW, **columns}) == loaded


def test_row_whose_check_lacks_memory_is_unchecked():
    assert as_read({**FAILED, "reason": UNCHECKED})["status"] == "unchecked"
    assert as_read(FAILED) == FAILED
