"""What the first page says of several GPUs: which sentence follows from which numbers."""

from __future__ import annotations

import planted
import pytest
from planted_ranks import CELL, TWO_H200, collective, evidence, memory, profiled, step

from lmperf.reporting.evidence import ASSUMED_FLOORS, STEP, Evidence
from lmperf.reporting.sections import section
from lmperf.reporting.sections.several_gpus import SeveralGpus
from lmperf.reporting.words import NotMeasured


def sections(*rows: dict[str, str], **more) -> SeveralGpus:
    return section("several_gpus", evidence(*rows, **more))


def first_page(of: Evidence) -> planted.Page:
    return planted.page("report/several_gpus", of)


def steps(**times: float) -> list[dict[str, str]]:
    return [step(name, ms) for name, ms in times.items()]


ONE, OTHERS = {"one_rank": 100}, {"overlapped": 60, "ddp": 62}


@pytest.mark.parametrize(
    ("ours", "leader", "said"),
    [
        ({"ms": 30}, "fully_sharded", "Shard the model fully"),
        ({"ms": 120}, "", "No strategy is the fastest"),
        ({"ms": 60}, "", "No strategy is the fastest"),
        ({"ms": 50, "spread": 300}, "", "No strategy is the fastest"),
        (None, "", "No strategy is the fastest"),
    ],
    ids=["faster", "slower", "equal", "noisy", "missing"],
)
def test_advice_follows_the_fastest_strategy(ours, leader, said):
    rows = steps(**ONE, **OTHERS) + ([step("fully_sharded", **ours)] if ours else [])
    of = evidence(*rows)
    assert section("several_gpus", of).leader == leader
    assert said in first_page(of).text


@pytest.mark.parametrize(("ms", "leads"), [(60 / 1.06, True), (60 / 1.04, False)])
def test_leader_is_faster_beyond_the_noise_floor(ms, leads):
    found = sections(*steps(**ONE, **OTHERS, fully_sharded=ms))
    assert found.head.frame["floor"].max() == ASSUMED_FLOORS[STEP]
    assert (found.leader == "fully_sharded") is leads


def test_leader_at_one_batch_only_is_none():
    rows = [step("ddp", 40), step("overlapped", 60)]
    rows += [step("ddp", 90, batch=16), step("overlapped", 60, batch=16)]
    assert sections(*rows).leader == ""


@pytest.mark.parametrize(("ms", "pays"), [(80, True), (99, False), (200, False)])
def test_several_gpus_pay_if_a_strategy_beats_one(ms, pays):
    of = evidence(*steps(**ONE, ddp=ms))
    assert section("several_gpus", of).pays is pays
    assert ("Use one GPU" in first_page(of).text) is not pays


@pytest.mark.parametrize(
    ("ms", "said", "unsaid"),
    [
        (91, "two GPUs are 1.10 times as fast as one", "Use one GPU"),
        (94, "", "Use"),
        (107, "", "Use"),
        (110, "Use one GPU", "times as fast as one"),
    ],
)
def test_other_gpus_are_compared_beyond_how_far_they_differ(ms, said, unsaid):
    one = step("one_rank", 100, gpus="GPU-9", together="other")
    page = first_page(evidence(one, *steps(ddp=ms, overlapped=2 * ms)))
    assert said in page.text and unsaid not in page.text
    assert "over one GPU" not in page.text


@pytest.mark.parametrize(("many", "scales"), [(1.42, True), (1.39, False)])
def test_scaling_over_other_gpus_exceeds_how_far_they_differ(many, scales):
    rows = batches(1.3, many)
    for row in rows[:2]:
        row |= {"gpus": "GPU-9", "together": "other"}
    assert sections(*rows).scales is scales


def batches(few: float, many: float) -> list[dict[str, str]]:
    """Steps of one rank in 100 and 400 ms, and with hooks at these speed-ups."""
    rows = [step("one_rank", 100), step("one_rank", 400, batch=16)]
    rows += [step("overlapped", 100 / few)]
    return [*rows, step("overlapped", 400 / many, batch=16)]


@pytest.mark.parametrize(("many", "scales"), [(1.8, True), (1.3, False), (1.2, False)])
def test_larger_batch_scales_better_if_it_gains_more(many, scales):
    of = evidence(*batches(1.3, many))
    assert section("several_gpus", of).scales is scales
    assert ("scale better" in first_page(of).text) is scales
    assert ("scales no better" in first_page(of).text) is not scales


@pytest.mark.parametrize(("sent", "same"), [(1.401e10, True), (1.42e10, False)])
def test_bytes_are_a_reason_only_if_they_stay_the_same(sent, same):
    ledger = [profiled("overlapped", 100 / 1.3, sent_bytes=1.4e10)]
    ledger += [profiled("overlapped", 400 / 1.8, batch=16, sent_bytes=sent)]
    of = evidence(*batches(1.3, 1.8), *ledger)
    assert ("do not depend on the batch" in first_page(of).text) is same


