"""Collectives of one call, and what gloo cannot do with two such calls at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist
from torch.distributed.distributed_c10d import _coalescing_manager


@contextmanager
def coalesced(async_ops: bool) -> Iterator[Any]:
    """While active, collectives are collected; they are started together at the end.

    Yields what has a `wait` from then on. On gloo they have ended by then: two all-gathers of
    several tensors at once corrupt the heap (seen with torch 2.13).

    async_ops: whether to return before they have ended.
    """
    with _coalescing_manager(async_ops=async_ops) as calls:
        yield calls
    if async_ops and dist.get_backend() == "gloo":
        calls.wait()
