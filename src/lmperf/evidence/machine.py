"""The machine at hand: its slug, its facts and the digest of its environment; and `machine.json`.

Imports no torch, because every start of the workflow detects the machine. The facts about torch
come from its installed files, the facts about the driver from NVML. `machine.json` holds the facts
of all environments in which a machine measured; rows refer to one by the digest in their column
`environment`:

    {"machine": slug, "preset": "gpu", "environments": {digest of an environment: its facts}}
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import itertools
import json
import os
import platform
import re
import runpy
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from lmperf.benchmark import CPU_DEVICES, FULL, Benchmark, Case, ranks_of
from lmperf.errors import UserError
from lmperf.evidence.store import as_written, conflict_in, write_atomically
from lmperf.evidence.syntax import digest
from lmperf.measuring import emulated, processors
from lmperf.measuring.gpus import visible_gpus

# Environment variables that change the result of a matmul, or its speed.
_ENVIRONMENT_VARIABLES = (
    "NVIDIA_TF32_OVERRIDE",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
)
GPU_PRESETS = ("gpu", "full")
# Folders without code: config/, whose values are in the rows, and what lmperf writes.
_NO_CODE = ("config", "report", "site")
# Git sets these for a hook: they name the repository of the hook, wherever Git is asked.
_OF_A_REPOSITORY = {
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_PREFIX"),
    *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE"),
}
# Flag in /proc/cpuinfo -> instruction set, the widest first.
_INSTRUCTION_SETS = {
    "amx_bf16": "AMX BF16",
    "avx512_bf16": "AVX-512 BF16",
    "avx512f": "AVX-512",
    "avx2": "AVX2",
    "sve2": "SVE2",
    "sve": "SVE",
    "asimd": "Neon",
}
FILE = "machine.json"
_MOST_LINKS = 18
# Remote devices of an NVLink: a GPU, or an NVSwitch, through which all GPUs are reached.
_GPU, _SWITCH = 0, 2
_PACKAGE = Path(__file__).resolve().parents[1]
_IDENTIFYING = ("kind", "device", "driver_branch", "torch", "cuda", "triton", "threads", "settings")


@dataclass(frozen=True)
class Machine:
    """The machine that measures.

    Attributes:
        slug: its name, and the name of its folder in `report/`.
        kind: `cuda`, `mps` or `cpu`.
        facts: hardware and software, as written to `machine.json`.
        is_here: whether this process runs on it; not on the login node of a cluster.
    """

    slug: str
    kind: str
    facts: dict[str, Any]
    is_here: bool = True

    @property
    def devices(self) -> int:
        """The number of devices; see `devices_of`."""
        return devices_of(self.facts)

    @property
    def environment(self) -> str:
        """The digest of device, driver branch, torch, CUDA, Triton, CPU threads and settings."""
        return digest(repr([(name, self.facts.get(name)) for name in _IDENTIFYING]))


def devices_of(facts: Mapping[str, Any]) -> int:
    """Return the number of devices of a machine from its facts; a CPU counts as CPU_DEVICES."""
    return CPU_DEVICES if facts.get("kind") == "cpu" else facts.get("devices", 1)


def topology_of(facts: Mapping[str, Any]) -> str:
    """Return the number of GPUs and the links of each pair as a text; empty for one device."""
    if facts.get("devices", 1) < 2:
        return ""
    links = ", ".join(f"{pair} {link}" for pair, link in sorted(facts["links"].items()))
    return f"{facts['devices']} devices: {links}"


def measurable(
    benchmark: Benchmark, cases: Iterable[Case], devices: int, emulates_bf16: bool = False
) -> list[Case]:
    """Return the cases that a machine with so many devices measures.

    emulates_bf16: whether it is a CPU that is slow in bf16; then without matmuls in bf16.
    """
    if benchmark.least_devices > devices:
        return []
    few = [case for case in cases if ranks_of(benchmark, case) <= devices]
    return [case for case in few if not (emulates_bf16 and emulated.is_left_out(benchmark, case))]


def environment_changes(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the differences of two environments, such as ``torch 2.11.0, now 2.13.0``."""
    return [
        f"{name} {then.get(name)}, now {now.get(name)}"
        for name in _IDENTIFYING
        if then.get(name) != now.get(name)
    ]


