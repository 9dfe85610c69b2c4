"""Report section on md_lrpe_cosine, a position embedding: findings, tables and figure.

The head table is the one table of the section in the write-up; L1 and L2 are tables on its page.
"""

import pytest
import synthetic
from finding_checks import assert_answers_reached

from lmperf.reporting.evidence import having
from lmperf.reporting.figures import LIGHT, Pen
from lmperf.reporting.findings import state
from lmperf.reporting.markdown import markdown
from lmperf.reporting.sections.lrpe import SECTION
from lmperf.reporting.sections.lrpe.figure import figure

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
        "backward": gpu_with_times_scaled(0.96, **TRITON, phase="backward"),
        "shares": synthetic.gpu_evidence,
    },
    "lrpe_cached": {
        "costs": synthetic.gpu_evidence,
        "pays": gpu_with_times_scaled(2.0, **TRITON),
        "either": gpu_with_times_scaled(2.0, **TRITON, shape="32768"),
    },
}


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


def test_findings_give_every_declared_answer():
    assert_answers_reached(SECTION.findings, CASES)


def test_copy_speed_finding_states_dtype_and_positions(gpu):
    words = sentence_of("lrpe_copy", gpu)
    assert words.startswith("md_lrpe_cosine, Triton (bf16, from 8,192 positions): 9")
    assert " % of copy speed; " in words and words.endswith(" over compiled.")


def test_share_of_copy_speed_is_copy_time_over_kernel_time(gpu_copy):
    for name, ms in {"copy": 4.0, "triton": 5.0, "compiled": 15.0}.items():
        with_times(gpu_copy, ms, implementation=name)
    assert sentence_of("lrpe_copy", gpu_copy).endswith(
        ": 80.0 % of copy speed; 3.00x over compiled."
    )


def test_cached_angles_finding_states_speed_and_memory(gpu_copy):
    frame = gpu_copy.frames["lrpe"]
    for name, ms, peak in (("triton", 4.0, 200.0), ("triton_cached", 5.0, 300.0)):
        with_times(gpu_copy, ms, implementation=name)
        frame.loc[frame["implementation"] == name, "peak_mib"] = peak
    words = sentence_of("lrpe_cached", gpu_copy)
    assert "0.80x the speed" in words and "50.0 % more memory" in words


@pytest.mark.parametrize("answer", ["both", "backward", "shares"])
def test_summary_sentence_has_at_most_20_words(answer):
    words = sentence_of("lrpe_copy", CASES["lrpe_copy"][answer]())
    assert len([word for word in words.split() if word != "%"]) <= 20, words


def test_cpu_finding_states_the_speedup_of_compilation(cpu):
    words = sentence_of("lrpe_copy", cpu)
    assert words.startswith("md_lrpe_cosine, compiled (float32, 1,024 positions): ")
    assert "over PyTorch" in words
    assert all(state(FINDINGS[name], cpu) is None for name in set(FINDINGS) - {"lrpe_copy"})
    assert "Triton" not in markdown(SECTION.head(cpu))


def test_head_table_omits_a_peak_column_without_peaks(cpu_copy):
    frame = cpu_copy.frames["lrpe"]
    frame.loc[having(frame, implementation="compiled").index, "peak_mib"] = None
    headers = list(SECTION.head(cpu_copy).frame)
    assert "peak, PyTorch (MiB)" in headers and "peak, compiled (MiB)" not in headers


def test_head_table_has_shapes_with_and_without_extra_tokens(gpu):
    frame = SECTION.head(gpu).frame
    assert set(zip(frame["shape"], frame["extra tokens"], strict=True)) >= {
        (shape, extra) for shape in ("32768", "128x128", "32x32x32", "4x4x4") for extra in (0, 10)
    }
    assert len(frame) <= 12 and frame["positions"].is_monotonic_increasing
    cell = frame.loc[frame["shape"] == "32768", "forward (GB/s, % of copy)"].iloc[0]
    rate, share = cell.removesuffix(" %)").replace(",", "").split(" (")
    assert float(rate) == pytest.approx(0.96 * 4237, rel=0.01)
    assert float(share) == pytest.approx(96, abs=1)


def test_table_l1_has_shares_and_speedups_per_cell(gpu):
    forward, backward = L1.make(gpu)
    assert len(forward.frame) == len(backward.frame) == 16
    line = forward.frame[forward.frame["shape"] == "32768"].iloc[0]
    assert line["copy (GB/s)"].startswith("4,2") and line["Triton (% of copy)"].startswith("96.")
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
    assert title.startswith("md_lrpe_cosine from 8,192 positions (Triton, bf16)")
    assert "forward" in title and "%" in title


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
