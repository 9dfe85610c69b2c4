"""Passes of our attention whose kernels are in Gluon, Triton's experimental lower-level language.

Which of these kernels a version of Triton can compile is not known beforehand. So the first call of
each pass tries them. If they fail, the kernels in Triton's own language run from then on.

Benchmarks import this module to say which kernels ran; it imports no kernel.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

# Pass, forward or backward -> calls in Gluon in this process.
CALLS: Counter[str] = Counter()
# Pass -> why it does not run in Gluon in this process.
FAULTS: dict[str, str] = {}


class Attempt:
    """Launches of a pass for one signature: those in Gluon, or if they fail those in Triton.

    Args:
        name: forward or backward.
        in_gluon, in_triton: functions that make the launches, which take the same tensors.

    Attributes:
        launches: those that the first call chose; None before it.
    """

    def __init__(
        self, name: str, in_gluon: Callable[[], Callable], in_triton: Callable[[], Callable]
    ):
        self._name, self._in_gluon, self._in_triton = name, in_gluon, in_triton
        self._is_gluon = False
        self.launches: Callable | None = None

    def __call__(self, *tensors: Any) -> Any:
        if self.launches is None:
            return self._first(tensors)
        if self._is_gluon:
            CALLS[self._name] += 1
        return self.launches(*tensors)

    def _first(self, tensors: tuple) -> Any:
        if self._name not in FAULTS:
            try:
                launches = self._in_gluon()
                results = launches(*tensors)
            except torch.OutOfMemoryError:
                raise
            # What an unknown version raises cannot be listed.
            except Exception as error:
                self._give_up(error)
            else:
                self.launches, self._is_gluon = launches, True
                CALLS[self._name] += 1
                return results
        self.launches = self._in_triton()
        return self.launches(*tensors)

    def _give_up(self, error: Exception) -> None:
        message = str(error).strip().splitlines()
        # Compilers quote the source first and name the fault last.
        FAULTS[self._name] = f"{type(error).__name__}: {message[-1] if message else ''}"[:200]
        warnings.warn(
            f"attention {self._name}: the kernels in Gluon failed, so those in Triton run"
            f" ({FAULTS[self._name]})",
            RuntimeWarning,
            stacklevel=2,
        )


def columns(since: Counter[str]) -> dict[str, str]:
    """Columns of a row: the passes that ran in Gluon since, and why others no longer do."""
    ran = [name for name in ("forward", "backward") if CALLS[name] > since[name]]
    faults = [f"{name}: {fault}" for name, fault in FAULTS.items()]
    return {"gluon": ", ".join(ran), "gluon_fault": "; ".join(faults)}
