"""Report section on md_lrpe_cosine, a position embedding: findings, tables and figure.

The head table is the one table of the section in the write-up; L1 and L2 are tables on its page.
"""

import statistics

import pytest
import synthetic
from finding_checks import assert_answers_reached

from lmperf.reporting import marks
from lmperf.reporting.evidence import having
from lmperf.reporting.figures import LIGHT, Pen
from lmperf.reporting.findings import state
from lmperf.reporting.markdown import markdown
from lmperf.reporting.numbers import percent
from lmperf.reporting.sections.lrpe import SECTION
from lmperf.reporting.sections.lrpe.figure import figure
from lmperf.reporting.speedup import Series, averaged, resolved

FINDINGS = {finding.name: finding for finding in SECTION.findings}
L1, L2, HOST, GATES = SECTION.tables
TRITON = {"implementation": "triton"}


def with_times_scaled(evidence, factor, **where):
    """Multiply the times of the rows selected by ``where``, in place; return the evidence."""
    frame = evidence.frames["lrpe"]
    rows = having(frame, **where).index
    rounds = [map(float, text.split(";")) for text in frame.loc[rows, "rounds_ms"]]
    frame.loc[rows, "rounds_ms"] = [";".join(repr(t * factor) for t in each) for each in rounds]
    frame.loc[rows, "median_ms"] *= factor
    frame.loc[rows, "again_ms"] = None  # else the changed rounds would widen the noise floor
    return evidence


def gpu_with_times_scaled(factor, **where):
    """A function that makes GPU evidence with some times multiplied (see with_times_scaled)."""
    return lambda: with_times_scaled(synthetic.gpu_evidence(), factor, **where)


CASES = {
    "lrpe_copy": {
        "both": gpu_with_times_scaled(0.96, **TRITON),
        "bytes": synthetic.gpu_evidence,
        "shares": gpu_with_times_scaled(3.0, **TRITON),
    },
    "lrpe_over": {"is": synthetic.gpu_evidence, "alone": lambda: with_large_shapes_alone()},
    "lrpe_host": {"is": lambda: with_host_times(1.0)},
    "lrpe_cached": {
        "costs": synthetic.gpu_evidence,
        "pays": gpu_with_times_scaled(2.0, **TRITON),
        "either": gpu_with_times_scaled(2.0, **TRITON, shape="32768"),
    },
}


def with_large_shapes_alone():
    evidence = synthetic.gpu_evidence()
    frame = evidence.frames["lrpe"]
    evidence.frames["lrpe"] = frame[frame["shape"].isin(["32768", "128x128", "32x32x32"])]
    return evidence


def with_host_times(ms):
    return replace_rows(synthetic.gpu_evidence(), host_ms=ms)


def replace_rows(evidence, **columns):
    evidence.frames["lrpe"] = evidence.frames["lrpe"].assign(**columns)
    return evidence


def with_times(evidence, ms, **where):
    """Set the times of the rows selected by ``where`` to ``ms``, in place; return the evidence."""
    frame = evidence.frames["lrpe"]
    rows = having(frame, **where).index
    rounds = frame.loc[rows, "rounds_ms"].str.count(";") + 1
    frame.loc[rows, "rounds_ms"] = [";".join([str(ms)] * number) for number in rounds]
    frame.loc[rows, "median_ms"] = ms
    frame.loc[rows, "again_ms"] = None  # else the changed rounds would widen the noise floor
    return evidence


def sentence_of(name, evidence):
    return str(state(FINDINGS[name], evidence))


@pytest.mark.slow
def test_findings_give_every_declared_answer():
    assert_answers_reached(SECTION.findings, CASES)


def test_copy_speed_finding_states_dtype_and_positions(gpu):
    words = sentence_of("lrpe_copy", gpu)
    assert words.startswith(
        "md_lrpe_cosine, Triton (bf16, from 8,192 positions): memory-bound, at 9"
    )
    assert words.endswith(" % of the speed of a same-sized copy.")


def test_share_of_copy_speed_is_copy_time_over_kernel_time(gpu_copy):
    for name, ms in {"copy": 4.0, "triton": 5.0, "compiled": 15.0}.items():
        with_times(gpu_copy, ms, implementation=name)
    assert sentence_of("lrpe_copy", gpu_copy).endswith(
        ": memory-bound, at 80.0 % of the speed of a same-sized copy."
    )
    assert sentence_of("lrpe_over", gpu_copy).startswith(
        "Triton over compiled (from 8,192 positions): 3.00x forward. Backward: 3.00x."
    )


