"""The CPU of the machine at hand: its name, and how many of its cores a process may use."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

from lmperf.measuring import processors

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


@cache
def cpu_model() -> str:
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


def core_facts() -> dict[str, float]:
    """Return how many CPU cores this process may use and, if those are not all, how many exist."""
    usable, existing = processors.usable(), os.cpu_count()
    cores = {"cores": int(usable) if usable.is_integer() else usable}
    return cores if usable == existing else {**cores, "cores_of_host": existing}
