"""Gives a run an empty compile cache, so that the times of first calls can be compared.

With the cache of an earlier run, first calls would take a tenth of the time.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator

from lmperf.errors import UserError

_INDUCTOR = "TORCHINDUCTOR_CACHE_DIR"


@contextlib.contextmanager
def empty_compile_cache() -> Iterator[None]:
    """Use a new Inductor cache in this block.

    It is a temporary folder inside the folder that TORCHINDUCTOR_CACHE_DIR names, if any, which is
    created if it does not exist.

    Raises:
        UserError: the folder cannot be created.
    """
    given = os.environ.get(_INDUCTOR)
    try:
        if given:
            os.makedirs(given, exist_ok=True)
        new = tempfile.TemporaryDirectory(
            prefix="lmperf-inductor-", dir=given, ignore_cleanup_errors=True
        )
    except OSError as error:
        variable = f"{_INDUCTOR} (now {given})" if given else "TMPDIR"
        words = f"no folder can be created for the compile cache ({error.strerror})"
        raise UserError(f"{words}; set {variable} to a folder with free space") from None
    with new as folder:
        os.environ[_INDUCTOR] = folder
        try:
            yield
        finally:
            os.environ.pop(_INDUCTOR)
            if given is not None:
                os.environ[_INDUCTOR] = given
