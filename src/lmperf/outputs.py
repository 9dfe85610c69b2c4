"""Checks the form of the tensors that a timed call returned, before their values are compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from lmperf.benchmark import WrongResult


def plain(
    name: str, got: Any, shape: Sequence[int], device: torch.device, dtype: torch.dtype | None
) -> Tensor:
    """Return what a call returned, detached, if it is a strided tensor of this form.

    name: as messages call it, such as "the loss". dtype: None accepts any.

    Raises:
        WrongResult: it has a wrong type, shape, dtype, device or layout. Tensor subclasses are
            rejected: they may postpone the work until they are read.
    """
    if type(got) is not Tensor:
        raise WrongResult(f"{name} is a {type(got).__name__}; it must be a torch.Tensor")
    facts = {
        "shape": (tuple(got.shape), tuple(shape)),
        "dtype": (got.dtype, dtype or got.dtype),
        "device": (got.device, device),
        "layout": (got.layout, torch.strided),
    }
    for fact, (found, right) in facts.items():
        if found != right:
            raise WrongResult(f"{name} has the {fact} {found}; it must be {right}")
    return got.detach()


def tensors_of(result: Sequence[Any], like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a result by name, detached from their autograd graphs.

    like: name -> a tensor of the expected shape, dtype and device, in the order of the result.

    Raises:
        WrongResult: the number of tensors is wrong, or one of them is not as in `plain`.
    """
    if not isinstance(result, tuple | list) or len(result) != len(like):
        count = len(result) if isinstance(result, tuple | list) else type(result).__name__
        raise WrongResult(f"returned {count}; it must be {len(like)} tensors ({', '.join(like)})")
    return {
        name: plain(name, got, wanted.shape, wanted.device, wanted.dtype)
        for (name, wanted), got in zip(like.items(), result, strict=True)
    }


def require_unchanged(names: Iterable[str]) -> None:
    """Raise WrongResult if a call changed its inputs; `names`: the inputs that it changed."""
    changed = ", ".join(names)
    if changed:
        raise WrongResult(f"the call changed its inputs ({changed}); they must stay as they are")
