"""Report section on profiles: findings, kernel tables and figure.

The head table is the one table of the section in the write-up; P1 to P4 are tables on its page.
"""

from dataclasses import replace

import pandas as pd
import pytest
import synthetic
from finding_checks import assert_answers_reached

from lmperf.reporting import pages
from lmperf.reporting.evidence import having
from lmperf.reporting.figures import LIGHT, themed
from lmperf.reporting.findings import state
from lmperf.reporting.sections import compose
from lmperf.reporting.sections.profiles import SECTION
from lmperf.reporting.sections.profiles.findings import FINDINGS
from lmperf.reporting.sections.profiles.kernel_names import shortened
from lmperf.reporting.sections.profiles.rows import CASE, by_class, kernels, usual
from lmperf.reporting.sections.profiles.tables import PUBLISHED_TRACE, class_table, kernel_tables


def confirmed(evidence, factor=1.0, **lacking):
    """The evidence with E1 rows of all profiled cases, ``factor`` times as long as their wall time.

    lacking: column -> value of the E1 rows to leave out.
    """
    walls = evidence.frame("profiles").drop_duplicates(CASE)[[*CASE, "wall_ms"]]
    rows = walls.drop(columns="wall_ms").assign(status="ok", median_ms=factor * walls["wall_ms"])
    frame = pd.concat([rows, evidence.frames["end_to_end"]]).drop_duplicates(CASE)
    frame = frame.drop(having(frame, **lacking).index) if lacking else frame
    return replace(evidence, frames={**evidence.frames, "end_to_end": frame})


def with_changed_rows(change):
    """GPU evidence with the rows of the benchmark ``profiles`` replaced by ``change(frame)``."""
    evidence = synthetic.gpu_evidence()
    frames = {**evidence.frames, "profiles": change(evidence.frames["profiles"].copy())}
    return confirmed(replace(evidence, frames=frames))


def with_kernel(part, ms, **where):
    """A function that makes evidence in which the kernels named ``part`` take ``ms`` each."""

    def change(frame):
        rows = frame["name"].str.contains(part, regex=False, na=False)
        for column, value in where.items():
            rows &= frame[column] == value
        frame.loc[rows, "total_ms"] = ms
        return frame

    return lambda: with_changed_rows(change)


def with_columns(**columns):
    """A function that makes evidence with these columns of the benchmark ``profiles``."""
    return lambda: with_changed_rows(lambda frame: frame.assign(**columns))


COMPILED = {"implementation": "compiled_blocks"}
CASES = {
    "softmax_share": {
        "moves": synthetic.gpu_evidence,
        "is": with_kernel("softmax", 0.001, table="attention"),
    },
    "compiled_kernels": {
        "around": synthetic.gpu_evidence,
        "is": with_kernel("gemm", 900.0, **COMPILED),
    },
    "compiled_left": {
        "matmuls": synthetic.gpu_evidence,
        "other": with_kernel("per_fused", 900.0, **COMPILED),
    },
    "compiled_launches": {
        "fewer": synthetic.gpu_evidence,
        "more": lambda: with_changed_rows(
            lambda f: f.assign(instances=f["implementation"].eq("compiled_blocks") * 99 + 1)
        ),
    },
    "device_idle": {
        "waits": with_columns(wall_ms=1e4),
        "busy": with_columns(wall_ms=1.0),
    },
    "matmul_rule": {"is": synthetic.gpu_evidence},
}


@pytest.mark.slow
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
        ("softmax_share", "60.0 % of plain attention's forward for 2.0 % of its FLOPs"),
        ("compiled_kernels", "matmuls from 40.0 to 30.0 ms a train step"),
        ("compiled_kernels", "Elementwise, reductions and copies change from 10.0 to 4.00 ms"),
        (
            "compiled_left",
            "Compiled by block, a train step spends 88.2 % of its kernel time in matm",
        ),
        ("compiled_left", "Next: softmax, norms, reductions, 8.8 %."),
        (
            "matmul_rule",
            "in a train step. Here (eager): 80.0 % in bf16 autocast, 80.0 % in float32.",
        ),
    ],
)
def test_findings_sum_kernel_times(name, numbers):
    finding = next(finding for finding in FINDINGS if finding.name == name)
    assert numbers in state(finding, with_changed_rows(made_up)).sentence


def test_step_with_most_techniques_stands_for_compiled_ones():
    def with_sdpa(frame):
        frame = made_up(frame)
        rows = frame[frame["implementation"] == "compiled_blocks"]
        rows = rows.assign(implementation="sdpa_compiled_blocks")
        rows["total_ms"] = rows["total_ms"].where(rows["total_ms"] != 30, 2.0)
        return pd.concat([rows, frame], ignore_index=True)

    finding = next(finding for finding in FINDINGS if finding.name == "compiled_left")
    sentence = state(finding, with_changed_rows(with_sdpa)).sentence
    assert sentence.startswith("With SDPA, compiled by block, a train step spends 50.0 % of its")
    assert "in one class: softmax, norms, reductions (large" in sentence
    assert sentence.endswith("Matmuls take 33.3 %.")


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


def train_step_of(frame):
    """The kernels of an eager float32 train step of size large."""
    case = dict(size="large", dtype="float32", implementation="eager", phase="train_step")
    return frame[(frame["table"] == "kernel") & (frame[list(case)] == case).all(axis=1)]


