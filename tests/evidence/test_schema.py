"""Tests that impossible rows are found, and that rows written by measuring have no faults.

LMPERF_FAULTS=N tries N random files instead of a few.
"""

import csv
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lmperf.benchmark import Case, Timed
from lmperf.benchmarks import load, stems
from lmperf.evidence.plan import evidence_of
from lmperf.evidence.schema import faults, sound
from lmperf.evidence.store import text_of
from lmperf.measuring.group import achieved
from lmperf.measuring.rounds import SliceResult, Timings
from lmperf.measuring.state import State

ROOT = Path(__file__).parents[2]
ATTENTION, PROFILES, CHECK = map(load, ("attention", "profiles", "flash_attention_check"))
PROVENANCE = {
    "seed": 7,
    "environment": "e" * 16,
    "commit": "0123abc",
    "measured_at": "2026-01-02T03:04:05+00:00",
    "key": "0" * 16,
}
GATE = {"max_error": 1e-6, "error_bound": 2e-6, "error_out": 1e-6}
CELL = {"batch": 8, "seq_len": 256, "d_head": 16, "dtype": "float32", "causal": False}


def timed(*rounds, work=2**30):
    """Return the columns that measuring writes for a timed row.

    rounds: for each round, the times of its calls in ms.
    """
    timings = Timings()
    for times in rounds:
        timings.add(SliceResult(list(times), State(clock_mhz=1980.0, throttle=4)))
    row = {**timings.columns(), "flops": work, "bytes": work, "together": "aa"}
    return {"status": "ok", **row, **achieved(row)}


def row_of(*parts, **changes):
    """Return a row as column -> text; by default a row of the benchmark `attention`."""
    row = {**CELL, "implementation": "eager", "phase": "forward"}
    for part in (PROVENANCE, *parts, changes):
        row |= part
    return {name: text_of(value) for name, value in row.items()}


def ok(**changes):
    return row_of(timed([1.0, 2.0], [1.5, 1.6], [3.0]), GATE, **changes)


def failed(status="crash", **changes):
    return row_of({"status": status, "reason": "it ended"}, **changes)


def kernel(**changes):
    cell = {"size": "0.13B", "context_length": 512, "batch": 4, "dtype": "float32"}
    row = {"status": "ok", "table": "kernel", "name": "gemm", "total_ms": 1.5, "instances": 3}
    return {**row_of(cell, row, **changes)}


