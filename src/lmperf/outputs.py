"""Checks the form of the tensors that a timed call returned, before their values are compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from lmperf.benchmark import WrongResult


def tensors_of(result: Sequence[Any], like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a result by name, detached from their autograd graphs.

    like: name -> a tensor of the expected shape, dtype and device, in the order of the result.

    Raises:
        WrongResult: the number of tensors is wrong, or a tensor has a wrong type, shape, dtype,
            device or layout. Tensor subclasses are rejected: they may postpone the work until they
            are read.
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
    """Raise WrongResult if a call changed its inputs; `names`: the inputs that it changed."""
    changed = ", ".join(names)
    if changed:
        raise WrongResult(f"the call changed its inputs ({changed}); they must stay as they are")
