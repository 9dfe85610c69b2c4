"""The peers: implementations of other projects, their packages and their benchmarks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import metadata

from lmperf.benchmark import Implementation

# Peers are measured on small models, at the shortest and the longest context: larger models cost
# minutes per cell and compare in the same way.
_MODELS = {"size": ("tiny", "0.13B", "0.42B"), "context_length": (128, 1024)}


@dataclass(frozen=True)
class Peer:
    """An implementation of another project.

    Attributes:
        package: its package, as pip names it.
        benchmarks: the benchmarks in which it takes part.
        implementation: its declaration there, without the version.
    """

    package: str
    benchmarks: tuple[str, ...]
    implementation: Implementation


_PEERS = (
    Peer(
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
    Peer(
        "transformers",
        ("end_to_end", "memory"),
        Implementation("gpt2_hf", "lmperf.peers.gpt2_hf:GPT2", origin="peer", only=_MODELS),
    ),
    Peer(
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
)
PEERS = {peer.implementation.name: peer for peer in _PEERS}


def installed() -> dict[str, str]:
    """The version of each peer's package that is installed here; imports none of them."""
    found = {}
    for name, peer in PEERS.items():
        try:
            found[name] = metadata.version(peer.package)
        except metadata.PackageNotFoundError:
            continue
    return found


def peers_of(stem: str, versions: Mapping[str, str]) -> dict[str, Implementation]:
    """The peers of a benchmark, for the packages that are installed in these versions."""
    return {
        name: replace(peer.implementation, version=versions[name])
        for name, peer in PEERS.items()
        if stem in peer.benchmarks and name in versions
    }