def check(**changes):
    cell = {"batch": 1, "heads": 2, "layout": "strided", "phase": "forward_backward"}
    return row_of(cell, {"status": "ok", **GATE}, implementation="triton", **changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"status": "fine"}, "status is 'fine'; it must be 'ok', 'oom',"),
        ({"status": ""}, "status is ''"),
        ({"phase": "train_step"}, "phase is 'train_step'; it must be 'forward' or 'backward'"),
        ({"implementation": ""}, "implementation is ''"),
        (
            {"implementation": "<b>x"},
            "implementation is '<b>x'; it must be a name of a-z, 0-9 and _",
        ),
        ({"seq_len": "long"}, "seq_len is 'long'; it must be a whole number"),
        ({"seq_len": "0256"}, "seq_len is '0256'"),
        ({"seq_len": "0"}, "seq_len is '0'"),
        ({"seq_len": "9" * 5000}, "seq_len is"),
        ({"dtype": "float8"}, "dtype is 'float8'; it must be 'float32', 'tf32'"),
        ({"causal": "yes"}, "causal is 'yes'; it must be 'True' or 'False'"),
        ({"power_w": "much"}, "power_w is 'much'; it must be a finite number"),
        ({"peak_mib": "1_000"}, "peak_mib is '1_000'"),
        ({"peak_mib": "inf"}, "peak_mib is 'inf'; it must be a finite number"),
        ({"peak_mib": "1e999"}, "peak_mib is '1e999'"),
        ({"peak_mib": "nan"}, "peak_mib is 'nan'"),
        ({"peak_mib": "-1"}, "peak_mib is '-1'; it must be greater than or equal to 0"),
        ({"compile_s": "-0.5"}, "compile_s is '-0.5'"),
        ({"median_ms": "0.0"}, "median_ms is '0.0'; it must be greater than 0"),
        ({"median_ms": "-1.5"}, "median_ms is '-1.5'"),
        ({"p20_ms": "1.7"}, "median_ms is 1.6, outside p20_ms 1.7"),
        ({"p80_ms": "1.2"}, "median_ms is 1.6, outside p20_ms"),
        ({"mean_ms": "5.0"}, "mean_ms is 5.0, farther from median_ms 1.6 than std_ms"),
        ({"repetitions": "5.5"}, "repetitions is '5.5'; it must be a whole number"),
        ({"repetitions": "0"}, "repetitions is '0'"),
        ({"repetitions": "2"}, "repetitions is 2, for 3 rounds"),
        ({"rounds_ms": "1.5;x"}, "rounds_ms is '1.5;x'; it must be a finite number"),
        ({"rounds_ms": "1.5;1e999"}, "rounds_ms is '1.5;1e999'"),
        ({"rounds_ms": "1.5;;1.7"}, "rounds_ms is '1.5;;1.7'"),
        ({"rounds_ms": "1.7;1.8;1.9"}, "median_ms is 1.6, outside its rounds, 1.7 to 1.9"),
        ({"again_ms": "1.5;-1"}, "again_ms is '1.5;-1'"),
        ({"again_ms": "1;1;1;1"}, "again_ms has 4 rounds, rounds_ms 3"),
        ({"rounds_mhz": "1980;fast"}, "rounds_mhz is '1980;fast'"),
        ({"throttle": "four"}, "throttle is 'four'"),
        ({"median_ms": ""}, "status is ok, but median_ms is empty"),
        ({"rounds_ms": ""}, "status is ok, but rounds_ms is empty"),
        ({"max_error": "0.1"}, "status is ok, but max_error 0.1 is over error_bound 2e-06"),
        ({"max_error": "nan"}, "status is ok, but max_error nan is over"),
        ({"error_out": "inf"}, "error_out is inf, but status is ok"),
        ({"error_bound": ""}, "max_error is 1e-06, error_bound is empty"),
        ({"max_error": ""}, "max_error is empty, error_bound is 2e-06"),
        ({"tflops": "1.0"}, "tflops is 1, but flops over median_ms is 0.67"),
        ({"flops": ""}, "but flops over median_ms is 0"),
        ({"bandwidth_gbps": ""}, "bandwidth_gbps is 0, but bytes over median_ms is 671"),
        ({"error_bound": "10"}, "error_bound is 10, but rounding here explains at most 0.0"),
        ({"error_bound": "1e308"}, "error_bound is 1e308"),
        ({"max_error": "1.5e-6"}, "max_error is 1.5e-6, but none of error_out is"),
        ({"std_ms": "1e308"}, "std_ms is 1e+308, which 5 times with mean_ms 1.8"),
        ({"std_ms": "5"}, "std_ms is 5.0, which 5 times with mean_ms 1.8"),
        ({"mean_ms": "2e5", "std_ms": "2e5"}, "mean_ms is 2e5, over the time-out of 120 s"),
        ({"p80_ms": "1e9"}, "p80_ms is 1e9, over the time-out"),
        ({"host_ms": "1e9"}, "host_ms is 1e9, over the time-out"),
        ({"eager_ms": "1e9"}, "eager_ms is 1e9, over the time-out"),
        ({"least_ms": "1.51"}, "least_ms is 1.51, over 1.4 of"),
        ({"least_ms": "0"}, "least_ms is '0'; it must be greater than 0"),
        ({"compile_s": "1e9"}, "compile_s is 1e9, over the time-out of 120 s a phase"),
        ({"other_load": "7"}, "other_load is '7'; it must be less than or equal to 1"),
        ({"other_load": "0.6"}, "other_load is 0.6, but the row is not marked loaded"),
        ({"reference": "99"}, "reference is 99, but the row is not marked drift"),
        ({"reference": "1.2", "launch_us": "9"}, "reference is 1.2, but the row is not marked"),
        ({"reference": "0"}, "reference is '0'"),
        ({"host_reference": "2.3"}, "host_reference is 2.3, but the row is not marked host"),
        ({"launch_us": "1e9"}, "launch_us is '1e9'"),
        ({"python_us": "0"}, "python_us is '0'"),
        ({"clock_mhz": "1e9"}, "clock_mhz is '1e9'"),
        ({"power_w": "1e9"}, "power_w is '1e9'"),
        ({"temperature_c": "1e9"}, "temperature_c is '1e9'"),
        ({"full_flops": "1"}, "full_flops is 1, less than flops 1073741824"),
        ({"sustained_ms": "1.5"}, "sustained_ms is '1.5', but sustained_rounds_ms is empty"),
        ({"sustained_w": "700"}, "sustained_w is 700, but sustained_ms is empty"),
        ({"key": "0" * 15}, "key is '000000000000000'; it must be 16 hexadecimal digits"),
        ({"key": "G" * 16}, "key is 'GGGG"),
        ({"environment": "e1"}, "environment is 'e1'"),
        ({"measured_at": "yesterday"}, "measured_at is 'yesterday'; it must be an ISO time"),
        ({"measured_at": "2201-01-02T03:04:05+00:00"}, "measured_at is '2201"),
        ({"measured_at": "2026-02-31T03:04:05+00:00"}, "measured_at is '2026-02-31"),
        ({"measured_at": "2026-01-02T03:04:05"}, "in UTC"),
        ({"marks": "x" * 10_001}, "marks has 10001 characters"),
        ({"commit": "a\0b"}, r"commit is 'a\x00b'; it must be free of control characters"),
        ({"reason": "\x1b[31mred"}, r"reason is '\x1b[31mred'"),
    ],
)
def test_invalid_cell_is_reported_with_its_row(changes, words):
    rows, (line, *_) = sound(ATTENTION, [ok() | changes])
    assert not rows
    assert words in line
    assert line.startswith("attention: row 1 (")
    assert line.isprintable()


