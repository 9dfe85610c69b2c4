"""Whether compilers can work here."""

from __future__ import annotations

import importlib
import os
import shutil
import tempfile

from lmperf.benchmark import Unsupported
from lmperf.errors import UserError

_CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


def require_compiler(device: str) -> None:
    """Make the compiler ready, so that no first call holds its import, of more than a second.

    Raises:
        Unsupported: torch.compile cannot build its C++ kernels for a CPU.
    """
    candidates = (os.environ.get("CXX"), "g++", "clang++", "c++")
    if device == "cpu" and not any(name and shutil.which(name) for name in candidates):
        raise Unsupported("torch.compile needs a C++ compiler on a CPU, and there is none")
    importlib.import_module("torch._dynamo")


def require_caches() -> None:
    """Whether the folders that the environment names for what compilers keep can be written.

    Raises:
        UserError: one cannot, in which case every first call of a compiled case would fail.
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
