"""Checks that torch.compile can work on this machine."""

from __future__ import annotations

import importlib
import os
import shutil
import tempfile

from lmperf.benchmark import Unsupported
from lmperf.errors import UserError

_CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


def require_compiler(device: str) -> None:
    """Import the compiler before the first timed call: the import takes more than a second.

    Raises:
        Unsupported: the device is a CPU and there is no C++ compiler.
    """
    candidates = (os.environ.get("CXX"), "g++", "clang++", "c++")
    if device == "cpu" and not any(name and shutil.which(name) for name in candidates):
        raise Unsupported("torch.compile needs a C++ compiler for a CPU, and none was found")
    importlib.import_module("torch._dynamo")


def require_caches() -> None:
    """Check that the compiler caches named by environment variables are writable.

    Raises:
        UserError: a cache folder is not writable, so that every compilation would fail.
    """
    for name in _CACHES:
        folder = os.environ.get(name)
        try:
            if folder:
                os.makedirs(folder, exist_ok=True)
                with tempfile.TemporaryFile(dir=folder):
                    pass
        except OSError as error:
            words = f"{name} is {folder!r}, which cannot be written ({error.strerror})"
            raise UserError(f"{words}; name another folder, or unset it") from None