def slugify(text: str) -> str:
    """Return a text as lower-case words joined by hyphens, without (R) and (TM)."""
    return re.sub(r"[^a-z0-9]+", "-", re.sub(r"\((r|tm)\)", "", text.lower())).strip("-")


@cache
def version_of(package: str) -> str | None:
    """Return the version of a package; None if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


@cache
def _torch_build() -> dict[str, Any]:
    """Return the names in torch/version.py without importing torch; empty without torch."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return {}
    return runpy.run_path(str(Path(spec.origin).parent / "version.py"))


def torch_version() -> str | None:
    """Return the version of the installed torch; None if torch is not installed."""
    return _torch_build().get("__version__")


@cache
def accelerator() -> str:
    """Return the kind of device that the installed torch can use here: cuda, mps or cpu."""
    if _torch_build().get("cuda") and _nvidia_facts():
        return "cuda"
    return "mps" if sys.platform == "darwin" and platform.machine() == "arm64" else "cpu"


@cache
def _nvidia_facts() -> dict[str, Any]:
    """Return the facts of the visible NVIDIA devices; empty if there is none.

    All facts are those of the first device, apart from `devices` (their number) and `links`, which
    a machine with one visible device lacks.
    """
    import pynvml as nvml

    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    # A slice of a GPU (MIG) is none of the GPUs, but NVML finds it; CUDA uses only the first one.
    slices = [visible.split(",")[0].strip()] if visible.startswith("MIG-") else []
    if not (uuids := visible_gpus() or slices):
        return {}
    try:
        handle, *others = handles = [nvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in uuids]
        driver = nvml.nvmlSystemGetDriverVersion()
        facts = {
            "device": nvml.nvmlDeviceGetName(handle),
            "driver": driver,
            "driver_branch": driver.partition(".")[0],
            "device_memory_gib": nvml.nvmlDeviceGetMemoryInfo(handle).total / 2**30,
            "clock_sm_mhz": nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM),
            "clock_memory_mhz": nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_MEM),
        }
    except nvml.NVMLError:
        return {}
    try:
        facts["power_limit_w"] = nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000
    except nvml.NVMLError:
        facts["power_limit_w"] = None
    if others:
        facts |= {"devices": len(handles), "links": _links(nvml, handles)}
    return facts


def _settings(devices: int) -> dict[str, str]:
    """Return the environment variables that change a result or its speed.

    On several devices also the variables of NCCL.
    """
    nccl = [name for name in sorted(os.environ) if re.match("NCCL_(?!DEBUG)", name)]
    names = [*_ENVIRONMENT_VARIABLES, *(nccl if devices > 1 else ())]
    return {name: os.environ[name] for name in names if name in os.environ}


def _links(nvml: Any, handles: Sequence[Any]) -> dict[str, str]:
    """Return the connection of each pair of devices, such as `{"0-1": "NV18"}`.

    `NV` and a number: as many NVLinks. `host`: a path through the host.
    """
    pairs = itertools.combinations(range(len(handles)), 2)
    return {f"{a}-{b}": _link(nvml, handles[a], handles[b]) for a, b in pairs}


def _link(nvml: Any, one: Any, other: Any) -> str:
    count = min(_nvlinks(nvml, one, other), _nvlinks(nvml, other, one))
    return f"NV{count}" if count else "host"


def _nvlinks(nvml: Any, one: Any, other: Any) -> int:
    """Return the number of active NVLinks of a device that lead to another one or to a switch."""
    found = 0
    for link in range(_MOST_LINKS):
        try:
            if nvml.nvmlDeviceGetNvLinkState(one, link):
                kind = nvml.nvmlDeviceGetNvLinkRemoteDeviceType(one, link)
                remote = nvml.nvmlDeviceGetNvLinkRemotePciInfo(one, link) if kind == _GPU else None
                there = remote and remote.busId == nvml.nvmlDeviceGetPciInfo(other).busId
                found += kind == _SWITCH or bool(there)
        except nvml.NVMLError:  # the device has no such link
            continue
    return found


