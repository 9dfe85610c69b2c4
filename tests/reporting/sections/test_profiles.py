"""Report section on profiles: findings, kernel tables and figure.

The head table is the one table of the section in the write-up; P1 to P4 are tables on its page.
"""

from dataclasses import replace

import pytest
import synthetic
from finding_checks import assert_answers_reached

from lmperf.reporting import pages
from lmperf.reporting.figures import LIGHT, themed
from lmperf.reporting.findings import state
from lmperf.reporting.sections import compose
from lmperf.reporting.sections.profiles import SECTION
from lmperf.reporting.sections.profiles.findings import FINDINGS
from lmperf.reporting.sections.profiles.kernel_names import shortened
from lmperf.reporting.sections.profiles.rows import CASE, kernels
from lmperf.reporting.sections.profiles.tables import PUBLISHED_TRACE, class_table, kernel_tables


def with_changed_rows(change):
    """GPU evidence with the rows of the benchmark ``profiles`` replaced by ``change(frame)``."""
    evidence = synthetic.gpu_evidence()
    frames = {**evidence.frames, "profiles": change(evidence.frames["profiles"].copy())}
    return replace(evidence, frames=frames)


CASES = {
    "softmax_share": {"is": synthetic.gpu_evidence},
    "compiled_kernels": {"is": synthetic.gpu_evidence},
    "matmul_rule": {"is": synthetic.gpu_evidence},
}


def test_findings_give_every_declared_answer():
    assert_answers_reached(FINDINGS, CASES)


# Implementation -> part of a kernel's name -> its milliseconds in a train step; others take 0 ms.
MADE_UP = {
    "eager": {"gemm_f32f32_f32f32_f32_tn_n_tilesize128": 40, "Memcpy": 5, "softmax": 3, "Mul": 1},
    "compiled_blocks": {"tilesize128": 30, "per_fused": 3, "poi_fused": 1},
}


def made_up(frame):
    steps = (frame["phase"] == "train_step") & (frame["table"] == "kernel")
    frame.loc[steps, "total_ms"] = 0.0
    for implementation, times in MADE_UP.items():
        for part, ms in times.items():
            named = frame["name"].str.contains(part, regex=False)
            rows = steps & named & (frame["implementation"] == implementation)
            frame.loc[rows, "total_ms"] = float(ms)
    parts = frame["table"] == "attention"
    frame.loc[parts, "total_ms"] = frame["name"].map({"scores": 1.0, "softmax": 3.0, "values": 1.0})
    return frame


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("softmax_share", "60.0 % of plain attention's forward time, 2.0 % of its FLOPs"),
        ("compiled_kernels", "take 34.0 ms, eager 50.0 ms"),
        ("compiled_kernels", "matmuls 30.0 against 40.0 ms"),
        ("compiled_kernels", "elementwise, reductions and copies 4.00 against 10.0 ms"),
        ("matmul_rule", "80.0 % in bf16 autocast"),
    ],
)
def test_findings_sum_kernel_times(name, numbers):
    finding = next(finding for finding in FINDINGS if finding.name == name)
    assert numbers in state(finding, with_changed_rows(made_up)).sentence


def test_findings_and_figure_are_omitted_if_all_rows_failed():
    def failed(frame):
        rows = frame.drop_duplicates(CASE)[CASE]
        return rows.assign(status="oom", requested_bytes=2**31, free_bytes=2**30)

    evidence = with_changed_rows(failed)
    assert all(state(finding, evidence) is None for finding in FINDINGS)
    assert SECTION.head(evidence) is None
    assert SECTION.figure(evidence, None) is None
    (table,) = class_table(evidence)
    assert table.frame["status"].eq("OOM (asked 2.0 GiB, 1.0 GiB free)").all()
    made = {t.id: len(t.make(evidence)) for t in SECTION.tables}
    assert made == {"P1": 0, "P2": 1, "P3": 0, "P4": 1}