@pytest.mark.parametrize(("share", "hides"), [(0.51, True), (0.49, False)])
def test_hooks_hide_if_most_communication_is_hidden(share, hides):
    of = evidence(*steps(overlapped=100), profiled("overlapped", 100, hidden=share))
    assert section("several_gpus", of).hooks_hide is hides
    assert ("Neither the forward nor AdamW" in first_page(of).text) is hides


@pytest.mark.parametrize(("share", "exposed"), [(0.89, True), (0.91, False)])
def test_exposed_communication_is_named_at_the_small_batch(share, exposed):
    rows = [profiled("overlapped", 100 / 1.3, hidden=share)]
    rows += [profiled("overlapped", 400 / 1.8, hidden=0.95, batch=16)]
    page = first_page(evidence(*batches(1.3, 1.8), *rows))
    assert ("At batch 4 only" in page.text) is exposed


def test_sentences_ignore_a_ledger_of_a_much_longer_step():
    page = first_page(evidence(*steps(overlapped=100), profiled("overlapped", 130)))
    assert "Hooks hide" not in page.text
    assert "at most 30 % longer" in page.text


@pytest.mark.parametrize(("ms", "said"), [(102, True), (100.5, False)])
def test_profiler_is_a_limit_if_it_lengthens_steps(ms, said):
    page = first_page(evidence(*steps(overlapped=100), profiled("overlapped", ms)))
    assert ("under a profiler" in page.text) is said


def test_profiler_lengthens_each_batch_by_its_own_most():
    rows = [step(name, 100, batch=n) for name in ("overlapped", "ddp") for n in (4, 16)]
    times = {("overlapped", 4): 110, ("ddp", 4): 145, ("overlapped", 16): 98, ("ddp", 16): 102}
    rows += [profiled(name, ms, batch=n) for (name, n), ms in times.items()]
    page = first_page(evidence(*rows))
    assert "at most 45 % longer at batch 4, 2 % at batch 16." in page.text


def test_steps_measured_again_are_a_limit():
    rows = [step("ddp", 100, batch=n) for n in (4, 8, 16)]
    again = [step("ddp", 105, batch=int(row["batch"]), key=row["key"]) for row in rows]
    page = first_page(evidence(*rows, again={"distributed": again}))
    assert "Measured again, steps that keep the GPU busy both times differ by up to 5.0 %" in (
        page.text
    )
    assert "Measured again" not in first_page(evidence(*rows)).text


@pytest.mark.parametrize(("less", "said"), [(79, True), (81, False)])
def test_sharded_update_is_a_reason_if_ranks_compute_less(less, said):
    rows = [step("overlapped", 100), step("fully_sharded", 60, peak_mib=26 * 1024)]
    ends = {f"compute{end}_ms": less for end in ("", "_low", "_high")}
    rows += [profiled("overlapped", 100), profiled("fully_sharded", 60, **ends)]
    assert ("likely reason" in first_page(evidence(*rows)).text) is said


@pytest.mark.parametrize(("share", "half"), [(0.57, True), (0.58, False), (0.42, False)])
def test_sharded_model_needs_half_if_its_peak_is_near_half(share, half):
    rows = [step("overlapped", 50), step("fully_sharded", 50, peak_mib=100 * 1024 * share)]
    rows[0]["peak_mib"] = str(100 * 1024)
    of = evidence(*rows)
    assert section("several_gpus", of).sharded_is_a_part is half
    assert ("needs half the memory" in first_page(of).text) is half


def state(name: str, optimizer: float) -> dict[str, str]:
    held = {"parameters_mib": 100, "gradients_mib": 100, "optimizer_mib": optimizer}
    return memory(name, "after_step", 40, **held)


@pytest.mark.parametrize(("mib", "part"), [(100.9, True), (102, False)])
def test_moments_are_a_reason_if_each_rank_keeps_its_part(mib, part):
    rows = [step("overlapped", 50), step("sharded_optimizer", 50, peak_mib=40 * 1024)]
    page = first_page(evidence(*rows, state("overlapped", 200), state("sharded_optimizer", mib)))
    assert "from 50.0 to 40.0 GiB" in page.text
    assert ("each keeps half of the moments" in page.text) is part


@pytest.mark.parametrize(("gib", "more"), [(51.1, True), (50.9, False)])
def test_ddp_needs_more_memory_beyond_two_percent(gib, more):
    rows = [step("overlapped", 50), step("ddp", 50, peak_mib=gib * 1024)]
    assert ("than hooks" in first_page(evidence(*rows)).text) is more


