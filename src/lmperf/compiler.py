"""Whether torch.compile can work here."""

from __future__ import annotations

import importlib
import os
import shutil

from lmperf.benchmark import Unsupported


def require_compiler(device: str) -> None:
    """Make the compiler ready, so that no first call holds its import, of more than a second.

    Raises:
        Unsupported: torch.compile cannot build its C++ kernels for a CPU.
    """
    candidates = (os.environ.get("CXX"), "g++", "clang++", "c++")
    if device == "cpu" and not any(name and shutil.which(name) for name in candidates):
        raise Unsupported("torch.compile needs a C++ compiler on a CPU, and there is none")
    importlib.import_module("torch._dynamo")