def test_speedup_of_phases_and_small_shapes_is_not_mixed(gpu_copy):
    for name, ms in {"triton": 5.0, "compiled": 15.0}.items():
        with_times(gpu_copy, ms, implementation=name)
    with_times(gpu_copy, 10.0, implementation="compiled", phase="backward")
    with_times(gpu_copy, 4.0, implementation="compiled", shape="4x4x4", phase="backward")
    frame = gpu_copy.frames["lrpe"]
    loaded = having(frame, **TRITON, shape="4x4x4", phase="forward").index
    gpu_copy.frames["lrpe"] = frame.assign(marks=None, reference=1.0)
    gpu_copy.frames["lrpe"].loc[loaded, "marks"] = "loaded"
    words = sentence_of("lrpe_over", gpu_copy)
    assert "3.00x forward. Backward: 2.00x." in words
    assert f"Smaller shapes: 0.80x at least, {len(loaded)} of " in words
    assert words.endswith(" unresolved or marked.")


def test_speedups_apart_by_extra_tokens_have_their_own_ranges(gpu_copy):
    with_times(gpu_copy, 5.0, **TRITON)
    with_times(gpu_copy, 15.0, implementation="compiled")
    forward = {"implementation": "compiled", "phase": "forward"}
    with_times(gpu_copy, 20.0, **forward, extra_tokens=0)
    with_times(gpu_copy, 22.0, **forward, extra_tokens=0, shape="32768")
    assert sentence_of("lrpe_over", gpu_copy).startswith(
        "Triton over compiled (from 8,192 positions): 4.00x to 4.40x forward without extra tokens."
        " Forward with 10 extra tokens: 3.00x. Backward: 3.00x."
    )
    gpu_copy.derived.clear()
    with_times(gpu_copy, 21.0, **forward, extra_tokens=10, shape="32768")
    assert "): 3.00x to 4.40x forward. Backward: 3.00x." in sentence_of("lrpe_over", gpu_copy)


def test_shares_of_a_copy_carry_the_marks_of_both_rows(gpu_copy):
    frame = gpu_copy.frames["lrpe"].assign(marks=None, reference=1.0)
    copy = having(frame, implementation="copy", phase="forward", shape="4x4x4").index
    frame.loc[copy, "marks"] = "contradicts"
    gpu_copy.frames["lrpe"] = frame
    table = L1.make(gpu_copy)[0]
    shares = next(c for c in table.columns if c.header == "Triton, cached angles (% of copy)")
    assert {cell.marks for cell in shares.cells} == {(), ("contradicts",)}
    assert "no finding rests on it." in marks.legend(table.cells)


def test_every_time_and_rate_of_a_marked_row_has_its_sign(gpu_copy):
    frame = gpu_copy.frames["lrpe"].assign(marks=None, reference=1.0)
    rows = having(frame, **TRITON, phase="forward", shape="4x4x4", extra_tokens=0).index
    frame.loc[rows, "marks"] = "contradicts"
    gpu_copy.frames["lrpe"] = frame
    for table, number in ((L1.make(gpu_copy)[0], 5), (HOST.make(gpu_copy)[0], 3)):
        ours = [
            c for c in table.columns if c.header.startswith(("Triton (", "Triton,", "Triton o"))
        ]
        ours = [c for c in ours if "cached" not in c.header]
        line = next(i for i, cell in enumerate(table.columns[1].cells) if cell.words == "4x4x4")
        assert len(ours) == number, [c.header for c in ours]
        assert all(column.cells[line].marks == ("contradicts",) for column in ours)


def test_finding_states_positions_with_a_longer_launch(gpu_copy):
    with_times(gpu_copy, 5.0, **TRITON)
    for shape, phase, ms in (("4x4x4", "forward", 1.0), ("4x4x4", "backward", 2.0)):
        with_times(gpu_copy, ms, **TRITON, shape=shape, phase=phase)
    words = sentence_of("lrpe_host", replace_rows(gpu_copy, host_ms=3.0))
    assert words == (
        "Up to 64 positions forward and backward, Triton takes longer to launch than to run."
    )


def test_longer_launch_must_hold_with_the_host_at_its_best(gpu_copy):
    with_times(gpu_copy, 5.0, **TRITON)
    with_times(gpu_copy, 1.0, **TRITON, shape="4x4x4")
    with_times(gpu_copy, 2.0, **TRITON, shape="4x4x4", phase="backward")
    slow = replace_rows(gpu_copy, host_ms=3.0, host_reference=2.0)
    assert sentence_of("lrpe_host", slow) == (
        "Up to 64 positions forward, Triton takes longer to launch than to run."
    )
    slow.derived.clear()
    assert state(FINDINGS["lrpe_host"], replace_rows(slow, host_reference=3.0)) is None


