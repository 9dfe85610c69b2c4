"""Which peers there are: the package that each needs, and the benchmarks that it belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import metadata

from lmperf.benchmark import Implementation

# Larger models cost minutes a cell, and say the same of a peer; so do contexts between the shortest
# and the longest.
_MODELS = {"size": ("tiny", "0.13B", "0.42B"), "context_length": (128, 1024)}


@dataclass(frozen=True)
class Peer:
    """An implementation of another project.

    Attributes:
        package: what must be installed, as pip calls it.
        benchmarks: stems of those that it takes part in.
        implementation: what it is there, but for its version.
    """

    package: str
    benchmarks: tuple[str, ...]
    implementation: Implementation


PEERS = {
    "flash_attn": Peer(
        "flash-attn",
        ("flash_attention",),
        Implementation(
            "flash_attn",
            "lmperf.peers.flash_attn:attention",
            origin="peer",
            presets=("gpu",),
            only={"dtype": ("float16", "bfloat16")},
        ),
    ),
    "gpt2_hf": Peer(
        "transformers",
        ("end_to_end", "memory"),
        Implementation("gpt2_hf", "lmperf.peers.gpt2_hf:GPT2", origin="peer", only=_MODELS),
    ),
    "liger": Peer(
        "liger-kernel",
        ("end_to_end",),
        Implementation(
            "liger",
            "lmperf.peers.liger:with_kernels",
            origin="peer",
            presets=("gpu",),
            only=_MODELS,
        ),
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


def peers_of(stem: str, versions: Mapping[str, str]) -> dict[str, Implementation]:
    """The peers of a benchmark whose versions these are."""
    return {
        name: replace(peer.implementation, version=versions[name])
        for name, peer in PEERS.items()
        if stem in peer.benchmarks and name in versions
    }
