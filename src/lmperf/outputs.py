"""Checks of what a timed call returned, before its numbers are compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from lmperf.benchmark import WrongResult


def tensors_of(result: Sequence[Any], like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a result by name, without their graphs.

    like: name -> a tensor of the shape, dtype and device that it must have; in the result's order.

    Raises:
        WrongResult: another number of tensors, or one of them is of another type (a subclass is:
            it may compute what it holds when it is looked at), shape, dtype or device.
    """
    if not isinstance(result, tuple | list) or len(result) != len(like):
        count = len(result) if isinstance(result, tuple | list) else type(result).__name__
        raise WrongResult(f"returned {count}; it must be {len(like)} tensors ({', '.join(like)})")
    for (name, wanted), got in zip(like.items(), result, strict=True):
        _require(name, got, wanted)
    return {name: got.detach() for name, got in zip(like, result, strict=True)}


def _require(name: str, got: Any, wanted: Tensor) -> None:
    if type(got) is not Tensor:
        raise WrongResult(f"{name} is a {type(got).__name__}; it must be a torch.Tensor")
    facts = {
        "shape": (tuple(got.shape), tuple(wanted.shape)),
        "dtype": (got.dtype, wanted.dtype),
        "device": (got.device, wanted.device),
        "layout": (got.layout, torch.strided),
    }
    for fact, (found, right) in facts.items():
        if found != right:
            raise WrongResult(f"{name} has the {fact} {found}; it must be {right}")


def require_unchanged(names: Iterable[str]) -> None:
    """Raises WrongResult where inputs, by name, are not what they were when the call began."""
    changed = ", ".join(names)
    if changed:
        raise WrongResult(f"the call changed its inputs ({changed}); they must stay as they are")
