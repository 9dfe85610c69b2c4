"""The machine at hand: its name, its facts and the digest of its environment.

Imports no torch, because every start of the workflow detects the machine.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from lmperf.benchmark import FULL, Benchmark
from lmperf.evidence.facts import IDENTIFYING, Facts, devices_of, topology_of
from lmperf.evidence.keys import is_fresh
from lmperf.evidence.store import Row
from lmperf.evidence.syntax import digest
from lmperf.machine import bf16
from lmperf.machine.cpu import core_facts, cpu_model
from lmperf.machine.nvidia import nvidia_facts
from lmperf.machine.software import software_facts, torch_build, torch_version
from lmperf.measuring import processors

# Environment variables that change the result of a matmul, or its speed.
_SETTINGS = (
    "NVIDIA_TF32_OVERRIDE",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
)
GPU_PRESETS = ("gpu", FULL)


@dataclass(frozen=True)
class Machine:
    """The machine that measures.

    Attributes:
        slug: its name, and the name of its folder in `report/`.
        kind: `cuda`, `mps` or `cpu`.
        facts: hardware and software, as written to `machine.json`.
        runs_here: whether this process runs on it; not on the login node of a cluster.
    """

    slug: str
    kind: str
    facts: Facts
    runs_here: bool = True

    @property
    def devices(self) -> int:
        """The number of devices; see `devices_of`."""
        return devices_of(self.facts)

    @property
    def topology(self) -> str:
        """The devices and their links; see `topology_of`."""
        return topology_of(self.facts)

    @property
    def emulates_bf16(self) -> bool:
        """Whether it is a CPU that is slow in bf16: its grids have no matmuls in bf16."""
        if self.kind != "cpu" or torch_version() is None:
            return False
        return bf16.slowdown_of(self.environment) > bf16.SLOW

    @property
    def environment(self) -> str:
        """The digest of device, driver branch, torch, CUDA, Triton, CPU threads and settings."""
        return digest(repr([(name, self.facts.get(name)) for name in IDENTIFYING]))

    def is_fresh(self, benchmark: Benchmark, row: Row) -> bool:
        """Whether a row's key is the one that it would get if it were measured here now."""
        return is_fresh(benchmark, row, self.environment, self.topology)


@cache
def detect(preset: str = "auto", name: str = "auto") -> Machine:
    """Detect the machine at hand.

    Args:
        preset: "cpu" selects the CPU even if there is an accelerator.
        name: the slug to use instead of the one made from the device's name.
    """
    kind = "cpu" if preset == "cpu" else accelerator()
    facts: dict[str, Any] = {"kind": kind, "device": cpu_model()}
    if kind == "cuda":
        facts.update(nvidia_facts())
    facts |= software_facts()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    facts |= {"cpu_model": cpu_model(), **core_facts(), "memory_gib": memory / 2**30}
    facts["threads"] = processors.threads() if kind == "cpu" else None
    facts["settings"] = _settings(facts.get("devices", 1))
    if kind == "cpu" and facts["cores"] != processors.affinity():
        facts["settings"]["CPU quota"] = f"{facts['cores']:g}"
    slug = {"cpu": "cpu-", "mps": "mps-", "cuda": ""}[kind] + slugify(facts["device"])
    suffix = f"-x{facts['devices']}" if facts.get("devices", 1) > 1 else ""
    # A valid name by `lmperf.config.machine_names.slug`.
    slug = (slug[: 64 - len(suffix)].strip("-") or "unnamed") + suffix
    return Machine(slug if name == "auto" else name, kind, facts)


def elsewhere(name: str, recorded: Mapping[str, Any]) -> Machine:
    """Return a machine with GPUs that measures in jobs, seen from a login node without a GPU.

    recorded: the facts of its newest environment; empty if it has not measured yet.
    """
    facts = {"kind": "cuda", "device": None, **recorded, **software_facts()}
    return Machine(name, "cuda", facts, runs_here=False)


def preset_of(preset: str, kind: str, recorded: str = "") -> str:
    """Return the preset whose grid is configured: for "auto" and "quick", that of the device.

    recorded: the preset with which the machine measured before. A quick run measures fewer cells
        and keeps the rows of all, so it has the grid of `full` where there are rows of it.
    """
    if preset not in ("auto", "quick"):
        return preset
    if kind != "cuda":
        return "cpu"
    return FULL if (preset, recorded) == ("quick", FULL) else "gpu"


@cache
def accelerator() -> str:
    """Return the kind of device that the installed torch can use here: cuda, mps or cpu."""
    if torch_build().get("cuda") and nvidia_facts():
        return "cuda"
    return "mps" if sys.platform == "darwin" and platform.machine() == "arm64" else "cpu"


def slugify(text: str) -> str:
    """Return a text as lower-case words joined by hyphens, without (R) and (TM)."""
    return re.sub(r"[^a-z0-9]+", "-", re.sub(r"\((r|tm)\)", "", text.lower())).strip("-")


def _settings(devices: int) -> dict[str, str]:
    """Return the environment variables that change a result or its speed.

    On several devices also the variables of NCCL.
    """
    nccl = [name for name in sorted(os.environ) if re.match("NCCL_(?!DEBUG)", name)]
    names = [*_SETTINGS, *(nccl if devices > 1 else ())]
    return {name: os.environ[name] for name in names if name in os.environ}
