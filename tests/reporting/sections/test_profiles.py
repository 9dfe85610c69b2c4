"""Profiles: sums by class, the steps that the first page compares, and what a sentence needs."""

import planted
import pytest

from lmperf.reporting.sections import section

KERNELS = {
    "matmul": "nvjet_sm90_tst",
    "attention": "flash_fwd_kernel",
    "elementwise": "elementwise_kernel",
    "reduction": "softmax_warp_forward",
    "optimizer": "multi_tensor_apply_kernel",
    "copy": "Memcpy DtoD",
}
SINGLE, AUTOCAST = "float32", "autocast_bfloat16"
LARGE = {"size": "0.97B", "context_length": 512, "batch": 4}
PARAMETERS = 969_411_840


def case(dtype=SINGLE, wall=None, **classes):
    """The kernels of a step. classes: class -> ms of its kernel, which runs ten times."""
    shared = {**LARGE, "dtype": dtype, "implementation": "eager", "phase": "train_step"}
    shared |= {"table": "kernel", "wall_ms": wall or sum(classes.values()), "instances": 10}
    return [
        planted.row("profiles", name=KERNELS[name], total_ms=ms, **shared)
        for name, ms in classes.items()
    ]


def of(*cases):
    return section(planted.evidence(*(row for rows in cases for row in rows)), "profiles")


def steps(copy):
    """A float32 step of 250 ms with 200 of matmuls, and one in bf16 autocast with 20 of them."""
    return of(case(matmul=200, copy=50), case(AUTOCAST, matmul=20, copy=copy))


def test_cases_sum_kernels_by_class():
    profiles = of(case(matmul=30, attention=5, copy=15, reduction=2, elementwise=8, wall=80))
    step = profiles.cases.one
    assert (step["busy"], step["wall_ms"], step["launches"]) == (60, 80, 50)
    assert (step["moving"], step["around"], step["rest"]) == (25, 10, 30)
    assert step["idle"] == pytest.approx(0.25) and step["matmul_share"] == 0.5


def test_graph_with_bf16_weights_has_its_own_name():
    rows = [row | {"implementation": "graph"} for row in case("bfloat16", matmul=30)]
    tables = planted.page("profiles", planted.evidence(*rows)).tables
    assert any("bf16 weights, CUDA graph" in table.caption for table in tables)
    assert not any("bf16 copies" in table.caption for table in tables)


def test_time_in_e1_has_its_own_signs():
    step = planted.row("end_to_end", 400, implementation="eager", dtype=SINGLE, **LARGE)
    rows = [*case(matmul=100), step]
    tables = planted.page(
        "profiles", planted.evidence(*rows, stale=frozenset({step["key"]}))
    ).tables
    shown = [column for table in tables for column in table.columns if column.header == "E1 (ms)"]
    [[cell]] = [column.cells for column in shown]
    assert (cell.value, cell.marks, cell.row) == (400, ("stale",), step["key"])


def test_longest_kernels_are_ranked_and_the_others_summed():
    names = [f"elementwise_kernel_{n}" for n in range(15)]
    shared = {**LARGE, "table": "kernel", "phase": "forward", "wall_ms": 200, "instances": 2}
    rows = [
        planted.row("profiles", name=name, total_ms=n + 1, max_us=n, min_us=n, **shared)
        for n, name in enumerate(names)
    ]
    longest = of(rows).longest.frame
    assert longest["total_ms"].tolist() == [*range(15, 3, -1), 6]
    assert longest["kernel"].iloc[-1] == "3 others" and longest["rank"].isna().sum() == 1
    assert longest["mean_us"].iloc[-1] == 1000 and longest["share"].sum() == pytest.approx(1)


@pytest.mark.parametrize(("copy", "decides"), [(21, True), (19, False)])
def test_moving_data_decides_below_half_of_a_bf16_step(copy, decides):
    assert steps(copy).moving_decides == decides


def test_step_without_profiled_phases_is_shown_if_there_is_no_other():
    graph = [row | {"implementation": "graph"} for row in case(AUTOCAST, matmul=60, copy=40)]
    assert of(graph).last["implementation"] == "graph"
    assert of(graph, case(matmul=100)).last["implementation"] == "eager"
    said = planted.page("report/time", planted.evidence(*graph)).text
    way = "bf16 autocast, fused, CUDA graph, bf16 copies"
    assert f"**Matmuls take 60 % of the kernel time of a step ({way}).**" in said
    assert "each phase is a pass" not in said
    others = [row | {"phase": "forward"} for row in case(matmul=100)]
    assert of(graph, others).lines.values("phase") == ["train_step"]


def adamw(fraction):
    """A step whose AdamW has a fraction of the speed of a copy of 1,000 GB/s."""
    ms = PARAMETERS * 28 / fraction / 1e9
    rows = case(AUTOCAST, matmul=10, optimizer=ms)
    rate = {"operation": "copy", "load": "burst", "bandwidth_gbps": 1000, "bytes": 1e9}
    return of(rows, [planted.row("ceilings", 1.0, **rate)])


@pytest.mark.parametrize("fraction", [0.31, 0.76, 1.04])
def test_adamw_is_compared_with_a_copy(fraction):
    profiles = adamw(fraction)
    assert profiles.adamw_over_copy == pytest.approx(fraction) and profiles.adamw_bytes == 28


@pytest.mark.parametrize(
    ("wall", "said"), [(109, "Kernels fill at least 92 %"), (200, "fill 100 of *200* ms")]
)
def test_gpu_time_is_held_against_the_same_process(wall, said):
    step = planted.row("end_to_end", 400, implementation="eager", dtype=SINGLE, **LARGE)
    profiles = of(case(matmul=100, wall=wall), [step])
    assert said in " ".join(planted.page("report/time", profiles.evidence).said)


@pytest.mark.parametrize(("bound", "said"), [("host", "*100 (150)*"), ("device", " 100 (150)")])
def test_sum_is_italic_beside_a_step_that_waited(bound, said):
    values = {"implementation": "eager", "dtype": SINGLE, "bound": bound}
    text = planted.page(
        "report/time",
        planted.evidence(*case(matmul=100), planted.row("end_to_end", 150, **values, **LARGE)),
    ).text
    assert said in text and "*100*" not in text


def test_stale_profiles_are_shown_and_conclude_nothing():
    rows = [*case(matmul=200, copy=50), *case(AUTOCAST, matmul=20, copy=40)]
    for stale in (frozenset(), frozenset(row["key"] for row in rows)):
        page = planted.page("report/time", planted.evidence(*rows, stale=stale))
        assert page.tables and page.figures
        assert bool(page.said) == ("**" in page.text) == (not stale)


def test_float32_is_no_bar_beside_tf32():
    profiles = of(case(matmul=600), case("tf32", matmul=200), case(AUTOCAST, matmul=50))
    assert profiles.drawn["dtype"].tolist() == ["tf32", AUTOCAST]
    profiles = of(case(matmul=600), case(AUTOCAST, matmul=50))
    assert profiles.drawn["dtype"].tolist() == [SINGLE, AUTOCAST]
