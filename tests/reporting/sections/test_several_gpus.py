"""What the first page says of several GPUs: which sentence follows from which numbers."""

from __future__ import annotations

import planted
import pytest
from planted_ranks import TWO_H200, collective, evidence, memory, profiled, step

from lmperf.reporting.evidence import Evidence
from lmperf.reporting.sections import section
from lmperf.reporting.sections.distributed import Distributed
from lmperf.reporting.words import NotMeasured
from lmperf.transformer.leaderboard import TWIN

ONE, OTHERS = {"one_rank": 100}, {"overlapped": 60, "ddp": 62}


def sections(*rows: dict[str, str]) -> Distributed:
    return section(evidence(*rows), "distributed")


def first_page(of: Evidence) -> planted.Page:
    return planted.page("report/several_gpus", of)


def steps(**times: float) -> list[dict[str, str]]:
    return [step(name, ms) for name, ms in times.items()]


def batches(few: float, many: float) -> list[dict[str, str]]:
    """Steps of one rank in 100 and 400 ms, and with hooks at these speed-ups."""
    rows = [step("one_rank", 100), step("one_rank", 400, batch=16)]
    rows += [step("overlapped", 100 / few)]
    return [*rows, step("overlapped", 400 / many, batch=16)]


@pytest.mark.parametrize(
    ("ours", "fastest"),
    [
        ({"fully_sharded": 60 / 1.06}, ["fully_sharded"]),
        ({"fully_sharded": 60 / 1.04}, ["fully_sharded", "overlapped"]),
        ({"fully_sharded": 120}, ["overlapped", "ddp"]),
        ({}, ["overlapped", "ddp"]),
    ],
    ids=["faster", "within the noise floor", "slower", "missing"],
)
def test_advice_follows_the_fastest_strategy(ours, fastest):
    assert [*sections(*steps(**ONE, **OTHERS, **ours)).fastest_ways] == fastest


def test_step_that_waits_is_not_ranked():
    rows = steps(**ONE, **OTHERS, fully_sharded=50)
    waiting = sections(*rows, step("fsdp2", 51, bound="host"))
    assert [*waiting.fastest_ways] == ["fully_sharded"] and waiting.gain(4).mean == 2
    with pytest.raises(NotMeasured, match="alone"):
        _ = sections(*steps(one_rank=100, ddp=60)).fastest_ways
    assert [*sections(*rows, step("fsdp2", 51)).fastest_ways] == ["fully_sharded", "fsdp2"]


@pytest.mark.parametrize(("state", "lacks"), [("ok", True), ("oom", False)])
def test_missing_peak_of_fsdp2_is_explained(state, lacks):
    rows = [*steps(**ONE, **OTHERS), step("fsdp2", 51, status=state)]
    assert ("Without a peak" in first_page(evidence(*rows)).text) is lacks


def test_profiled_steps_are_held_against_timed_ones_of_any_gpus():
    timed = step("overlapped", 100, gpus="GPU-1;GPU-2")
    ledger = profiled("overlapped", 120, gpus="GPU-3;GPU-4")
    assert sections(timed, ledger).longer == [(4, pytest.approx(0.2))]


def test_largest_batch_decides():
    rows = [step("ddp", 40, bound="host"), step("overlapped", 60), step("one_rank", 50)]
    more = [step("ddp", 120, batch=16), step("overlapped", 90, batch=16)]
    made = sections(*rows, *more, step("one_rank", 180, batch=16))
    assert [*made.fastest_ways] == ["overlapped"] and made.larger_pays and made.gain(16).mean == 2
    same = first_page(evidence(*rows[:1], step("ddp", 80, batch=16)))
    assert {102400, 51200} <= {*planted.printed(same)}


def test_steps_of_other_gpus_are_not_compared():
    one = step("one_rank", 100, gpus="GPU-9", together="other")
    made = sections(one, *steps(ddp=50, overlapped=100))
    assert [*made.fastest_ways] == ["ddp"] and made.over_one_rank.empty


def computes_less(ms):
    rows = [step("overlapped", 100), step("fully_sharded", 60, peak_mib=26 * 1024)]
    ends = {f"compute{end}_ms": ms for end in ("", "_low", "_high")}
    return [*rows, profiled("overlapped", 100), profiled("fully_sharded", 60, **ends)]


def peaks(name, gib):
    of_hooks = step("overlapped", 50, peak_mib=100 * 1024)
    return [of_hooks, step(name, 50, peak_mib=gib * 1024)]


def third_steps(gib):
    """Buckets of 10 GiB; the peak of the third step with hooks is 15 GiB, and the other is given.
    Those of the second step are 100 and 110 GiB."""
    names = {"overlapped": 15, "ddp": gib}
    third = [memory(name, "peak", of) for name, of in names.items()]
    buckets = memory("ddp", "before_step", 20, gradients_mib=10 * 1024)
    return [*peaks("ddp", 110), *third, buckets]