@cache
def _cpu_model() -> str:
    """Return the name of the CPU; if it has no number, with the widest instruction set for matmuls.

    Virtual machines may hide the model: then one of two CPUs of the same name may have instructions
    for bf16 that the other lacks.
    """
    if sys.platform == "darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()
    path = Path("/proc/cpuinfo")
    text = path.read_text() if path.exists() else ""
    model = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    name = model[1].strip() if model else platform.processor() or platform.machine()
    flags = set(re.findall(r"\w+", text))
    widest = next((words for flag, words in _INSTRUCTION_SETS.items() if flag in flags), None)
    return f"{name}, {widest}" if widest and not re.search(r"\d", name) else name


def _core_facts() -> dict[str, float]:
    """Return how many CPU cores this process may use and, if those are not all, how many exist."""
    usable, there = processors.usable(), os.cpu_count()
    found = {"cores": int(usable) if usable.is_integer() else usable}
    return found if usable == there else {**found, "cores_of_host": there}


def git(folder: Path, *arguments: str) -> bytes:
    """Return the output of a Git command in a folder, of the repository that the folder is in.

    Raises:
        UserError: it failed, or Git cannot be run.
    """
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    try:
        environ = {name: of for name, of in os.environ.items() if name not in _OF_A_REPOSITORY}
        done = subprocess.run(command, capture_output=True, env=environ)
    except OSError as error:
        raise UserError(f"git cannot be run: {error.strerror}") from None
    if done.returncode:
        raise UserError(done.stderr.decode(errors="replace").strip().partition("\n")[0])
    return done.stdout


def git_text(folder: Path, *arguments: str) -> str:
    """Return the output of a Git command as a text; errors as for `git`."""
    return git(folder, *arguments).decode(errors="replace").strip()


def commit_facts(root: Path, no_code: Iterable[str] = _NO_CODE) -> tuple[dict[str, Any], str]:
    """Return the commit of the code that measures (`commit`) and whether it differs (`dirty`); both
    are None if Git fails, and then its message is the second result.

    It is the commit of the repository at `root`, and outside Git that of lmperf's own checkout. The
    code differs if a tracked file there, but outside the folders `no_code`, was changed, or if a
    Python file is untracked and not ignored. Without a Git repository (an exported tree, a
    container) the variable LMPERF_COMMIT names the commit; then `dirty` is None.
    """
    if named := os.environ.get("LMPERF_COMMIT"):
        return {"commit": named, "dirty": None}, ""
    return _commit(root, no_code) if is_in_git(root) else _commit(_PACKAGE)


def commit_words(facts: Mapping[str, Any]) -> str:
    """Return a commit as rows name it: twelve digits, and `-dirty` if the code differs from it."""
    return (facts["commit"] or "unknown")[:12] + "-dirty" * bool(facts["dirty"])


def _commit(place: Path, no_code: Iterable[str] = _NO_CODE) -> tuple[dict[str, Any], str]:
    code = [".", *(f":(exclude){folder}" for folder in no_code)]
    try:
        commit = git_text(place, "log", "-1", "--no-show-signature", "--format=%H")
        status = git_text(place, "status", "--porcelain", "--untracked-files=all", "--", *code)
    except UserError as error:
        return {"commit": None, "dirty": None}, str(error)
    lines = status.splitlines()
    changed = [one for one in lines if not one.startswith("??") or one.strip('"').endswith(".py")]
    return {"commit": commit, "dirty": bool(changed)}, ""


def lmperf_version(root: Path) -> str | None:
    """Return the version of lmperf that runs, with its commit if it runs from another checkout.

    None if lmperf is not installed. In a checkout of lmperf at `root`, the commit of the rows says
    more than the version.
    """
    version = version_of("lmperf")
    with contextlib.suppress(UserError):
        tops = {git_text(place, "rev-parse", "--show-toplevel") for place in (_PACKAGE, root)}
        # Not if it was installed in a folder that Git ignores.
        if version and len(tops) == 2 and git_text(_PACKAGE, "ls-files", "--", "."):
            return f"{version} ({commit_words(_commit(_PACKAGE)[0])})"
    return version