STRETCH = {
    "sustained_ms": 1.5,
    "sustained_rounds_ms": "1.5;1.4;1.6",
    "sustained_steps": 3,
    "sustained_s": 0.0045,
    "sustained_mhz": 1900,
    "sustained_w": 690,
}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sustained_ms": 1.7}, "sustained_ms is 1.7, outside its blocks, 1.4 to 1.6"),
        ({"sustained_s": 0.005}, "sustained_s is 0.005, but 3 steps take 0.0042 to 0.0048 s"),
        ({"sustained_steps": 2}, "sustained_s is 0.0045, but 2 steps take"),
        ({"sustained_steps": 0}, "sustained_steps is '0'"),
        ({"sustained_rounds_ms": "1;x"}, "sustained_rounds_ms is '1;x'"),
        ({"sustained_s": ""}, "sustained_ms is '1.5', but sustained_s is empty"),
    ],
)
def test_stretch_of_steps_that_contradicts_itself_is_a_fault(changes, words):
    assert not list(faults(ATTENTION, [ok(**STRETCH)]))
    (fault, *_) = faults(ATTENTION, [ok(**STRETCH) | {k: str(v) for k, v in changes.items()}])
    assert words in fault[1]


@pytest.mark.parametrize(
    "changes",
    [
        {"other_load": 0.6, "marks": "capped;loaded"},
        {"reference": 99, "marks": "drift"},
        {"reference": 0.5},
        {"host_reference": 3, "marks": "host"},
        {"host_reference": 3, "launch_us": 9},  # a kernel's time on a GPU
        {"least_ms": 1.0, "compile_s": 119, "full_flops": 2**31},
    ],
)
def test_row_whose_marks_explain_its_values_is_valid(changes):
    assert not list(faults(ATTENTION, [ok(**changes)]))


def test_slow_host_of_a_host_bound_step_needs_its_mark():
    cell = {"size": "0.13B", "context_length": 128, "batch": 4, "dtype": "float32"}
    times = timed([1.0, 2.0], [1.5, 1.6], [3.0])
    host = {"host_reference": 1.3, "launch_us": 9}
    steps = {name: row_of(cell, times, host, host_ms=ms) for name, ms in (("a", 1.5), ("b", 1.0))}
    end_to_end = load("end_to_end")
    (fault,) = faults(end_to_end, [steps["a"]])
    assert "not marked host" in fault[1]
    assert not list(faults(end_to_end, [steps["b"]]))


