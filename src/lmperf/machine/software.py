"""The installed software: the versions of packages, and how torch was built, without torch."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import runpy
from functools import cache
from pathlib import Path
from typing import Any


@cache
def version_of(package: str) -> str | None:
    """Return the version of a package; None if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


@cache
def torch_build() -> dict[str, Any]:
    """Return the names in torch/version.py without importing torch; empty without torch."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return {}
    return runpy.run_path(str(Path(spec.origin).parent / "version.py"))


def torch_version() -> str | None:
    """Return the version of the installed torch; None if torch is not installed."""
    return torch_build().get("__version__")


def software_facts() -> dict[str, Any]:
    """Return the versions of torch, CUDA, Triton, Python and the operating system."""
    return {
        "torch": torch_version(),
        "cuda": torch_build().get("cuda"),
        "triton": version_of("triton"),
        "python": platform.python_version(),
        "os": f"{platform.system()} {platform.release()}",
    }