def test_head_table_has_ms_of_a_train_step_by_class(gpu):
    table = SECTION.head(gpu).frame
    assert table["implementation"].tolist() == [
        "float32, eager",
        "bf16 autocast, eager",
        "bf16 autocast, compiled by block",
        "bf16 autocast, Triton",
    ]
    rows = train_step_of(gpu.frames["profiles"])
    whole = table.drop(columns="implementation").astype(float).sum(axis=1)
    assert whole[0] == pytest.approx(rows["total_ms"].sum(), rel=0.01)


def test_table_p2_has_launches_and_idle_time():
    evidence = with_columns(wall_ms=1e4)()
    (table,) = class_table(evidence)
    rows = train_step_of(evidence.frames["profiles"])
    line = table.frame[(table.frame["size"] == "large") & (table.frame["dtype"] == "float32")]
    line = line[line["phase"] == "train step"].iloc[0]
    assert float(str(line["launches"]).replace(",", "")) == rows["instances"].sum()
    assert float(line["idle (%)"]) == pytest.approx(100 - rows["total_ms"].sum() / 100, abs=0.1)


def test_wall_time_is_withheld_where_e1_differs():
    near, apart = confirmed(synthetic.gpu_evidence(), 1.09), confirmed(synthetic.gpu_evidence(), 2)
    assert not by_class(near)["withheld"].any()
    assert by_class(apart)["withheld"].all() and by_class(apart)["idle"].isna().all()
    (table,) = class_table(apart)
    assert table.frame["wall time (ms)"].eq("withheld").all()
    assert "Withheld: where single calls in E1 differ" in table.notes
    assert "Wall time is withheld there" in SECTION.head(apart).notes
    assert "Withheld" not in class_table(near)[0].notes


def test_wall_time_without_e1_is_shown_if_kernels_fill_it():
    evidence = confirmed(synthetic.gpu_evidence(), size=["small", "large", "3.4B"])
    cases = by_class(evidence)
    assert set(cases.loc[cases["withheld"], "dtype"]) == {"autocast_bfloat16"}
    assert set(cases.loc[~cases["withheld"], "dtype"]) == {"float32"}


def test_no_step_is_called_busy_while_one_is_withheld():
    evidence = confirmed(synthetic.gpu_evidence(), size=["small", "large", "3.4B"])
    idle = next(finding for finding in FINDINGS if finding.name == "device_idle")
    assert state(idle, evidence) is None


def test_head_table_says_what_it_leaves_out(gpu):
    assert "Left out" not in SECTION.head(gpu).notes
    unknown = with_changed_rows(
        lambda f: f.replace({"name": {"Memcpy DtoD (Device -> Device)": "mystery"}})
    )
    head = SECTION.head(unknown)
    assert "Left out: kernels without a class, at most " in head.notes
    assert len(head.columns) <= 7


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
def test_figure_bars_end_at_the_wall_time_in_ms(make):
    evidence = confirmed(make())
    (axis,) = themed(lambda pen: SECTION.figure(evidence, pen), LIGHT).axes
    ends = max(patch.get_x() + patch.get_width() for patch in axis.patches)
    cases = usual(evidence)
    assert ends == pytest.approx(cases["wall_ms"].max())
    waits = axis.containers[-1]
    assert [round(bar.get_width(), 6) for bar in waits.patches] == [
        round(case.wall_ms - case.total_ms, 6)
        for case in cases.itertuples()
        if case.phase == "train_step" or len(set(cases["implementation"])) == 1
    ]


def test_figure_bar_without_wall_time_ends_with_its_kernels():
    evidence = confirmed(synthetic.gpu_evidence(), 2)
    (axis,) = themed(lambda pen: SECTION.figure(evidence, pen), LIGHT).axes
    ends = max(patch.get_x() + patch.get_width() for patch in axis.patches)
    assert ends == pytest.approx(having(usual(evidence), phase="train_step")["total_ms"].max())
    assert "withheld" in axis.get_xlabel()


@pytest.mark.parametrize("make", [synthetic.gpu_evidence, synthetic.cpu_evidence])
def test_figure_and_chart_say_where_the_wall_time_is_not_known(make):
    def words_of(evidence):
        drawn = themed(lambda pen: SECTION.figure(evidence, pen), LIGHT)
        ends = [text.get_text() for text in drawn.axes[0].texts if "known" in text.get_text()]
        return ends, drawn

    assert words_of(confirmed(make()))[0] == []
    withheld = confirmed(make(), 2)
    ends, drawn = words_of(withheld)
    (axis,) = drawn.axes
    assert len(ends) == len(axis.get_yticklabels())
    edge = axis.get_window_extent().x1
    assert all(text.get_window_extent().x1 <= edge for text in axis.texts)
    (spec,) = SECTION.charts(withheld)
    assert all("known" in record["value"] for record in spec["data"]["values"])


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


@pytest.mark.slow
def test_stale_profiles_are_marked_in_every_table_and_sentence(gpu):
    frame = gpu.frames["profiles"]
    evidence = replace(gpu, frames={**gpu.frames, "profiles": frame.assign(stale=True)})
    made = compose("profiles", evidence, drawn=False)
    plain = {"phase", "name", "class", "rank", *CASE}
    for name in ("P1", "P2", "P3"):
        for table in made.parts[name]:
            cells = [
                cell
                for column in table.columns
                for cell in column.cells
                if column.name not in plain and cell.value is not None
            ]
            assert cells and all(cell.marks == ("stale",) for cell in cells)
    for statement in made.statements:
        assert "stale" in str(statement)
    assert not any("stale" in str(s) for s in compose("profiles", gpu, drawn=False).statements)
