"""Guards: what keeps an implementation from being timed for something that it does not do.

They stand around the calls, outside the clock: what a timed call returned is copied as it was when
its clock stopped, and must be plain tensors; torch's settings are put back; memory must not grow.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from lmperf.benchmark import WrongResult

_MIB = 2**20


def snapshot(result: Any) -> Any:
    """Copies of the tensors that a call returned, as they are now.

    Raises:
        WrongResult: one of them is no plain tensor: a subclass may put off its work.
    """
    for leaf in tree_leaves(result):
        if isinstance(leaf, Tensor) and type(leaf) is not Tensor:
            raise WrongResult(f"returned a {type(leaf).__name__}, which is no plain tensor")
    return tree_map(
        lambda leaf: leaf.detach().clone() if isinstance(leaf, Tensor) else leaf, result
    )


# Name -> how it is read and how it is set.
_SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "gradients": (torch.is_grad_enabled, torch.set_grad_enabled),
    "default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "threads": (torch.get_num_threads, torch.set_num_threads),
    "float32 matmul precision": (
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
    ),
    "deterministic algorithms": (
        torch.are_deterministic_algorithms_enabled,
        torch.use_deterministic_algorithms,
    ),
}


@contextlib.contextmanager
def settings_kept(left: set[str]) -> Iterator[None]:
    """Put torch's settings back as they were; the names of those that had changed go to `left`."""
    before = {name: read() for name, (read, _) in _SETTINGS.items()}
    try:
        yield
    finally:
        for name, (read, put) in _SETTINGS.items():
            if read() != before[name]:
                left.add(name)
                put(before[name])


def refuse_growth(live_bytes: list[int]) -> None:
    """Refuse a phase after each of whose calls more memory is alive than after the one before.

    live_bytes: after three or more calls, the results of which were let go. A cache that the first
    call makes is no leak.

    Raises:
        WrongResult: by how much it grows.
    """
    steps = [after - before for before, after in itertools.pairwise(live_bytes)]
    if len(steps) > 1 and min(steps) > 0:
        raise WrongResult(f"memory grows by {min(steps) / _MIB:.3g} MiB with every call")
