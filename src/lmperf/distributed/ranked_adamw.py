"""`FusedAdamW` on several ranks: data parallel, or with its state sharded (ZeRO stage 1).

The gradients of a rank's part of the batch are averaged over the ranks during the backward pass, in
buckets: one call averages several gradients where autograd puts them, without a copy. A gradient is
averaged in its own dtype. That of a weight with a bf16 copy is bf16, half as many bytes as float32.
Two ranks add their gradients in float32 and round the sum once, to bf16. Among n ranks, NCCL's ring
rounds each of its n - 1 partial sums.

Sharded (Rajbhandari et al. 2020, arXiv 1910.02054), rank r updates part r of the elements of each
weight. It has their moments, their float32 values if the weight has a bf16 copy, and receives their
average gradients alone. Then the ranks gather what the forward and backward pass read: the copy, or
the weight itself. The gathers of a bucket run while the next one is updated.

A CUDA graph contains the collectives of its step. `lmperf.distributed.ranked_trainer` trains so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lmperf.benchmark import Unsupported
from lmperf.distributed.communication import (
    alike_groups,
    all_gather_flat,
    average_op,
    broadcast_state,
    divided,
    gradient_bytes,
    reduce_scatter_flat,
    weak_hook,
)

# Under the name of the function that it calls: another one would make rows stale.
from lmperf.measuring.coalesced import coalesced as _coalescing_manager
from lmperf.transformer.copied_linear import with_copies
from lmperf.transformer.fused_adamw import FusedAdamW, global_norm
from lmperf.transformer.model import TransformerLM
from lmperf.transformer.training import ParameterGroups

_MB = 10**6
# Buckets of a backward pass: few enough that a call sends many bytes, and so many that little is
# left when the backward pass ends.
_BUCKETS = 16


class RankedAdamW(FusedAdamW):
    """`FusedAdamW` on gradients that are averaged over the ranks during the backward pass.

    Every parameter gets one gradient between `zero_grad` and `step`. The ranks have the same
    weights before the first step.

    Args:
        parameters, lr, copies, max_norm: as of `FusedAdamW`.
        sharded: whether a rank updates its part of each weight alone. `param_groups` then has the
            parts; weights with a copy are NaN, and `whole` gathers them. A weight whose elements do
            not split evenly is updated on every rank.
        bucket_mb: gradients of so many MB (10^6 bytes) are averaged by one call; a larger one by a
            call of its own. None: a sixteenth of all gradients.
    """

    # Read by nothing. Without it the rows of this class would be stale.
    sums_micro_batches = False

    def __init__(
        self,
        parameters: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float,
        copies: Mapping[Tensor, Tensor] | None = None,
        max_norm: float | None = None,
        sharded: bool = False,
        bucket_mb: float | None = None,
    ):
        copies, given = copies or {}, list(parameters)
        groups = given if isinstance(given[0], dict) else [{"params": given}]
        every = [parameter for group in groups for parameter in group["params"]]
        most = sum(map(gradient_bytes, every)) / _BUCKETS if bucket_mb is None else bucket_mb * _MB
        buckets = [
            (_Bucket(weights, copies, is_split), group)
            for group in groups
            for is_split, weights in _buckets_of(group["params"], sharded, most)
        ]
        self._buckets = [bucket for bucket, _ in buckets]
        copies = {master: copy for bucket in self._buckets for master, copy in bucket.copies}
        masters = [{**group, "params": [*bucket.masters.values()]} for bucket, group in buckets]
        super().__init__(masters, lr, copies, max_norm)
        self._is_split = any(bucket.is_split for bucket in self._buckets)
        self._owners = {weight: bucket for bucket in self._buckets for weight in bucket.weights}
        # Numbers of buckets in the order in which they were complete: on every rank the same, since
        # all run one program.
        self._complete: list[int] = []
        for number, bucket in enumerate(self._buckets):
            for leaf in bucket.leaves:
                leaf.register_post_accumulate_grad_hook(weak_hook(self._ready, number))

    def _ready(self, number: int) -> None:
        bucket = self._buckets[number]
        bucket.expect_one_less()
        if bucket.is_complete:
            bucket.reduce()
            self._complete.append(number)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients, and expect those of another backward pass."""
        self._complete.clear()
        for bucket in self._buckets:
            bucket.clear()

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Update this rank's part of the weights, or all of them, and gather those of others.

        Raises:
            ValueError: a parameter has no gradient.
        """
        if len(self._complete) < len(self._buckets):
            raise ValueError("a parameter has no gradient: on several ranks each needs one")
        scale = self._scale()
        for number in self._complete:
            self._buckets[number].finish()
            self._step(self.param_groups[number], scale)
            self._buckets[number].gather()
        for bucket in self._buckets:
            bucket.wait()

    def _norm(self) -> Tensor:
        """The global norm of the averages on all ranks."""
        squares = {True: torch.zeros_like(self.gradient_norm)}
        squares[False] = squares[True].clone()
        for bucket in self._buckets:
            bucket.finish()
            gradients = [master.grad for master in bucket.masters.values()]
            squares[bucket.is_split] += global_norm(gradients).square()
        if self._is_split:
            dist.all_reduce(squares[True])
        return (squares[True] + squares[False]).sqrt()

    def state_dict(self) -> dict[str, Any]:
        """As of any optimizer.

        Raises:
            Unsupported: the state is sharded.
        """
        if self._is_split:
            raise Unsupported(
                "a sharded state cannot be saved: train data parallel, or save `whole`"
            )
        return super().state_dict()

    def whole(self, weight: nn.Parameter, gradient: bool = False) -> Tensor:
        """The current value of a weight, or its average gradient, gathered on all ranks."""
        return self._owners[weight].whole(weight, gradient)


class TrainingAdamW(RankedAdamW):
    """`RankedAdamW` for a whole training: with micro-batches, and a state to save and to load.

    Args:
        groups: of parameters, as `torch.optim.AdamW` takes them.
        lr, copies, max_norm, sharded: as of `RankedAdamW`.

    Attributes:
        micro_batches: backward passes of the next step. Gradients are averaged during the last.
    """

    def __init__(
        self,
        groups: list[dict[str, Any]],
        lr: float,
        copies: Mapping[Tensor, Tensor],
        max_norm: float | None,
        sharded: bool,
    ):
        super().__init__(groups, lr, copies, max_norm, sharded)
        self._weights = [group["params"] for group in groups]
        self.micro_batches = 1

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients, and expect those of all micro-batches of a step."""
        super().zero_grad(set_to_none)
        for bucket in self._buckets:
            bucket._left *= self.micro_batches

    def state_dict(self) -> dict[str, Any]:
        """The state that a `FusedAdamW` of the same groups has in one process, on the CPU.

        All ranks call it: the state is gathered, one tensor at a time. Rank 0 gets it; on the other
        ranks its tensors are None.
        """
        state: dict[int, dict[str, Tensor | None]] = {}
        groups = []
        for weights in self._weights:
            numbers = range(len(state), len(state) + len(weights))
            options = self._group_of(weights[0])
            groups.append({**options, "lr": float(options["lr"]), "params": [*numbers]})
            for number, weight in zip(numbers, weights, strict=True):
                moments = self._state_of(self._owners[weight].masters[weight])
                state[number] = {
                    name: self._on_first_rank(weight, value) for name, value in moments.items()
                }
        return {"state": state, "param_groups": groups}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load the state of rank 0, or of a `FusedAdamW` in one process; a rank takes its parts."""
        for weights, group in zip(self._weights, state["param_groups"], strict=True):
            options = {name: value for name, value in group.items() if name != "params"}
            for weight, number in zip(weights, group["params"], strict=True):
                self._group_of(weight).update(options)
                bucket = self._owners[weight]
                for name, value in self._state_of(bucket.masters[weight]).items():
                    whole = state["state"][number][name]
                    value.copy_(bucket._part(whole) if value.ndim else whole)

    @torch.no_grad()
    def load_weights(self, values: Mapping[Tensor, Tensor]) -> None:
        """Overwrite the weights, and their copies. values: weight -> its whole value."""
        for bucket in self._buckets:
            for weight, leaf in zip(bucket.weights, bucket.leaves, strict=True):
                bucket.masters[weight].copy_(bucket._part(values[weight]))
                leaf.copy_(values[weight])

    def _group_of(self, weight: nn.Parameter) -> dict[str, Any]:
        """The group of the bucket that a weight is in."""
        return self.param_groups[self._buckets.index(self._owners[weight])]

    def _on_first_rank(self, weight: nn.Parameter, value: Tensor) -> Tensor | None:
        """A moment of a weight, gathered, on the CPU of rank 0. value: of this rank's part."""
        if value.ndim and self._owners[weight].is_split:
            whole = torch.empty(weight.shape, dtype=value.dtype, device=value.device)
            all_gather_flat(whole.view(-1), value)
            value = whole
        return value.cpu() if dist.get_rank() == 0 else None


