"""The table of peers (implementations of other projects): package, benchmarks, declaration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import metadata

from lmperf.benchmark import Implementation


@dataclass(frozen=True)
class Peer:
    """An implementation of another project.

    Attributes:
        package: the pip package that contains it.
        benchmarks: stems of the benchmarks that measure it.
        implementation: its declaration in these benchmarks, without the version.
    """

    package: str
    benchmarks: tuple[str, ...]
    implementation: Implementation


def _flash_attention_4(name: str, function: str, **only: tuple[int, ...]) -> Peer:
    """FlashAttention-4, with a function of its module."""
    return Peer(
        "flash-attn-4",
        ("flash_attention",),
        Implementation(
            name,
            f"lmperf.peers.flash_attention_4:{function}",
            compiles=True,
            origin="peer",
            needs_cuda=True,
            only={"dtype": ("float16", "bfloat16"), **only},
        ),
    )


_PEERS = (
    _flash_attention_4("flash_attention_4", "attention"),
    # Of the filled grid only: each head width and mask is compiled for 9 to 19 s.
    _flash_attention_4(
        "flash_attention_4_deterministic", "deterministic_attention", heads=(16, 25, 32)
    ),
    Peer(
        "torchao",
        ("end_to_end", "ladder_loss"),
        Implementation(
            "fp8_tensorwise",
            "lmperf.peers.torchao:TENSORWISE",
            tolerance="fp8_tensorwise",
            compiles=True,
            needs_cuda=True,
            origin="peer",
            only={"size": ("0.13B", "0.97B", "3.4B")},
        ),
    ),
)
PEERS = {peer.implementation.name: peer for peer in _PEERS}


def installed() -> dict[str, str]:
    """Peer -> version of its package, for installed packages; imports none of them."""
    found = {}
    for name, peer in PEERS.items():
        try:
            found[name] = metadata.version(peer.package)
        except metadata.PackageNotFoundError:
            continue
    return found


def peers_of(stem: str, versions: Mapping[str, str]) -> dict[str, Implementation]:
    """The peers of a benchmark among those in ``versions``, as declared, with their version.

    versions: of ``installed``.
    """
    return {
        name: replace(peer.implementation, version=versions[name])
        for name, peer in PEERS.items()
        if stem in peer.benchmarks and name in versions
    }