def test_note_says_where_the_copy_dips(gpu_copy):
    assert "dips" not in SECTION.head(gpu_copy).notes
    with_times_scaled(gpu_copy, 1.5, implementation="copy", shape="128x128")
    gpu_copy.derived.clear()
    assert "Above 100 % the copy dips, to " in SECTION.head(gpu_copy).notes


def test_cached_angles_finding_states_speed_and_memory(gpu_copy):
    frame = gpu_copy.frames["lrpe"]
    for name, ms, peak in (("triton", 4.0, 200.0), ("triton_cached", 5.0, 300.0)):
        with_times(gpu_copy, ms, implementation=name)
        frame.loc[frame["implementation"] == name, "peak_mib"] = peak
    words = sentence_of("lrpe_cached", gpu_copy)
    assert (
        "not pay (from 8,192 positions): 0.80x the speed." in words
        and "up to 50.0 % more memory" in words
    )


@pytest.mark.parametrize("answer", ["both", "bytes", "shares"])
def test_summary_sentence_has_at_most_20_words(answer):
    words = sentence_of("lrpe_copy", CASES["lrpe_copy"][answer]())
    assert len([word for word in words.split() if word != "%"]) <= 20, words


def test_cpu_finding_states_the_speedup_of_compilation(cpu):
    words = sentence_of("lrpe_copy", cpu)
    assert words.startswith("md_lrpe_cosine, compiled (float32, 1,024 positions): ")
    assert sentence_of("lrpe_over", cpu).startswith("Compiled over PyTorch (1,024 positions): ")
    stated = {"lrpe_copy", "lrpe_over"}
    assert all(state(FINDINGS[name], cpu) is None for name in set(FINDINGS) - stated)
    assert "Triton" not in markdown(SECTION.head(cpu))


def test_head_table_has_shapes_with_and_without_extra_tokens(gpu):
    frame = SECTION.head(gpu).frame
    assert set(zip(frame["shape"], frame["extra tokens"], strict=True)) >= {
        (shape, extra) for shape in ("32768", "128x128", "32x32x32", "4x4x4") for extra in (0, 10)
    }
    assert len(frame) <= 12 and frame["positions"].is_monotonic_increasing
    cell = frame.loc[frame["shape"] == "32768", "forward (GB/s)"].iloc[0]
    rate, share = cell.removesuffix(" %)").replace(",", "").split(" (")
    assert float(rate) == pytest.approx(0.96 * 4237, rel=0.01)
    assert float(share) == pytest.approx(96, abs=1)


def test_table_l1_has_shares_and_speedups_per_cell(gpu):
    forward, backward = L1.make(gpu)
    assert len(forward.frame) == len(backward.frame) == 16
    line = forward.frame[forward.frame["shape"] == "32768"].iloc[0]
    assert line["copy (GB/s)"].startswith("4,2") and line["Triton (% of copy)"].startswith(
        ("95.", "96.")
    )
    assert line["Triton over compiled"].startswith("3.") and "Triton over PyTorch" in line.index


def test_failed_accuracy_gate_withholds_times_and_ratios(gpu_copy):
    frame = gpu_copy.frames["lrpe"]
    rows = having(frame, **TRITON, shape="32768", extra_tokens=0, phase="forward").index
    frame.loc[rows, "max_error"] = 1.0
    table = L1.make(gpu_copy)[0].frame
    line = table[(table["shape"] == "32768") & (table["extra tokens"] == 0)].iloc[0]
    assert line["Triton (ms)"] == "gate failed, withheld"
    assert line["Triton (GB/s)"] == line["Triton (% of copy)"] == "–"
    assert line["Triton over compiled"] == "withheld"
    gates = GATES.make(gpu_copy)[0].frame.set_index("implementation")
    assert gates.loc["Triton", "passed"] == "31 of 32"
    assert gates.loc["compiled", "passed"] == "32 of 32"


def test_tables_l1_and_l2_show_out_of_memory(gpu_copy):
    frame = gpu_copy.frames["lrpe"]
    rows = having(frame, implementation="eager", shape="32768", extra_tokens=10).index
    frame.loc[rows, ["status", "requested_bytes", "free_bytes"]] = ["oom", 2**31, 2**30]
    frame.loc[rows, ["median_ms", "rounds_ms", "peak_mib"]] = None
    for table, column in ((L1, "PyTorch (ms)"), (L2, "PyTorch (MiB)")):
        lines = table.make(gpu_copy)[0].frame
        cell = lines[(lines["shape"] == "32768") & (lines["extra tokens"] == 10)][column].iloc[0]
        assert cell == "OOM (asked 2.0 GiB, 1.0 GiB free)"