def second_steps(gib):
    """The same, and compiled steps; at batch 16 their second step peaks at 60 GiB with hooks, and
    the other is given."""
    names = {"overlapped_compiled": 60, "ddp_compiled": gib}
    large = [step(name, 200, batch=16, peak_mib=of * 1024) for name, of in names.items()]
    small = [step(name, 50, peak_mib=60 * 1024) for name in names]
    return [*third_steps(20), *small, *large]


def all_reduces(us):
    """Messages of 1 and 10 kB, 1 and 10 MB; the second one takes as long as given."""
    sizes = {1e3: 10, 1e4: us, 1e6: 40, 1e7: 19}
    calls = [collective("all_reduce", size, of / 1e3) for size, of in sizes.items()]
    return [*steps(overlapped=100), *calls]


def idle(ms, **values):
    """A step that waits takes so long; its GPUs compute for 40 ms and communicate for 50. Another
    one that waits is idle for less, and one that does not wait for more."""
    busy = [step("overlapped", 95, bound="host"), step("ddp", 200)]
    computing = {"overlapped": 44, "ddp": 40, "fsdp2": 40}
    ledger = [profiled(name, 200, compute_ms=of) for name, of in computing.items()]
    return [*busy, step("fsdp2", ms, **{"bound": "host", **values}), *ledger]


def exposing(exposed):
    """A step of which so many ms are communication alone, 80 computation; one GPU takes 140."""
    ledger = profiled("overlapped", 92, hidden=1 - exposed / 50, batch=16, compute_ms=80)
    rows = [step("one_rank", 140, batch=16), step("overlapped", 92, batch=16)]
    return [*rows, step("overlapped", 60), ledger]


def gathering(ms):
    """Moments sharded, with so much communication; hooks need 50 ms."""
    rows = [step("overlapped", 50), step("sharded_optimizer", 50, peak_mib=40 * 1024)]
    ends = {f"communication{end}_ms": ms for end in ("", "_low", "_high")}
    return [*rows, profiled("overlapped", 50), profiled("sharded_optimizer", 50, **ends)]


def drawing(watts):
    """The fastest step at batch 16 draws so much; others draw the limit, or nothing."""
    small = step("overlapped", 50, power_w=690, clock_mhz=1400)
    slow = step("ddp", 250, batch=16, power_w=690, clock_mhz=1400)
    return [small, slow, step("overlapped", 200, batch=16, power_w=watts, clock_mhz=1500)]


def closed_form(gib):
    rows = [step("overlapped", 50), memory("overlapped", "peak", 50.9)]
    return [*rows, memory("fully_sharded", "peak", gib)]


@pytest.mark.parametrize(
    ("words", "rows", "said", "unsaid"),
    [
        ("Use one GPU", lambda ms: steps(**ONE, ddp=ms), 99, 80),
        ("Larger batches pay", lambda many: batches(1.3, many), 1.44, 1.42),
        (
            "**Hooks hide communication**",
            lambda low: [
                *steps(overlapped=100),
                profiled("overlapped", 100, hidden=0.6, hidden_share_low=low),
            ],
            0.51,
            0.49,
        ),
        (
            "from profiled steps",
            lambda ms: [*steps(overlapped=100), profiled("overlapped", ms)],
            102,
            100.5,
        ),
        ("one reason why computation", computes_less, 79, 81),
        ("needs half the memory", lambda gib: peaks("fully_sharded", gib), 57, 58),
        ("than hooks", third_steps, 16.1, 15.9),
        ("probably exist at once", second_steps, 75.1, 74.9),
        ("Up to 10 kB one takes", all_reduces, 20, 21),
        ("**GPUs wait at batch 4 (FSDP2):**", idle, 101, 99),
        ("Little communication is exposed", exposing, 4.9, 5.1),
        ("12.8B parameters need two GPUs", closed_form, 27.0, 29.0),
        ("After the all-reduces lmperf's gathers", gathering, 51, 50),
        ("690 of 700 W: at this power limit its clock falls to 1,", drawing, 690, 600),
    ],
)
def test_sentence_stands_on_one_side_of_its_threshold(words, rows, said, unsaid):
    for value in (said, unsaid):
        assert (words in first_page(evidence(*rows(value))).text) is (value == said)


def test_sizes_without_a_table_are_listed_fastest_first():
    times = {"overlapped": 50, "ddp": 40, "one_rank": 90}
    small = [
        step(name, ms, size="0.97B", bound="host" if name == "ddp" else "device")
        for name, ms in times.items()
    ]
    shown = sections(*steps(**ONE, **OTHERS), *small).elsewhere
    assert [*shown.frame["implementation"]] == ["ddp", "overlapped", "one_rank"]
    assert [*shown.frame["time"]] == ["*40.0*", "50.0", "90.0"]


def test_slow_step_that_waits_does_not_advise_one_gpu():
    with pytest.raises(NotMeasured, match="waits"):
        _ = sections(*steps(one_rank=100), step("ddp", 90, bound="host")).one_is_enough