@pytest.mark.parametrize(("held", "said"), [(9.1, True), (8.9, False)])
def test_buckets_are_a_reason_if_they_hold_all_gradients(held, said):
    rows = [step("overlapped", 50), step("ddp", 50, peak_mib=60 * 1024)]
    rows += [memory("ddp", "init", 20, other_mib=held * 1024)]
    rows += [memory("ddp", "before_step", 20, gradients_mib=10 * 1024)]
    assert ("buckets for all gradients" in first_page(evidence(*rows)).text) is said


@pytest.mark.parametrize(("ms", "quicker"), [(39, True), (51, False)])
def test_large_buckets_are_quicker_beyond_the_intervals(ms, quicker):
    ends = {f"communication{end}_ms": ms for end in ("", "_low", "_high")}
    rows = [step("ddp", 50), profiled("bucket_1", 90), profiled("bucket_1000", 90, **ends)]
    page = planted.page("distributed", evidence(*rows))
    assert ("Large buckets shorten" in page.text) is quicker


@pytest.mark.parametrize(("sharded", "said"), [(27.0, True), (29.0, False)])
def test_gpus_needed_rest_on_a_closed_form_that_holds_here(sharded, said):
    rows = [step("overlapped", 50), memory("overlapped", "peak", 50.9)]
    page = first_page(evidence(*rows, memory("fully_sharded", "peak", sharded)))
    assert ("12.8B parameters need two GPUs" in page.text) is said


def test_small_memory_needs_more_gpus():
    rows = [step("overlapped", 50), memory("fully_sharded", "peak", 27.0)]
    found = sections(*rows, facts=TWO_H200 | {"device_memory_gib": 80.0})
    assert found.gpus_needed("fully_sharded") == 3


BOARD = {"size": "8.1B", "context_length": 32768, "batch": 2, "dtype": "bfloat16"}


@pytest.mark.parametrize(
    ("facts", "said"), [({}, True), ({"device": "NVIDIA B200"}, False), ({"torch": "2.12"}, False)]
)
def test_leaderboard_is_compared_with_one_gpu_of_the_same_kind(facts, said):
    alone = planted.row("leaderboard", ms=9000, **BOARD)
    other = planted.evidence(alone, machine="one", facts=TWO_H200 | facts)
    row = planted.row("distributed_leaderboard", ms=4500, ranks=2, **BOARD)
    page = first_page(evidence(step("ddp", 50), row, others=[other]))
    assert "takes 4.50 s a step" in page.text
    assert ("2.0 times as fast as on one NVIDIA H200" in page.text) is said


@pytest.mark.parametrize(
    ("ms", "waits", "said"), [(120, True, True), (90, True, False), (120, False, False)]
)
def test_waiting_steps_slower_than_one_gpu_are_a_limit(ms, waits, said):
    rows = [*steps(**ONE), step("ddp", ms, host_ms=ms if waits else 1)]
    page = first_page(evidence(*rows))
    assert ("steps wait for the CPU" in page.text) is said


@pytest.mark.parametrize(("status", "words"), [("ok", "none failed"), ("failed_check", "1 of 2")])
def test_failed_checks_are_counted(status, words):
    page = first_page(evidence(step("ddp", 50), step("overlapped", 50, status=status)))
    assert words in page.text


def test_width_leaves_out_steps_that_wait():
    rows = [step("ddp", 50, spread=5), step("overlapped", 50, spread=20, host_ms=50)]
    assert sections(*rows).width == pytest.approx(0.0101, rel=0.01)


def test_several_gpus_alone_are_a_whole_page():
    page = first_page(evidence(*steps(**ONE, ddp=60), collective("all_reduce", 1e9, 4.0)))
    assert page.text.startswith("# Several GPUs: two NVIDIA H200\n")
    assert "NVLink (18 links) · PyTorch 2.11.0" in page.text
    assert "What limits these numbers" in page.text


def test_processes_alone_are_a_whole_page():
    page = first_page(evidence(*steps(**ONE, ddp=60), facts=planted.CPU))
    assert page.text.startswith("# Several processes: two on Example CPU, AVX-512\n")
    assert "GPU" not in page.text


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


@pytest.mark.parametrize("rows", [[], [step("one_rank", 100)]], ids=["nothing", "one rank"])
def test_nothing_is_shown_without_steps_on_several_ranks(rows):
    assert not first_page(evidence(*rows)).text.strip()


def test_cells_without_rows_are_to_be_measured():
    page = first_page(evidence(*batches(1.3, 1.8), step("ddp", 70)))
    assert "to measure" in page.text


def test_batch_of_the_small_table_is_that_of_the_cell():
    found = sections(*batches(1.3, 1.8))
    assert (found.few, found.many, found.ranks) == (CELL["batch"], 16, 2)
    with pytest.raises(NotMeasured):
        found.peak("ddp")
