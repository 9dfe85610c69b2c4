"""Whether torch.compile can work here."""

from __future__ import annotations

import os
import shutil

from lmperf.benchmark import Unsupported


def require_compiler(device: str) -> None:
    """Raise Unsupported where torch.compile cannot build its C++ kernels for a CPU."""
    candidates = (os.environ.get("CXX"), "g++", "clang++", "c++")
    if device == "cpu" and not any(name and shutil.which(name) for name in candidates):
        raise Unsupported("torch.compile needs a C++ compiler on a CPU, and there is none")