def _buckets_of(
    weights: list[nn.Parameter], sharded: bool, most: float
) -> Iterable[tuple[bool, list[nn.Parameter]]]:
    """Yield (whether ranks update parts, weights) of each bucket, of at most `most` bytes.

    weights: in the order of the model. Their gradients come in the opposite one.
    """
    ranks = dist.get_world_size()

    def kind(weight: nn.Parameter) -> tuple[bool, str]:
        return sharded and weight.numel() % ranks == 0, str(weight.grad_dtype)

    for (is_split, _), alike in groupby(sorted(reversed(weights), key=kind), kind):
        for bucket in alike_groups(list(alike), most):
            yield is_split, bucket


class _Bucket:
    """Weights whose gradients are averaged by one call.

    Attributes:
        weights: of the model.
        leaves: of autograd, which get the gradients: the copies of weights, or weights.
        masters: weight -> what this rank updates: the weight, or a flat part of it.
        copies: (master, its copy) of those that have one.
        is_split: whether ranks update parts.
        is_complete: whether all gradients are there.
    """

    def __init__(
        self, weights: list[nn.Parameter], copies: Mapping[Tensor, Tensor], is_split: bool
    ):
        self.weights, self.is_split = weights, is_split
        self.leaves = [copies.get(weight, weight) for weight in weights]
        self.masters = {weight: self._master(weight, weight in copies) for weight in weights}
        self.copies = [
            (master, self._part(copies[weight]))
            for weight, master in self.masters.items()
            if weight in copies
        ]
        self._calls: Any = None
        self._left = len(weights)

    def _part(self, tensor: Tensor) -> Tensor:
        """This rank's part, a view of a contiguous tensor, or the tensor itself."""
        if not self.is_split:
            return tensor.detach()
        return tensor.detach().view(dist.get_world_size(), -1)[dist.get_rank()]

    def _master(self, weight: nn.Parameter, has_copy: bool) -> nn.Parameter:
        if not self.is_split:
            return weight
        part = self._part(weight)
        if has_copy:
            part = part.clone()
            # Of the right shape, in no memory: the gradient of the copy is handed over to it.
            weight.data = torch.full((), torch.nan, device=weight.device).expand(weight.shape)
        master = nn.Parameter(part)
        master.grad_dtype = weight.grad_dtype
        return master

    def expect_one_less(self) -> None:
        """Count a gradient.

        Raises:
            Unsupported: a second one came before the step.
        """
        if self.is_complete:
            raise Unsupported("on several ranks a step takes its batch at once: no micro-batches")
        self._left -= 1

    @property
    def is_complete(self) -> bool:
        return self._left == 0

    @torch.no_grad()
    def reduce(self) -> None:
        """Start to average the gradients."""
        with _coalescing_manager(async_ops=True) as self._calls:
            for weight in self.weights:
                whole = weight.grad
                if self.is_split:
                    reduce_scatter_flat(self._part(whole), whole.view(-1), average_op())
                else:
                    dist.all_reduce(whole, average_op())

    def finish(self) -> None:
        """Wait for the averages; the masters have them as gradients."""
        if self._calls is None:
            return
        self.wait()
        for weight, master in self.masters.items():
            if master is not weight:
                master.grad = self._part(weight.grad)
        divided(*(master.grad for master in self.masters.values()))

    def gather(self) -> None:
        """Start to gather what the ranks have updated."""
        if not self.is_split:
            return
        with _coalescing_manager(async_ops=True) as self._calls:
            for leaf in self.leaves:
                all_gather_flat(leaf.detach().view(-1), self._part(leaf))

    def wait(self) -> None:
        """Wait for what was started."""
        if self._calls is not None:
            self._calls.wait()
            self._calls = None

    def clear(self) -> None:
        """Forget the gradients, and expect others."""
        self.wait()
        self._left = len(self.weights)
        for parameter in (*self.weights, *self.masters.values()):
            parameter.grad = None

    @torch.no_grad()
    def whole(self, weight: nn.Parameter, gradient: bool) -> Tensor:
        """The value or the gradient of one of the weights, gathered from the masters."""
        master = self.masters[weight]
        part = master.grad if gradient else master.detach()
        if not self.is_split:
            return part
        whole = torch.empty(weight.shape, dtype=part.dtype, device=part.device)
        all_gather_flat(whole.view(-1), part)
        return whole


def ranked_adamw(
    model: TransformerLM,
    learning_rate: float,
    groups: ParameterGroups = None,
    max_norm: float | None = None,
    sharded: bool = False,
    bucket_mb: float | None = None,
) -> RankedAdamW:
    """`copying_adamw` on all ranks of the process group; the weights become those of rank 0."""
    broadcast_state(model)
    copies = with_copies(model)
    return RankedAdamW(
        groups or model.parameters(), learning_rate, copies, max_norm, sharded, bucket_mb
    )