def test_table_l2_shows_each_peak_beside_its_closed_form(gpu):
    line = L2.make(gpu)[0].frame.set_index(["shape", "extra tokens"]).loc[("32768", 0)]
    assert line["Triton (MiB)"] == "3,491" and line["Triton, closed form (MiB)"] == "3,456"


def test_kernel_tests_are_shown_without_timed_rows(gpu_copy):
    assert len(GATES.make(gpu_copy)) == 2
    del gpu_copy.frames["lrpe"]
    (checks,) = GATES.make(gpu_copy)
    assert checks.caption == "Kernel tests, largest errors; 8 of 8 passed"
    assert L1.make(gpu_copy) == L2.make(gpu_copy) == [] and SECTION.head(gpu_copy) is None
    assert not any(state(finding, gpu_copy) for finding in SECTION.findings)


def test_figure_title_states_dtype_and_positions(gpu):
    title = figure(gpu, Pen(LIGHT)).get_suptitle()
    assert title.startswith(
        "md_lrpe_cosine from 8,192 positions (Triton, bf16, 1 axis, 0 extra tokens)"
    )
    assert "forward" in title and "%" in title


def test_figure_title_includes_unresolved_shares_near_copy_speed(gpu_copy):
    frame, at = gpu_copy.frames["lrpe"], {"shape": "32768", "extra_tokens": 0, "phase": "forward"}
    (copy,), (ours,) = (
        having(frame, **at, implementation=name).index for name in ("copy", "triton")
    )
    rounds = [float(ms) for ms in frame.loc[copy, "rounds_ms"].split(";")]
    faster = [ms / (1.05 if number % 2 else 1.0) for number, ms in enumerate(rounds)]
    frame.loc[ours, "rounds_ms"] = ";".join(map(repr, faster))
    frame.loc[ours, "median_ms"] = statistics.median(faster)
    (over,) = averaged(gpu_copy, "lrpe", *pair_of("triton", "copy"), **at)["ratio"]
    assert resolved(gpu_copy, "lrpe", *pair_of("triton", "copy")).index.isin([ours]).sum() == 0
    title = " ".join(figure(gpu_copy, Pen(LIGHT)).get_suptitle().split())
    assert f"to {percent(over)}, backward" in title


def pair_of(*names):
    return tuple(Series.of(implementation=name) for name in names)


def test_dip_of_the_copy_is_labelled(gpu, gpu_copy):
    words = [[text.get_text() for text in a.texts] for a in figure(gpu, Pen(LIGHT)).axes]
    assert words == [[], []]
    slow = with_times_scaled(
        gpu_copy, 2.0, phase="forward", implementation="copy", shape="16384", extra_tokens=0
    )
    words = [[text.get_text() for text in a.texts] for a in figure(slow, Pen(LIGHT)).axes]
    assert words == [["dip of the copy\nat 16k"], []]


def test_y_axis_covers_the_backward_panel(gpu_copy):
    drawn = figure(with_times_scaled(gpu_copy, 3.0, phase="forward"), Pen(LIGHT))
    highest = max(line.get_ydata().max() for line in drawn.axes[1].lines)
    assert drawn.axes[1].get_ylim()[1] >= highest


def test_figure_is_omitted_with_one_number_of_positions(cpu):
    assert figure(cpu, Pen(LIGHT)) is None


@pytest.mark.parametrize("implementation", ["triton", "copy"])
def test_section_works_without_copy_rows_or_kernel_rows(gpu_copy, implementation):
    frame = gpu_copy.frames["lrpe"]
    gpu_copy.frames["lrpe"] = frame[frame["implementation"] != implementation]
    assert len(SECTION.head(gpu_copy).frame) and len(L1.make(gpu_copy)) == 2
    assert figure(gpu_copy, Pen(LIGHT)) is not None


def test_host_and_loop_times_appear_only_if_measured():
    forward, backward = HOST.make(synthetic.gpu_evidence())
    assert "forward" in forward.caption and "extra tokens 0" in backward.caption
    # The copy that serves as baseline has a host time as well.
    assert {"copy, host (ms)", "Triton, loop (ms)"} <= set(forward.frame)
    assert HOST.make(synthetic.cpu_evidence()) == []