def test_largest_error_bound_covers_every_declared_tolerance():
    from lmperf.attention.accuracy import TOLERANCES, error_bound
    from lmperf.attention.rounding import UNIT_ROUNDOFF, largest_bound
    from lmperf.lrpe import accuracy, rounding

    for dtype in UNIT_ROUNDOFF:
        for tolerance in TOLERANCES:
            bounds = [error_bound(t, dtype, tolerance) for t in ("out", "lse", "dq", "dk", "dv")]
            assert max(bounds) <= largest_bound(dtype, tolerance) <= largest_bound(dtype, None)
    for dtype in ("float32", "float16", "bfloat16"):
        for tolerance in accuracy.TOLERANCES:
            bounds = accuracy.error_bounds(dtype, tolerance, 1.5 * 127)
            largest = rounding.largest_bound(dtype, "64x128", tolerance)
            assert 0.9 * largest <= max(bounds.values()) <= largest


@pytest.mark.parametrize("name", ["implementation", "phase", "status", "environment", "key"])
def test_missing_required_column_is_a_fault(name):
    row = ok()
    del row[name]
    assert (0, f"{name} is missing") in list(faults(ATTENTION, [row]))


def test_missing_axes_and_undeclared_columns_are_accepted():
    row = ok(of_a_later_version="\x1b" * 20_000)
    del row["causal"]
    assert not list(faults(ATTENTION, [row, ok(causal="", seq_len=512, together="bb")]))


def test_any_custom_implementation_name_is_valid():
    assert not list(faults(ATTENTION, [ok(implementation="my_attention2")]))


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (failed("failed_check", reason=""), "status is failed_check, but reason is empty"),
        (
            failed("nan", reason="", max_error="nan", error_bound=1e-6),
            "status is nan, but reason is empty",
        ),
        (failed("nan", max_error=1e-5, error_bound=1e-6), "nan, but max_error is 1e-05"),
        (failed("crash", median_ms=1.5), "status is crash, but there is a median_ms"),
        (failed("oom", rounds_ms="1.5"), "status is oom, but there is a rounds_ms"),
        (failed("failed_check", tflops=3.0), "status is failed_check, but there is a tflops"),
        (failed("oom", requested_bytes=-1), "requested_bytes is '-1'"),
        (failed("crash", error_out="nan"), "error_out is nan, but status is crash"),
    ],
)
def test_failed_row_with_times_or_without_reason_is_a_fault(row, words):
    (fault,) = faults(ATTENTION, [row])
    assert words in fault[1]


@pytest.mark.parametrize(
    "row",
    [
        failed("oom", reason="", requested_bytes=2**40, free_bytes=2**30),
        failed("timeout"),
        failed("unsupported"),
        failed("nan", max_error="inf", error_bound=1e-6, error_out="nan", pytorch_error="nan"),
        # The correctness check passed before timing, but the result of a timed call was wrong.
        failed("failed_check", **GATE, peak_mib=5, flops=2**30),
    ],
)
def test_failed_rows_that_workers_write_are_valid(row):
    assert not list(faults(ATTENTION, [row]))


def test_failed_check_without_error_or_reason_is_a_fault():
    red = check(status="failed_check", max_error=1.0)
    assert not list(faults(CHECK, [red]))
    lies = check(status="failed_check")
    assert list(faults(CHECK, [lies])) == [(0, "status is failed_check, but reason is empty")]


@pytest.mark.parametrize("other", [ok(), ok(together="bb"), failed(), ok(key="1" * 16)])
def test_all_rows_with_equal_identity_are_faults(other):
    rows = [ok(), ok(seq_len=512, together="cc"), other]
    good, lines = sound(ATTENTION, rows)
    assert good == rows[1:2]
    assert sum("occurs 2 times" in line for line in lines) == 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"key": "1" * 16}, "key differs from that of the case's other rows"),
        ({"environment": "1" * 16}, "environment differs from"),
        ({"together": "bb"}, "together differs from"),
        ({"status": "crash"}, "its case has the status crash and more than one row"),
        ({"name": "gemm"}, "occurs 2 times, with the status 'ok'"),
    ],
)
def test_mixed_measurements_of_a_case_are_all_faults(changes, words):
    rows = [kernel(), kernel(name="softmax") | changes, kernel(dtype="autocast_bfloat16")]
    assert sound(PROFILES, rows[::2])[0] == rows[::2]
    good, (first, second) = sound(PROFILES, rows)
    assert good == rows[2:]
    assert words in first and words in second