def test_several_gpus_alone_are_a_whole_page():
    page = first_page(evidence(*steps(**ONE, ddp=60), collective("all_reduce", 1e9, 4.0)))
    assert page.text.startswith("# Several GPUs: two NVIDIA H200\n")
    assert "NVLink (18 links) · PyTorch 2.11.0" in page.text
    assert "What limits these numbers" in page.text


@pytest.mark.parametrize("version", ["2.28.9", None])
def test_nccl_is_the_one_that_was_loaded(version):
    facts = TWO_H200 | {"nccl": version, "settings": {"NCCL_VERSION": "2.28.3-1"}}
    text = first_page(evidence(*steps(**ONE, ddp=60), facts=facts)).text
    assert f"· NCCL {version or ''}".strip() + " without NVLink multicast" in text


def test_several_gpus_beside_other_results_are_a_section():
    alone = planted.row("end_to_end", ms=10)
    page = first_page(evidence(alone, *steps(**ONE, ddp=60)))
    assert page.text.startswith("## Two GPUs\n")
    assert "What limits these numbers" not in page.text


def test_processes_of_a_cpu_have_no_gpu_words():
    rows = [planted.row("end_to_end", ms=10), *steps(**ONE, ddp=60)]
    rows += [collective("all_reduce", 1e9, 4.0), memory("ddp", "peak", 1.0)]
    of = evidence(*rows, facts=planted.CPU)
    assert first_page(of).text.startswith("## Two processes\n")
    for page in (first_page(of), planted.page("distributed", of)):
        assert not any(word in page.text for word in ("GPU", "NCCL", "CUDA", "NVLink"))


@pytest.mark.parametrize(("host_ms", "said"), [(0.07, True), (None, False)])
def test_launch_of_an_all_reduce_is_said_if_known(host_ms, said):
    calls = [collective("all_reduce", size, size / 1e6, host_ms=host_ms) for size in (1e3, 1e5)]
    calls.append(collective("all_reduce", 1e3 + 1, 1e-3, host_ms=host_ms))
    numbers = planted.printed(first_page(evidence(*steps(overlapped=100), *calls)))
    assert 1 in numbers and (70 in numbers) is said


def long_step(name, dtype, gib):
    """A step of the leaderboard whose peak is given."""
    cell = {"size": "8.1B", "context_length": 32768, "batch": 2, "ranks": 2, "dtype": dtype}
    peak = gib and 1024 * gib
    return planted.row(
        "distributed_leaderboard", ms=4370, implementation=name, peak_mib=peak, **cell
    )


@pytest.mark.parametrize(("gib", "said"), [(129, True), (None, False)])
def test_memory_of_the_leaderboard_is_said_if_known(gib, said):
    row = long_step("sharded_moments_fused", "bfloat16", gib)
    numbers = planted.printed(first_page(evidence(*steps(overlapped=100), row)))
    assert {32768, 4.37} <= {*numbers} and (129 in numbers) is said


@pytest.mark.parametrize(("gib", "said"), [(112, True), (113, False), (None, False)])
def test_memory_that_a_long_step_of_fsdp2_leaves_is_said(gib, said):
    row = long_step("fsdp2", "autocast_bfloat16", gib)
    text = planted.page("distributed", evidence(*steps(overlapped=100), row)).text
    assert ("more blocks could keep their matmuls" in text) is said
    size, context = TWIN.size, TWIN.context
    assert size.num_layers == 2 and f"model of two such layers, context {context:,}" in text


def test_loaded_step_is_not_said_to_wait():
    with pytest.raises(NotMeasured):
        _ = sections(*idle(150, marks="loaded")).idlest


@pytest.mark.parametrize(
    ("marks", "title"),
    [
        ("", "10.0 ms (3.4B, context 512, batch 16)"),
        ("loaded", "25.0 ms (3.4B, context 512, batch 4)"),
    ],
)
def test_figure_shows_the_largest_batch_that_holds(marks, title):
    rows = [step("overlapped", 100), step("overlapped", 200, batch=16)]
    large = profiled("overlapped", 200, batch=16, hidden=0.8, marks=marks)
    text = first_page(evidence(*rows, profiled("overlapped", 100), large)).text
    assert f"Communication alone takes {title}" in text


@pytest.mark.parametrize(
    ("bound", "profiled_ms", "italic"),
    [("device", 104, False), ("device", 106, True), ("host", 104, True)],
)
def test_hidden_share_is_in_italics_where_the_profiled_step_waits(bound, profiled_ms, italic):
    of = evidence(step("overlapped", 100, bound=bound), profiled("overlapped", profiled_ms))
    [table] = [table for table in planted.page("distributed", of).tables if table.id == "D2"]
    [hidden] = [column for column in table.columns if column.header.startswith("hidden")]
    assert [cell.waits for cell in hidden.cells] == [italic]
