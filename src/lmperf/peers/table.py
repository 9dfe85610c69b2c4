"""Which peers there are: the package that each needs, and the benchmarks that it belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import metadata

from lmperf.benchmark import Own

# Larger models cost minutes a cell, and say the same of a peer; so do contexts between the shortest
# and the longest.
_MODELS = {"size": ("tiny", "small", "medium"), "context_length": (128, 1024)}


@dataclass(frozen=True)
class Peer:
    """An implementation of another project.

    Attributes:
        package: what must be installed, as pip calls it.
        benchmarks: stems of those that it takes part in.
        own: what stands for it there, but for its version.
    """

    package: str
    benchmarks: tuple[str, ...]
    own: Own


PEERS = {
    "flash_attn": Peer(
        "flash-attn",
        ("flash_attention",),
        Own(
            "lmperf.peers.flash_attn:attention",
            presets=("gpu",),
            only={"dtype": ("float16", "bfloat16")},
        ),
    ),
    "gpt2_hf": Peer(
        "transformers",
        ("end_to_end", "memory"),
        Own("lmperf.peers.gpt2_hf:GPT2", only=_MODELS),
    ),
    "liger": Peer(
        "liger-kernel",
        ("end_to_end",),
        Own("lmperf.peers.liger:with_kernels", presets=("gpu",), only=_MODELS),
    ),
}


def installed() -> dict[str, str]:
    """The version of the package of each peer that could be measured here; imports none."""
    found = {}
    for name, peer in PEERS.items():
        try:
            found[name] = metadata.version(peer.package)
        except metadata.PackageNotFoundError:
            continue
    return found


def peers_of(stem: str, versions: Mapping[str, str]) -> dict[str, Own]:
    """The peers of a benchmark whose versions these are."""
    return {
        name: replace(peer.own, version=versions[name])
        for name, peer in PEERS.items()
        if stem in peer.benchmarks and name in versions
    }