@pytest.mark.parametrize(
    "changes", [{"seq_len": 512}, {"phase": "backward"}, {"rounds_ms": "1.6;1.6"}]
)
def test_group_with_mixed_cells_or_rounds_is_a_fault(changes):
    peer = ok(dtype="bfloat16")
    assert not list(faults(ATTENTION, [ok(), peer]))
    good, lines = sound(ATTENTION, [ok(), peer, ok(implementation="compiled", **changes)])
    assert not good
    assert "together is 'aa' in several cells, phases or numbers of rounds" in lines[0]


def test_row_longer_or_shorter_than_header_is_a_fault():
    row = ok()
    row["key"] = row.pop("key")  # the last column
    header, cells = ",".join(row), ",".join(row.values())
    longer, shorter = cells + ",more", cells.rpartition(",")[0]
    rows = list(csv.DictReader([header, longer, shorter]))
    found = list(faults(ATTENTION, rows))
    assert (0, "has more cells than there are columns") in found
    assert (1, "key is missing") in found


def test_signed_column_may_be_negative():
    row = row_of({"experiment": "accumulation", "subject": "float32 + float32"}, status="ok")
    row |= {"tensor": "sum", "value": "-1.5", "exact": "10.0"}
    assert not list(faults(load("mixed_precision"), [row]))


def test_text_axis_must_match_its_pattern():
    cell = {"operation": "matmul", "load": "burst", "implementation": "torch"}
    rows = [row_of(timed([1.0]), cell, shape=shape, together=shape) for shape in ("8x8x8", "8x")]
    assert list(faults(load("ceilings"), rows)) == [
        (1, "shape is '8x'; it must be like ^[1-9][0-9]*(x[1-9][0-9]*x[1-9][0-9]*)?$")
    ]


@pytest.mark.slow
def test_committed_evidence_has_no_faults():
    for path in sorted(ROOT.glob("report/*/evidence/*.csv")):
        if path.stem in stems():
            benchmark = load(path.stem)
            assert sound(benchmark, evidence_of(benchmark, path.parents[1]).read())[1] == []


MS = st.floats(1e-3, 1e4)
FAILURES = {
    "oom": {"requested_bytes": 2**40},
    "timeout": {"reason": "no answer for 120 s"},
    "crash": {"reason": "RuntimeError: it said\n no"},
    "unsupported": {"reason": "needs a GPU"},
    "failed_check": {"reason": "out differs", "max_error": 1.0, "error_bound": 5e-7},
    "nan": {"reason": "not finite", "max_error": float("nan"), "error_bound": 5e-7},
}


@st.composite
def timed_rows(draw, benchmark):
    """Draw rows of one group as measuring writes them, with random times and statuses."""
    cases = benchmark.cases("cpu") or benchmark.cases("gpu")
    cases = draw(st.sampled_from(benchmark.groups(cases)))
    rows = []
    for phase in benchmark.phases:
        rounds = draw(st.integers(1, 5))
        slices = st.lists(st.lists(MS, min_size=1, max_size=4), min_size=rounds, max_size=rounds)
        for case in cases:
            status = draw(st.sampled_from(["ok", "ok", *FAILURES]))
            together = f"{case.cell[0]}{phase}"
            columns = (
                {**timed(*draw(slices)), **GATE, "together": together}
                if status == "ok"
                else {"status": status, **FAILURES[status]}
            )
            rows.append(named(case, phase, columns))
    return rows


@st.composite
def observed_rows(draw, benchmark):
    cases = benchmark.cases("cpu")[:2]
    rows = []
    for case in cases:
        status = draw(st.sampled_from(["ok", "ok", "crash", "oom"]))
        count = draw(st.integers(1, 3)) if benchmark.index and status == "ok" else 1
        for number in range(count):
            columns = {"status": status, **FAILURES.get(status, {})}
            if status == "ok":
                columns |= {c.name: number + draw(MS) for c in benchmark.columns if c.kind is float}
                columns |= {name: number for name in benchmark.index}
            rows.append(named(case, benchmark.phases[0], columns))
    return rows