def test_class_shares_of_a_phase_sum_its_kernel_times(gpu):
    table = SECTION.head(gpu).frame
    assert len(table) <= 12
    line = table[(table["dtype"] == "float32") & (table["phase"] == "forward")].iloc[0]
    times = synthetic.profiles.kernels_of("eager", 1, "forward", device=True)
    share = 80 / sum(times.values())
    assert float(line["matmul (%)"]) == pytest.approx(100 * share, abs=0.05)
    total = table[[name for name in table if name.endswith("(%)") and "time" not in name]]
    assert total.astype(float).sum(axis=1).to_numpy() == pytest.approx(100, abs=0.3)


def test_unclassified_kernels_add_a_column_if_there_are_any(gpu):
    assert "no class (%)" not in SECTION.head(gpu).frame
    unknown = with_changed_rows(
        lambda f: f.replace({"name": {"Memcpy DtoD (Device -> Device)": "mystery"}})
    )
    assert "no class (%)" in SECTION.head(unknown).frame


def test_table_p2_shows_the_longest_kernels_and_sums_the_rest(gpu):
    first = next(t for t in kernel_tables(gpu) if "small, float32" in t.caption)
    step = first.frame[first.frame["phase"] == "train step"]
    assert len(step) == 13 and step["kernel"].iloc[-1] == "4 others"
    assert step["time (%)"].astype(float).sum() == pytest.approx(100, abs=0.6)
    rows = kernels(gpu)
    own = rows[(rows["size"] == "small") & (rows["dtype"] == "float32")]
    shortest = own[own["phase"] == "train_step"].nsmallest(4, "total_ms")
    assert float(step["total (ms)"].iloc[-1]) == pytest.approx(shortest["total_ms"].sum(), 1e-2)
    assert step["median (µs)"].iloc[-1] == "–"


def test_table_p3_shows_softmax_share_of_time_and_of_flops(gpu):
    (table,) = compose("profiles", gpu, drawn=False).parts["P3"]
    line = table.frame[(table.frame["size"] == "large") & (table.frame["dtype"] == "float32")]
    assert line["softmax: time (%)"].item() == "41.0"
    assert line["softmax: FLOPs (%)"].item() == "2.0"


def test_only_the_published_trace_is_a_link(gpu, templates):
    page = pages.page(gpu, compose("profiles", gpu, drawn=False), templates)
    assert f"[{PUBLISHED_TRACE}](traces/{PUBLISHED_TRACE})" in page
    assert page.count("](traces/") == 1


def test_cpu_page_shows_operators_and_no_kernels(cpu, templates):
    page = pages.page(cpu, compose("profiles", cpu, drawn=False), templates)
    assert "| aten::mm |" in page and "kernel time" not in page and "nsys" not in page


@pytest.mark.parametrize("make", [synthetic.gpu_evidence, synthetic.cpu_evidence])
def test_figure_bars_end_at_100_percent(make):
    evidence = make()
    figure = themed(lambda pen: SECTION.figure(evidence, pen), LIGHT)
    (axis,) = figure.axes
    ends = {round(patch.get_x() + patch.get_width()) for patch in axis.patches}
    assert max(ends) == 100


def test_different_kernels_have_different_short_names():
    gemm = "sm80_xmma_gemm_f32f32_f32f32_f32_{}_n_tilesize{}_stage3_warpsize2_ffma_execute_kernel"
    names = [gemm.format(layout, tile) for layout in ("nn", "tn") for tile in ("128x64", "64x64")]
    multiply = "void at::native::elementwise_kernel<{}, at::native::BinaryFunctor<{}, MulFunctor> >"
    names += [multiply.format(n, t) for n in (2, 4) for t in ("float", "c10::BFloat16")]
    names += ["void f<int, float>(int)", "void f<float, int>(int)", "aten::mul", "aten::mul_"]
    short = shortened(names)
    assert set(short) == set(names) and len(set(short.values())) == len(names)
    assert short == shortened(reversed(names))
    assert short["aten::mul"] == "aten::mul"
    assert short[names[0]].endswith("(tilesize128x64, nn)")
