"""Compiling as if for the first time: what an earlier run has left is neither used nor touched.

With it first calls would be a tenth as long, and each run's would tell of another thing.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator

from lmperf.errors import UserError

_INDUCTOR = "TORCHINDUCTOR_CACHE_DIR"


@contextlib.contextmanager
def compiling_anew() -> Iterator[None]:
    """Have what this process starts keep what Inductor compiles in a folder that goes with the
    context, inside the one that the environment names.

    Raises:
        UserError: no folder can be made.
    """
    given = os.environ.get(_INDUCTOR)
    try:
        new = tempfile.TemporaryDirectory(
            prefix="lmperf-inductor-", dir=given, ignore_cleanup_errors=True
        )
    except OSError as error:
        words = "there is no folder for what is compiled"
        raise UserError(f"{words} ({error.strerror}); set TMPDIR to one with room") from None
    with new as folder:
        os.environ[_INDUCTOR] = folder
        try:
            yield
        finally:
            os.environ.pop(_INDUCTOR)
            if given is not None:
                os.environ[_INDUCTOR] = given
