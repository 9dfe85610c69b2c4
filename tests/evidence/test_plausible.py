"""Tests that rows faster than the machine's limits are found, and no other rows."""

from pathlib import Path

import pytest

from lmperf.benchmarks import load
from lmperf.config.read import load_config
from lmperf.evidence.facts import write_facts
from lmperf.evidence.plausible import KIND, floor_ms, impossible, limits_of
from lmperf.evidence.project import Project
from lmperf.evidence.review import review
from lmperf.evidence.store import files_of

ROOT = Path(__file__).parents[2]
GPU = {"kind": "cuda", "device": "NVIDIA H200", "clock_sm_mhz": 1830}
UNKNOWN = {"kind": "cuda", "device": "another device"}
CPU = {"kind": "cpu", "device": "a processor"}
RATES = {"float32": 50.0, "tf32": 350.0, "float16": 780.0, "bfloat16": 790.0}
OK = {"environment": "e", "status": "ok"}


def matmul(dtype, rate, **more):
    work = {"median_ms": 1e12 / rate / 1e9, "flops": 1e12}
    return {**OK, "operation": "matmul", "dtype": dtype, "load": "burst", **work, **more}


def copy(operation, gbps, **more):
    work = {"median_ms": 4e9 / gbps / 1e6, "bytes": 4e9}
    return {**OK, "operation": operation, "dtype": "float32", "load": "burst", **work, **more}


MATMULS = [matmul(dtype, rate) for dtype, rate in RATES.items()]
COPIES = [copy("copy", 4250), copy("widen", 4100), copy("narrow", 4300)]
LAUNCH = {**OK, "operation": "launch", "dtype": "float32", "load": "burst", "median_ms": 0.003}
CEILINGS = [*MATMULS, *COPIES, LAUNCH]


def rated(dtype, tflops):
    """Return a row with 10e12 FLOPs, timed so that it reaches this rate in TFLOP/s."""
    return {**OK, "dtype": dtype, "median_ms": 10 / tflops * 1e3, "flops": 10e12}


def rate_of(limits, dtype):
    return 10e12 / floor_ms(limits, rated(dtype, 1.0)) / 1e9


@pytest.mark.parametrize(
    ("dtype", "best"),
    [("bfloat16", 790.0), ("autocast_bfloat16", 790.0), ("tf32", 350.0), ("float32", 790.0 / 3)],
)
def test_matmul_ceiling_of_dtype_limits_flop_rate(dtype, best):
    """In float32 also a third of the 16-bit rate: three 16-bit products are as accurate."""
    limits = limits_of(CEILINGS, {"e": UNKNOWN})
    assert not impossible(limits, rated(dtype, 1.02 * best))
    assert impossible(limits, rated(dtype, 1.04 * best))


def test_flops_of_a_row_are_shared_by_its_ranks():
    limits, row = limits_of(CEILINGS, {"e": UNKNOWN}), rated("bfloat16", 2 * 790.0)
    assert impossible(limits, row) and not impossible(limits, {**row, "ranks": "2"})
    assert impossible(limits, {**rated("bfloat16", 2.1 * 790.0), "ranks": 2.0})


def test_row_without_ok_status_or_time_is_never_impossible():
    limits = limits_of(CEILINGS, {"e": UNKNOWN})
    assert not impossible(limits, {**rated("bfloat16", 1e4), "status": "failed_check"})
    assert not impossible(limits, {**OK, "median_ms": "", "flops": ""})


def test_best_copy_limits_bandwidth_of_bytes_beyond_cache():
    limits = limits_of(CEILINGS, {"e": UNKNOWN})
    large = {**OK, "bytes": "1e10"}
    assert impossible(limits, {**large, "median_ms": str(1e10 / 4600 / 1e6)})
    assert not impossible(limits, {**large, "median_ms": str(1e10 / 4400 / 1e6)})
    in_cache = {**OK, "bytes": 1e8, "median_ms": 1e8 / 10_000 / 1e6}
    assert not impossible(limits, in_cache)


def test_time_below_empty_launch_is_impossible():
    limits = limits_of(CEILINGS, {"e": UNKNOWN})
    assert impossible(limits, {**OK, "median_ms": 0.0015})
    assert not impossible(limits, {**OK, "median_ms": 0.0025})


def test_data_sheet_limits_scale_with_device_clock():
    sheet_only = limits_of([], {"e": GPU})
    assert rate_of(sheet_only, "bfloat16") == pytest.approx(1.05 * 989.5)
    assert rate_of(sheet_only, "float32") == pytest.approx(1.05 * 989.5 / 3)
    assert impossible(sheet_only, {**OK, "bytes": 1e10, "median_ms": 1.9})
    faster = limits_of([], {"e": {**GPU, "clock_sm_mhz": 1980}})
    assert rate_of(faster, "bfloat16") == pytest.approx(1.05 * 989.5 * 1980 / 1830)


def test_impossible_ceiling_does_not_raise_limits():
    rows = [matmul("bfloat16", 7.9e5)]
    limits = limits_of(rows, {"e": GPU})
    assert rate_of(limits, "bfloat16") == pytest.approx(1.05 * 989.5)
    assert impossible(limits, rows[0])


@pytest.mark.parametrize("doubt", [{"marks": "loaded"}, {"marks": "capped"}])
def test_marked_ceiling_is_ignored(doubt):
    limits = limits_of([matmul("float32", 0.1, **doubt)], {"e": CPU})
    assert not impossible(limits, rated("float32", 0.2))
    quiet = limits_of([matmul("float32", 0.1, marks=""), matmul("float32", 0.05, **doubt)], {})
    assert impossible(quiet, rated("float32", 0.2))


def test_cpu_limits_have_wider_margin_and_no_bandwidth():
    limits = limits_of([matmul("float32", 0.1), matmul("bfloat16", 0.02), *COPIES], {"e": CPU})
    assert not impossible(limits, rated("float32", 0.114))
    assert impossible(limits, rated("float32", 0.116))
    # A CPU without bf16 units computes bf16 matmuls in float32.
    assert not impossible(limits, rated("bfloat16", 0.1))
    assert not impossible(limits, {**OK, "bytes": 1e10, "median_ms": 1e-3})


ABOUT = {"environment": "e" * 16, "measured_at": "2026-01-02T03:04:05+00:00", "key": "0" * 16}


def written(row):
    """Return a row with the columns that every row has."""
    return {**row, **ABOUT, "phase": "forward", "seed": 1, "commit": "0123abc"}


def test_verify_names_row_faster_than_possible(tmp_path):
    directory = tmp_path / "report" / "made-up"
    environments = {"e" * 16: GPU}
    write_facts(directory, {"machine": "made-up", "preset": "gpu", "environments": environments})
    axes = {"batch": 8, "seq_len": 256, "d_head": 16, "causal": False, "dtype": "bfloat16"}
    fast = {**axes, **rated("bfloat16", 5000.0), "implementation": "eager"}
    possible = {**fast, **rated("bfloat16", 500.0), "seq_len": 1024}
    files_of(load("attention"), directory).publish([written(fast), written(possible)])
    shape = {"shape": "8192x8192x8192", "implementation": "torch"}
    ceiling = written({**shape, **matmul("bfloat16", 790.0)})
    files_of(load("ceilings"), directory).publish([ceiling])

    reviewed = review(Project(load_config(ROOT / "config/config.yaml"), tmp_path), "made-up")
    [cause] = reviewed.of_kinds([KIND])
    assert cause.stem == "attention" and len(cause.names) == 1
    assert "seq_len=256" in cause.names[0]
