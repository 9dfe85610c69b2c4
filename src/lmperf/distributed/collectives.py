"""Collectives and copies between ranks, with inputs whose sums are exact, and their check.

An implementation prepares buffers and returns the call that is timed:

    run = prepare(target, source, rank)
    result = run()

`target` and `source` are flat tensors of the size of the message. The size counts as in nccl-tests:
the buffer of every rank for an all-reduce, the gathered buffer for an all-gather, the buffer to be
reduced for a reduce-scatter, and the copied buffer for a copy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from lmperf.benchmark import Phase, Rank, Unsupported
from lmperf.distributed.communication import all_gather_flat, reduce_scatter_flat
from lmperf.gate import Gate
from lmperf.outputs import tensors_of
from lmperf.precision import storage_dtype

Run = Callable[[], Tensor]
Prepare = Callable[[Tensor, Tensor, Rank], Run]

# A number of wrong elements below this bound is none.
_NONE = 0.5
# dtype -> all integers up to this one are exact in it.
_EXACT = {torch.float32: 2**24, torch.bfloat16: 2**8}


def library_copy(target: Tensor, source: Tensor, rank: Rank) -> Run:
    """Copy rank 0's source to rank 1: between two GPUs directly, between CPUs by send and receive.

    Between GPUs, rank 0 copies into a buffer that it allocates on the GPU of rank 1, so that no
    kernel of NCCL takes part; rank 1 does nothing.

    Raises:
        Unsupported: the ranks share a GPU, or that of rank 1 is not visible to rank 0.
    """
    if rank.device == "cuda":
        return _peer_copy(source, rank)
    if rank.number == 0:
        return lambda: _returned(source, dist.send(source, 1))
    return lambda: _returned(target, dist.recv(target, 0))


def _peer_copy(source: Tensor, rank: Rank) -> Run:
    here = [str(torch.cuda.get_device_properties(i).uuid) for i in range(torch.cuda.device_count())]
    known: list[Any] = [None] * rank.ranks
    dist.all_gather_object(known, (here[torch.cuda.current_device()], here))
    (own, visible), (peer, _) = known[:2]
    if own == peer:
        raise Unsupported("the ranks share one GPU: there is no link between them")
    if peer not in visible:
        raise Unsupported("the GPU of rank 1 is not visible to rank 0")
    if rank.number != 0:
        return lambda: source
    there = torch.empty_like(source, device=f"cuda:{visible.index(peer)}")
    return lambda: there.copy_(source, non_blocking=True)


def library_all_reduce(target: Tensor, source: Tensor, rank: Rank) -> Run:
    """Sum `target` over all ranks, in place."""
    return lambda: _returned(target, dist.all_reduce(target))


def library_all_gather(target: Tensor, source: Tensor, rank: Rank) -> Run:
    """Gather a part of `source` from each rank in `target`: from rank r, part r."""
    part = source.chunk(rank.ranks)[rank.number]
    return lambda: _returned(target, all_gather_flat(target, part))


def library_reduce_scatter(target: Tensor, source: Tensor, rank: Rank) -> Run:
    """Sum `source` over all ranks; rank r has part r of the sum, in the first part of `target`."""
    part = target.chunk(rank.ranks)[0]
    return lambda: _returned(part, reduce_scatter_flat(part, source))


def _returned(result: Tensor, _: object) -> Tensor:
    return result


# Operation -> its implementation in PyTorch.
LIBRARY: dict[str, Prepare] = {
    "copy": library_copy,
    "all_reduce": library_all_reduce,
    "all_gather": library_all_gather,
    "reduce_scatter": library_reduce_scatter,
}


class Message:
    """The buffers of one rank, with inputs that every rank can draw for every other one.

    The inputs are random integers so small that every partial sum over the ranks is exact in the
    dtype, in any order: an all-reduce is right only if every element is equal to the sum.

    Attributes:
        source: this rank's input [elements].
        target: the buffer of the results [elements].

    Args:
        dtype: float32 or bfloat16.
        message_bytes: size of the message; see the module.
        rank: this rank; device and number of ranks.
        seed: of the inputs.

    Raises:
        Unsupported: the elements cannot be split evenly among the ranks.
    """

    def __init__(self, dtype: str, message_bytes: int, rank: Rank, seed: int):
        storage = storage_dtype(dtype)
        if message_bytes % (storage.itemsize * rank.ranks):
            raise Unsupported(
                f"{message_bytes} bytes cannot be split among {rank.ranks} ranks in"
                f" elements of {storage.itemsize} bytes"
            )
        self._rank = rank
        elements = message_bytes // storage.itemsize
        self.source = torch.empty(elements, dtype=storage, device=rank.device)
        self.target = torch.empty_like(self.source)
        self.freshen(seed)

    def freshen(self, seed: int) -> None:
        """Draw new inputs from a seed that is the same on every rank."""
        self._drawn = seed
        self._draw(self._rank.number, self.source)

    def _draw(self, number: int, into: Tensor) -> Tensor:
        """Draw the input of rank `number` into a tensor, for the current seed."""
        most = _EXACT[into.dtype] // self._rank.ranks
        seed = ((self._drawn << 8) + number) % 2**63
        generator = torch.Generator(self._rank.device).manual_seed(seed)
        return into.random_(-most, most + 1, generator=generator)

    def phase(self, operation: str, prepare: Prepare) -> Phase:
        """Return the timed phase of an implementation; an all-reduce gets its input beforehand."""
        run = prepare(self.target, self.source, self._rank)
        if operation == "all_reduce":
            return Phase(lambda _: run(), lambda: self.target.copy_(self.source))
        return Phase(lambda _: run())

    def check(self, operation: str, result: Any) -> Gate:
        """Count the wrong elements of a result for the current inputs: `wrong_elements`.

        Raises:
            WrongResult: the result has a wrong type, shape, dtype or device.
        """
        expected = self.expected(operation)
        if isinstance(result, Tensor) and operation == "copy":
            result = result.to(expected.device)
        (got,) = tensors_of((result,), {operation: expected}).values()
        wrong = int((got != expected).sum())
        return Gate({"wrong_elements": float(wrong)}, {"wrong_elements": _NONE})

    def expected(self, operation: str) -> Tensor:
        """The right result on this rank, from the inputs of all ranks."""
        number, ranks = self._rank.number, self._rank.ranks
        one = torch.empty_like(self.source)
        if operation == "copy":
            receives = number == 1 and self._rank.device == "cpu"
            return self._draw(0 if receives else number, one)
        if operation == "all_gather":
            whole = torch.empty_like(self.source)
            for other, part in enumerate(whole.chunk(ranks)):
                part.copy_(self._draw(other, one).chunk(ranks)[other])
            return whole
        total = torch.zeros_like(self.source)
        for other in range(ranks):
            total += self._draw(other, one)
        return total if operation == "all_reduce" else total.chunk(ranks)[number]
