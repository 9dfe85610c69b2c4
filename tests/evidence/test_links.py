"""Tests of the topology of several GPUs: visible devices, their links, and who depends on them."""

from types import SimpleNamespace

import pytest
from ranked_toy import RankedToy

from lmperf.benchmarks import load
from lmperf.evidence import machine
from lmperf.evidence.keys import is_fresh, row_key
from lmperf.evidence.links import links_between
from lmperf.evidence.machine import devices_of, measurable, topology_of

NV18 = {"kind": "cuda", "devices": 2, "links": {"0-1": "NV18"}}


class Nvml:
    """NVML with devices 0 to 3; `links` maps a device to the remote ends of its NVLinks."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2
    NVMLError = KeyError

    def __init__(self, links=(), level=40):
        self._links, self._level = dict(links), level

    def nvmlInit(self):
        pass

    def nvmlSystemGetDriverVersion(self):
        return "580.1"

    def nvmlDeviceGetName(self, handle):
        return "NVIDIA H200"

    def nvmlDeviceGetMemoryInfo(self, handle):
        return SimpleNamespace(total=2**37)

    def nvmlDeviceGetMaxClockInfo(self, handle, which):
        return 1980

    def nvmlDeviceGetEnforcedPowerLimit(self, handle):
        return 700_000

    def nvmlDeviceGetCount(self):
        return 4

    def nvmlDeviceGetHandleByIndex(self, index):
        return {0: 0, 1: 1, 2: 2, 3: 3}[index]

    def nvmlDeviceGetHandleByUUID(self, uuid):
        return {"GPU-a": 0, "GPU-b": 1}[uuid]

    def nvmlDeviceGetNvLinkState(self, handle, link):
        return dict(enumerate(self._links.get(handle, ())))[link] is not None

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle, link):
        return 2 if self._links[handle][link] == "switch" else 0

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle, link):
        return SimpleNamespace(busId=self._links[handle][link])

    def nvmlDeviceGetPciInfo(self, handle):
        return SimpleNamespace(busId=f"bus {handle}")

    def nvmlDeviceGetTopologyCommonAncestor(self, one, other):
        return self._level


def test_links_through_a_switch_reach_every_device():
    nvml = Nvml({0: ["switch"] * 18, 1: ["switch"] * 18, 2: ["switch"] * 17 + [None]})
    assert links_between(nvml, [0, 1, 2]) == {"0-1": "NV18", "0-2": "NV17", "1-2": "NV17"}


def test_direct_links_count_for_their_pair_only():
    nvml = Nvml({0: ["bus 1"] * 4, 1: ["bus 0"] * 4}, level=50)
    assert links_between(nvml, [0, 1, 2]) == {"0-1": "NV4", "0-2": "SYS", "1-2": "SYS"}


@pytest.mark.parametrize(
    ("visible", "handles"),
    [(None, [0, 1, 2, 3]), ("1", [1]), ("3, 1", [3, 1]), ("GPU-b,GPU-a", [1, 0]), ("0,9,1", [0])],
)
def test_only_visible_devices_count(visible, handles):
    assert machine._visible(Nvml(), visible) == handles


@pytest.mark.parametrize(
    ("visible", "slug", "topology"),
    [
        ("0", "nvidia-h200", ""),
        ("0,1", "nvidia-h200-x2", "2 devices: 0-1 NODE"),
        ("0,1,2", "nvidia-h200-x3", "3 devices: 0-1 NODE, 0-2 NODE, 1-2 NODE"),
    ],
)
def test_several_visible_devices_have_a_slug_of_their_own(monkeypatch, visible, slug, topology):
    monkeypatch.setitem(__import__("sys").modules, "pynvml", Nvml())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(machine, "accelerator", lambda: "cuda")
    machine._nvidia_facts.cache_clear()
    try:
        found = machine.detect.__wrapped__()
    finally:
        machine._nvidia_facts.cache_clear()
    assert found.slug == slug and topology_of(found.facts) == topology
    assert found.devices == len(visible.split(","))


def test_only_keys_of_ranked_benchmarks_cover_the_topology():
    ranked, single = RankedToy("ranked_toy"), load("attention")
    row = {"size": 64, "ranks": 2, "dtype": "float32", "implementation": "right"}
    row["phase"] = "forward"
    key = row_key(ranked, row, "e", topology_of(NV18))
    other = topology_of({**NV18, "links": {"0-1": "NODE"}})
    assert len({key, row_key(ranked, row, "e", other), row_key(ranked, row, "e")}) == 3
    assert is_fresh(ranked, {**row, "key": key}, "e", topology_of(NV18))
    assert not is_fresh(ranked, {**row, "key": key}, "e", other)
    case = single.cases("cpu")[0]
    row = {**case.axes, "implementation": case.implementation, "phase": "forward"}
    assert row_key(single, row, "e", topology_of(NV18)) == row_key(single, row, "e")


@pytest.mark.parametrize(
    ("facts", "number"),
    [({"kind": "cpu"}, 2), ({"kind": "mps"}, 1), ({"kind": "cuda"}, 1), (NV18, 2)],
)
def test_a_cpu_counts_as_two_devices(facts, number):
    assert devices_of(facts) == number


def test_cases_with_more_ranks_than_devices_are_left_out():
    benchmark = RankedToy("ranked_toy")
    cases = benchmark.cases("cpu", {"ranks": [1, 2, 4]})
    assert {case.axes["ranks"] for case in measurable(benchmark, cases, 2)} == {1, 2}
    assert measurable(benchmark, cases, 1) == []
    assert {case.axes["ranks"] for case in measurable(benchmark, cases, 4)} == {1, 2, 4}
