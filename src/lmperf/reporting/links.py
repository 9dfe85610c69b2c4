"""Judge the links between GPUs: measured rates, cited ranges, and the likely cause of a slow one.

The rates are that of a copy, and the bus bandwidth of an all-reduce as nccl-tests define it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lmperf.names import bytes_words
from lmperf.reporting.numbers import counted

OK, SLOW, WRONG, UNCOMPARED = "ok", "slow", "wrong", "no range"
# NVML names of the devices for which ranges are cited: eight of them share NVLink switches.
DEVICES = ("NVIDIA H100 80GB HBM3", "NVIDIA H200")
# Messages below this many bytes are decided by the overhead of a call, which differs among hosts.
SMALL = 5 * 10**7
# A rate is as it should be from this fraction of the cited range's low end on.
_ENOUGH, _ENOUGH_SMALL = 0.93, 0.7
# GB/s that no copy by PCIe 5 x16 exceeds, and that any NVLink of these devices does.
_PCIE_GBPS = 64.0
# Bus bandwidth of a ring on these devices; with NVLS, eight of them reach more.
_RING_GBPS = 340.0


@dataclass(frozen=True)
class Cited:
    """A range of rates in GB/s that others measured.

    Attributes:
        ranks: least and greatest number of GPUs.
        message: bytes from which on it holds.
    """

    operation: str
    ranks: tuple[int, int]
    message: int
    low: float
    high: float
    source: str


# NCCL uses 24 channels here; with more, the rate of long messages is that of a ring of four.
_TWO, _AZURE = "two H200s with 18 NVLinks, torch 2.11", "8 H200s, Azure"
_RING = "ring, NVIDIA/nccl #1455 and nccl-tests on 4 H200s"
CITED = (
    Cited("copy", (2, 8), 10**8, 395, 395, _TWO),
    Cited("all_reduce", (2, 2), 10**6, 42, 42, _TWO),
    Cited("all_reduce", (2, 2), 10**7, 192, 192, _TWO),
    Cited("all_reduce", (2, 2), 10**8, 280, 280, _TWO),
    Cited("all_reduce", (2, 2), 10**9, 328, 328, _TWO),
    Cited("all_reduce", (2, 2), 2 * 10**9, 337, 337, _TWO),
    Cited("all_reduce", (4, 4), 2 * 10**9, 363, 370, _RING),
    Cited("all_reduce", (8, 8), 10**6, 53, 53, _AZURE),
    Cited("all_reduce", (8, 8), 8 * 10**6, 182, 182, _AZURE),
    Cited("all_reduce", (8, 8), 67 * 10**6, 368, 368, _AZURE),
    Cited("all_reduce", (8, 8), 10**9, 468, 473, f"{_AZURE}, with NVLS"),
)


@dataclass(frozen=True)
class Rate:
    """A measured rate in GB/s; None if there is none, with the reason.

    Attributes:
        operation: copy or all_reduce.
        ranks: number of GPUs.
        message: bytes.
    """

    operation: str
    ranks: int
    message: int
    gbps: float | None
    reason: str = ""

    @property
    def words(self) -> str:
        names = {"copy": "copy from one GPU to another", "all_reduce": "all-reduce over"}
        over = "" if self.operation == "copy" else f" {self.ranks} GPUs"
        return f"{names[self.operation]}{over}, {bytes_words(self.message)}"


@dataclass(frozen=True)
class Facts:
    """What is known of the GPUs and their links.

    Attributes:
        device: NVML name of the GPUs; the names of all, if they differ.
        links: for each GPU the numbers of its active NVLinks and of all; None: unknown.
        others: number of other processes that used the GPUs before the measurement.
        settings: the variables NCCL_... of the environment.
    """

    device: str
    links: tuple[tuple[int, int] | None, ...] = ()
    others: int = 0
    settings: Mapping[str, str] | None = None

    @property
    def down(self) -> list[str]:
        """The GPUs with inactive links, in words, unless none of their links is active."""
        pairs = [(gpu, link) for gpu, link in enumerate(self.links) if link is not None]
        return [
            f"{all_ - active} of {all_} NVLinks of GPU {gpu} are down"
            for gpu, (active, all_) in pairs
            if 0 < active < all_
        ]

    @property
    def without_nvlink(self) -> bool:
        """Whether a GPU is known to have no active NVLink."""
        return any(link is not None and link[0] == 0 for link in self.links)


@dataclass(frozen=True)
class Verdict:
    """A line for the user: `OK`, `SLOW`, `WRONG` or `UNCOMPARED`, and why."""

    state: str
    words: str


def judge(rates: Sequence[Rate], facts: Facts) -> list[Verdict]:
    """Return a verdict on each rate, with the likely cause of each slow one."""
    return [_verdict(rate, rates, facts) for rate in rates]


def cited_for(rate: Rate, device: str) -> Cited | None:
    """Return the range to compare a rate with, that of the largest message; None without any."""
    if device not in DEVICES:
        return None
    found = [
        one
        for one in CITED
        if one.operation == rate.operation
        and one.ranks[0] <= rate.ranks <= one.ranks[1]
        and one.message <= rate.message
    ]
    return max(found, key=lambda one: one.message, default=None)


def _verdict(rate: Rate, rates: Sequence[Rate], facts: Facts) -> Verdict:
    if rate.gbps is None:
        return Verdict(WRONG, f"{rate.words}: {rate.reason}")
    measured = f"{rate.words}: {rate.gbps:.3g} GB/s"
    cited = cited_for(rate, facts.device)
    if cited is None:
        if rate.message >= SMALL and rate.gbps <= _PCIE_GBPS and _nvlink_expected(facts):
            return Verdict(SLOW, f"{measured}; likely cause: {_cause(rate, None, rates, facts)}")
        return Verdict(UNCOMPARED, f"{measured}; no range is cited for it")
    ends = f"{cited.low:g}" + (f" to {cited.high:g}" if cited.high > cited.low else "")
    compared = f"{measured}; cited {ends} GB/s ({cited.source})"
    if is_enough(rate, cited):
        return Verdict(OK, compared)
    return Verdict(SLOW, f"{compared}; likely cause: {_cause(rate, cited, rates, facts)}")


def is_enough(rate: Rate, cited: Cited) -> bool:
    """Whether a rate is as high as the cited range, but for noise."""
    return rate.gbps >= cited.low * (_ENOUGH_SMALL if rate.message < SMALL else _ENOUGH)


def _nvlink_expected(facts: Facts) -> bool:
    return facts.device in DEVICES or any(link and link[1] for link in facts.links)


def _cause(rate: Rate, cited: Cited | None, rates: Sequence[Rate], facts: Facts) -> str:
    """The likely cause of a slow rate: the first of the known ones that fits."""
    settings = facts.settings or {}
    if facts.others:
        return f"{counted(facts.others, 'other process')} on these GPUs"
    if facts.without_nvlink:
        return "PCIe instead of NVLink: no NVLink is active (nvidia-smi nvlink --status)"
    if settings.get("NCCL_P2P_DISABLE", "0") != "0" and rate.operation != "copy":
        return "NCCL_P2P_DISABLE is set: copies go through the host's memory"
    if rate.message < SMALL and _longest_is_enough(rate, rates, facts):
        return "too small a message: the overhead of a call decides, a slow host or busy cores"
    if facts.down:
        return f"links down: {'; '.join(facts.down)}"
    if rate.message >= SMALL and rate.gbps <= _PCIE_GBPS:
        return "PCIe instead of NVLink (nvidia-smi topo -m shows how the GPUs are connected)"
    if cited is not None and "NVLS" in cited.source and rate.gbps >= _RING_GBPS:
        return "NVLS is off (NCCL_NVLS_ENABLE, or no NVLink multicast): this is a ring's rate"
    set_ones = ", ".join(sorted(settings))
    hint = f"{set_ones} set; " if set_ones else ""
    return f"unknown; {hint}NCCL_DEBUG=INFO prints the transport and the algorithm"


def _longest_is_enough(rate: Rate, rates: Sequence[Rate], facts: Facts) -> bool:
    """Whether the longest message of the same operation and GPUs is as fast as cited."""
    same = (one for one in rates if (one.operation, one.ranks) == (rate.operation, rate.ranks))
    longest = max((one for one in same if one.gbps is not None), key=lambda one: one.message)
    cited = cited_for(longest, facts.device)
    return longest is not rate and cited is not None and is_enough(longest, cited)
