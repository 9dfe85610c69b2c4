"""Detects implementations that return results without doing the work, or that harm others.

These checks run between timed calls and are not timed. The result of a timed call is copied as soon
as its timing ends, and must consist of plain tensors. Torch settings that an implementation
changed are restored. Memory must not grow over many calls.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from lmperf.benchmark import WrongResult

_MIB = 2**20


def snapshot(result: Any) -> Any:
    """Return copies of the tensors that a call returned, in the same structure.

    Raises:
        WrongResult: a tensor is of a subclass, which may postpone its work until it is read.
    """
    for leaf in tree_leaves(result):
        if isinstance(leaf, Tensor) and type(leaf) is not Tensor:
            raise WrongResult(f"returned a {type(leaf).__name__}, which is no plain tensor")
    return tree_map(
        lambda leaf: leaf.detach().clone() if isinstance(leaf, Tensor) else leaf, result
    )


# Torch setting -> (function that reads the setting, function that changes it).
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
def settings_restored(changed: set[str]) -> Iterator[None]:
    """Restore torch's settings after this block; add the names of changed settings to `changed`."""
    before = {name: read() for name, (read, _) in _SETTINGS.items()}
    try:
        yield
    finally:
        for name, (read, put) in _SETTINGS.items():
            if read() != before[name]:
                changed.add(name)
                put(before[name])


def refuse_growth(live_bytes: Sequence[int], least: int = 2, of: str = "readings") -> None:
    """Raise WrongResult if the memory of a phase grows again and again.

    A cache that one call fills is no leak, nor is memory that is freed later.

    Args:
        live_bytes: bytes alive after some calls or slices, once their results are freed.
        least: number of times that the memory must reach a new maximum.
        of: what the entries of `live_bytes` are, for the message.

    Raises:
        WrongResult: memory grew; the message says by how much, and how often.
    """
    highest = list(itertools.accumulate(live_bytes, max))
    growths = sum(after > before for before, after in itertools.pairwise(highest))
    if growths >= least:
        grown = (highest[-1] - highest[0]) / _MIB
        raise WrongResult(
            f"memory grows: by {grown:.3g} MiB over {len(highest) - 1} {of}, in {growths} of them"
        )


def shares_memory(one: Any, other: Any) -> bool:
    """Return whether tensors of two results, both still in use, lie in the same memory."""
    places = [
        {
            leaf.untyped_storage().data_ptr()
            for leaf in tree_leaves(result)
            if isinstance(leaf, Tensor) and leaf.numel()
        }
        for result in (one, other)
    ]
    return bool(places[0] & places[1])
