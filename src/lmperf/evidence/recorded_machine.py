"""A machine with evidence, as `machine.json` and its rows describe it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from lmperf.benchmark import CPU_DEVICES, Benchmark
from lmperf.benchmarks import load
from lmperf.config.model import Config
from lmperf.evidence.facts import Facts, devices_of, topology_of
from lmperf.evidence.keys import is_fresh
from lmperf.evidence.store import Row, files_of
from lmperf.machine import bf16
from lmperf.own.recorded import declared


@dataclass(frozen=True)
class RecordedMachine:
    """A machine with evidence.

    Attributes:
        slug: its name.
        directory: `report/<machine>`.
        facts: the content of its `machine.json`.
        config: the configuration at hand, whose implementations it is asked about as well.
    """

    slug: str
    directory: Path
    facts: Facts
    config: Config

    @property
    def preset(self) -> str:
        return self.facts["preset"]

    @property
    def environments(self) -> dict[str, Facts]:
        """Digest -> facts of each environment in which it measured."""
        return self.facts["environments"]

    @property
    def devices(self) -> int:
        """The number of its devices, in the environment that had most of them."""
        least = CPU_DEVICES if self.preset == "cpu" else 1
        return max(map(devices_of, self.environments.values()), default=least)

    @cached_property
    def emulates_bf16(self) -> bool:
        """Whether it is a CPU that is slow in bf16, as its rows of `ceilings` say."""
        rows, _ = files_of(load("ceilings"), self.directory).published()
        return bf16.slowdown_in(rows) > bf16.SLOW

    def is_fresh(self, benchmark: Benchmark, row: Row) -> bool:
        """Whether a row's key is the one that it would get in its own environment now."""
        environment = row["environment"]
        topology = topology_of(self.environments.get(environment, {}))
        return is_fresh(self._benchmark_in(benchmark.stem, environment), row, environment, topology)

    @cached_property
    def _benchmark_in(self) -> Callable[[str, str], Benchmark]:
        return cache(self.benchmark)  # each row asks

    def benchmark(self, stem: str, environment: str | None = None) -> Benchmark:
        """A benchmark with the recorded peers and custom implementations, and those configured.

        environment: the environment whose records count; None: all environments.
        """
        records = [self.environments.get(environment, {})]
        if environment is None:
            records = [*self.environments.values()]
        peers = {
            name: version for facts in records for name, version in facts.get("peers", {}).items()
        }
        return load(stem, self.config.external(stem, peers) | declared(records, stem))
