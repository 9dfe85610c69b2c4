"""Verdicts on links between GPUs, from made-up rates: state and likely cause of each."""

import pytest

from lmperf.reporting.links import OK, SLOW, UNCOMPARED, WRONG, Facts, Rate, cited_for, judge

H200 = "NVIDIA H200"
GOOD = {10**6: 42, 10**7: 192, 10**8: 280, 10**9: 328, 2 * 10**9: 337}
LINKED = Facts(H200, ((18, 18), (18, 18)))


def rates(factor=1.0, ranks=2, copy=395.0, **changed):
    found = {message: factor * gbps for message, gbps in GOOD.items()}
    reduced = [Rate("all_reduce", ranks, message, gbps) for message, gbps in found.items()]
    return [Rate("copy", 2, 10**9, copy), *reduced]


def words(facts, made):
    return [f"{one.state}: {one.words}" for one in judge(made, facts)]


def test_rates_within_the_cited_ranges_are_ok():
    found = judge(rates(), LINKED)
    assert {one.state for one in found} == {OK}
    assert found[-1].words == (
        "all-reduce over 2 GPUs, 2 GB: 337 GB/s; cited 337 GB/s (two H200s with 18 NVLinks, torch"
        " 2.11)"
    )
    assert found[0].words.startswith("copy from one GPU to another, 1 GB: 395 GB/s; cited 395 GB/s")


@pytest.mark.parametrize(("gbps", "state"), [(340, OK), (330, SLOW)])
def test_rate_is_slow_below_the_range_but_for_noise(gbps, state):
    (found,) = judge([Rate("all_reduce", 4, 2 * 10**9, gbps)], LINKED)
    assert found.state == state


def test_without_nvlink_the_cause_is_pcie():
    facts = Facts(H200, ((0, 18), (0, 18)))
    for line in words(facts, rates(0.05, copy=24.0)):
        assert line.startswith("slow") and "PCIe instead of NVLink: no NVLink is active" in line


def test_rate_of_pcie_is_named_where_links_are_unknown():
    line = words(Facts(H200, (None, None)), [Rate("copy", 2, 10**9, 24.0)])[0]
    assert line.startswith("slow") and "PCIe instead of NVLink (nvidia-smi topo -m" in line


def test_links_that_are_down_are_counted_by_gpu():
    facts = Facts(H200, ((18, 18), (12, 18)))
    line = words(facts, [Rate("copy", 2, 10**9, 263.0)])[0]
    assert line.endswith("likely cause: links down: 6 of 18 NVLinks of GPU 1 are down")


def test_other_processes_are_the_first_suspects():
    facts = Facts(H200, ((0, 18), (0, 18)), others=2)
    assert "likely cause: 2 other processes on these GPUs" in words(facts, rates(0.05))[1]


def test_short_message_is_too_small_only_if_long_ones_are_fast():
    made = [Rate("all_reduce", 2, 10**6, 10.0), Rate("all_reduce", 2, 2 * 10**9, 338.0)]
    first, last = words(LINKED, made)
    assert "too small a message" in first and last.startswith("ok")
    made[1] = Rate("all_reduce", 2, 2 * 10**9, 150.0)
    first, last = words(LINKED, made)
    assert "too small" not in first and "unknown; NCCL_DEBUG=INFO" in last


def test_ring_rate_of_eight_gpus_means_that_nvls_is_off():
    slow, fast = (Rate("all_reduce", 8, 10**9, gbps) for gbps in (365.0, 466.0))
    assert "NVLS is off" in words(LINKED, [slow])[0]
    assert words(LINKED, [fast])[0].startswith("ok")


def test_disabled_peer_access_is_named():
    facts = Facts(H200, ((18, 18), (18, 18)), settings={"NCCL_P2P_DISABLE": "1"})
    line = words(facts, [Rate("all_reduce", 2, 10**9, 20.0)])[0]
    assert "NCCL_P2P_DISABLE is set" in line
    facts = Facts(H200, ((18, 18), (18, 18)), settings={"NCCL_ALGO": "Tree"})
    assert "NCCL_ALGO set; NCCL_DEBUG" in words(facts, [Rate("all_reduce", 2, 10**9, 200.0)])[0]


def test_rates_without_a_cited_range_are_shown_without_verdict():
    other = Facts("NVIDIA L4", (None, None))
    (found,) = judge([Rate("copy", 2, 10**9, 24.0)], other)
    assert found.state == UNCOMPARED and found.words.endswith("no range is cited for it")
    assert cited_for(Rate("all_reduce", 4, 10**6, 40.0), H200) is None


def test_measurement_that_failed_is_wrong_with_its_reason():
    (found,) = judge([Rate("copy", 2, 10**9, None, "timeout: took longer than 30 s")], LINKED)
    assert found.state == WRONG and found.words.endswith("1 GB: timeout: took longer than 30 s")