def named(case: Case, phase: str, columns: dict) -> dict[str, str]:
    row = {**case.axes, "implementation": case.implementation, "phase": phase}
    key = f"{abs(hash((case, phase))) % 16**16:016x}"
    row = {**row, **columns, **PROVENANCE, "key": key}
    return {name: text_of(value) for name, value in row.items()}


INVALID_NUMBERS = ["", "-1", "nan", "inf", "1e400", "x", " 1", "1_0", "0x1", "1" * 10_001, "\0"]
# Column -> texts that are invalid in every row. IF_TIMED: texts that are invalid only in a timed
# row with the status ok.
ANYWHERE = {
    "status": ["", "OK", "fine", "ok "],
    "phase": ["", "sideways"],
    "implementation": ["", "Eager", "a b", "x" * 10_001],
    "key": ["", "0" * 17, "x" * 16],
    "environment": ["", "e1"],
    "measured_at": ["", "now", "9999-01-01T00:00:00+00:00", "2026-13-01T00:00:00+00:00"],
    "seed": INVALID_NUMBERS[1:],
    "requested_bytes": INVALID_NUMBERS[1:],
    "marks": ["\0", "\x1b[0m", "m" * 10_001],
}
IF_TIMED = {
    "median_ms": [*INVALID_NUMBERS, "0", "1e9", "1e-9"],
    "mean_ms": [*INVALID_NUMBERS, "1e9"],
    "std_ms": INVALID_NUMBERS,
    "p20_ms": [*INVALID_NUMBERS, "1e9"],
    "p80_ms": [*INVALID_NUMBERS, "0"],
    "repetitions": [*INVALID_NUMBERS, "0", "1.5"],
    "rounds_ms": ["", "1;", "x", "-1", "0", "1e9"],
    "tflops": [*INVALID_NUMBERS, "0", "1e9"],
    "bandwidth_gbps": [*INVALID_NUMBERS, "0", "1e9"],
    "max_error": [*INVALID_NUMBERS, "1"],
    "error_bound": [*INVALID_NUMBERS, "1e-9"],
    "together": [""],
    "status": list(FAILURES),
}
TIMES = {name: "1.5" for name in ("median_ms", "rounds_ms", "p20_ms", "host_ms", "tflops")}


@pytest.mark.slow
@settings(
    max_examples=int(os.environ.get("LMPERF_FAULTS", 40)),
    deadline=None,
    derandomize="LMPERF_FAULTS" not in os.environ,
    suppress_health_check=list(HealthCheck),
)
@given(st.data())
def test_any_corrupted_row_is_found(data):
    benchmark = load(data.draw(st.sampled_from(stems())))
    strategy = timed_rows if isinstance(benchmark, Timed) else observed_rows
    rows = data.draw(strategy(benchmark))
    assert sound(benchmark, rows) == (rows, [])

    index = data.draw(st.integers(0, len(rows) - 1))
    row = rows[index]
    kind = data.draw(st.sampled_from(["cell", "gone", "twice"]))
    if kind == "cell":
        wrong = dict(ANYWHERE)
        for axis in benchmark.axes:
            wrong[axis.name] = ["\0", "a" * 10_001] + ([] if axis.kind is str else ["-1", "1.0"])
        if "median_ms" in row:
            wrong |= IF_TIMED
        elif row["status"] != "ok":
            wrong |= {name: [text] for name, text in TIMES.items()}
        name = data.draw(st.sampled_from(sorted(wrong)))
        rows[index] = row | {name: data.draw(st.sampled_from(wrong[name]))}
    elif kind == "gone":
        gone = data.draw(st.sampled_from(["implementation", "phase", "status", "key"]))
        rows[index] = {name: text for name, text in row.items() if name != gone}
    else:
        changes = data.draw(st.sampled_from([{}, {"together": "zz"}, {"key": "f" * 16}]))
        rows.insert(data.draw(st.integers(0, len(rows))), row | changes)
        index = rows.index(row)

    good, lines = sound(benchmark, rows)
    assert rows[index] not in good
    assert lines and all(line.isprintable() for line in lines)