def is_in_git(folder: Path) -> bool:
    """Return whether a folder lies in a Git repository, or in a worktree of one."""
    return any((up / ".git").exists() for up in (folder.resolve(), *folder.resolve().parents))


def _software_facts() -> dict[str, Any]:
    return {
        "torch": torch_version(),
        "cuda": _torch_build().get("cuda"),
        "triton": version_of("triton"),
        "python": platform.python_version(),
        "os": f"{platform.system()} {platform.release()}",
    }


@cache
def detect(preset: str = "auto", name: str = "auto") -> Machine:
    """Detect the machine at hand.

    Args:
        preset: "cpu" selects the CPU even if there is an accelerator.
        name: the slug to use instead of the one made from the device's name.

    Raises:
        UserError: the preset is "gpu" and there is no CUDA device.
    """
    kind = "cpu" if preset == "cpu" else accelerator()
    if preset in GPU_PRESETS and kind != "cuda":
        raise UserError(
            f"config: preset is {preset}, but torch finds no CUDA device here; use auto or cpu. On"
            " the login node of a cluster name the machine that measures, as in machine: h100"
        )
    facts: dict[str, Any] = {"kind": kind, "device": _cpu_model()}
    if kind == "cuda":
        facts.update(_nvidia_facts())
    facts |= _software_facts()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    facts |= {"cpu_model": _cpu_model(), **_core_facts(), "memory_gib": memory / 2**30}
    facts["threads"] = processors.threads() if kind == "cpu" else None
    facts["settings"] = _settings(facts.get("devices", 1))
    if kind == "cpu" and facts["cores"] != processors.affinity():
        facts["settings"]["CPU quota"] = f"{facts['cores']:g}"
    slug = {"cpu": "cpu-", "mps": "mps-", "cuda": ""}[kind] + slugify(facts["device"])
    suffix = f"-x{facts['devices']}" if facts.get("devices", 1) > 1 else ""
    # A valid name by `lmperf.config.slug`.
    slug = (slug[: 64 - len(suffix)].strip("-") or "unnamed") + suffix
    return Machine(slug if name == "auto" else name, kind, facts)


def elsewhere(name: str, recorded: Mapping[str, Any]) -> Machine:
    """Return a machine with GPUs that measures in jobs, seen from a login node without a GPU.

    recorded: the facts of its newest environment; empty if it has not measured yet.
    """
    facts = {"kind": "cuda", "device": None, **recorded, **_software_facts()}
    return Machine(name, "cuda", facts, is_here=False)


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


Facts = dict[str, Any]


class _Facts(BaseModel, extra="allow"):
    machine: str
    preset: str
    environments: dict[str, dict[str, Any]]
    anyway: dict[str, str] | None = None


def read_facts(directory: Path, machine: str = "") -> tuple[Facts, str]:
    """Return the content of `machine.json` in a folder, and a message if the file is damaged.

    Then, and if there is no file, the facts are those of a machine that has not measured.

    machine: whose facts they must be; by default those of any machine.
    """
    path, nothing = directory / FILE, _empty(machine or directory.name)
    if not path.exists():
        return nothing, ""
    content = as_written(path.read_bytes())
    if line := conflict_in(content):
        return nothing, f"{path}: line {line} is a conflict marker of a merge; take one side"
    try:
        facts = _Facts.model_validate_json(content).model_dump(exclude_unset=True)
    except ValidationError as error:
        first = error.errors()[0]
        problem = ": ".join(map(str, (*first["loc"], first["msg"])))
        return nothing, f"{path} does not hold the facts of a machine: {problem}"
    if facts["machine"] != (machine or facts["machine"]):
        return nothing, f"{path} belongs to the machine {facts['machine']}"
    return facts, ""


def _empty(machine: str) -> Facts:
    """Return the facts of a machine without `machine.json`; its slug decides the preset."""
    preset = "cpu" if machine.startswith(("cpu-", "mps-")) else "gpu"
    return {"machine": machine, "preset": preset, "environments": {}}


def write_facts(directory: Path, facts: Facts) -> None:
    """Write these facts to `machine.json`."""
    write_atomically(directory / FILE, (json.dumps(facts, indent=2) + "\n").encode())
