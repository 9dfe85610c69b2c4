"""Checks that torch.compile and Triton can work on this machine."""

from __future__ import annotations

import importlib.util
import os
import shutil

from lmperf.benchmark import Unsupported


def require_triton() -> None:
    """Raise Unsupported unless Triton is installed."""
    if importlib.util.find_spec("triton") is None:
        raise Unsupported("Triton is not installed, or has no wheel for this platform")


def require_compiler(device: str) -> None:
    """Import the compiler before the first timed call: the import takes more than a second.

    Raises:
        Unsupported: the device is a CPU and there is no C++ compiler.
    """
    candidates = (os.environ.get("CXX"), "g++", "clang++", "c++")
    if device == "cpu" and not any(name and shutil.which(name) for name in candidates):
        raise Unsupported("torch.compile needs a C++ compiler for a CPU, and none was found")
    importlib.import_module("torch._dynamo")
