"""Trains on several ranks: data parallel, or with AdamW's state sharded (ZeRO stage 1)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from lmperf.distributed.communication import broadcast_state
from lmperf.distributed.ranked_adamw import TrainingAdamW
from lmperf.transformer.copied_linear import with_copies
from lmperf.transformer.model import TransformerLM
from lmperf.transformer.steps import GRAPH
from lmperf.transformer.trainer import Trainer
from lmperf.transformer.training import ParameterGroups, sum_in_float32

_DTYPE = "autocast_bfloat16"


class RankedTrainer(Trainer):
    """`Trainer` on all ranks of the process group, by the step `steps.GRAPH` under bf16 autocast.

    All ranks make the same calls, but for `loss`, which a rank can call alone. A step takes a
    rank's part of the batch; its loss is of that part, its gradients are averages over the ranks.

    Args:
        model, learning_rate, groups, max_norm: as of `Trainer`. The weights become those of rank 0.
        micro_batch: sequences of a forward and backward pass on a rank; as of `Trainer`.
        sharded: whether a rank keeps its part of AdamW's state only, and of the float32 values of
            weights with a bf16 copy, as in ZeRO stage 1. In the model, those weights are then NaN.
    """

    def __init__(
        self,
        model: TransformerLM,
        learning_rate: float = 3e-4,
        groups: ParameterGroups = None,
        max_norm: float | None = None,
        micro_batch: int | None = None,
        sharded: bool = False,
    ):
        prepare = partial(_training_adamw, sharded=sharded, sums=micro_batch is not None)
        maker = replace(GRAPH, optimizers={_DTYPE: prepare})
        super().__init__(model, maker, _DTYPE, learning_rate, groups, max_norm, micro_batch)

    def step(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Make a train step; as of `Trainer`."""
        self.optimizer.micro_batches = len(tokens) // (self._maker.micro_batch or len(tokens))
        return super().step(tokens, targets)

    def state_dict(self) -> dict[str, Any]:
        """On rank 0, what a `Trainer` in one process saves, on the CPU; gathered from all ranks.

        Any number of ranks goes on from it, sharded or not, and so does one process.
        """
        weights = {}
        for name, weight in self.model.named_parameters():
            whole = self.optimizer.whole(weight)
            weights[name] = whole.cpu() if dist.get_rank() == 0 else None
        return {"model": weights, "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what rank 0, or a `Trainer` in one process, has saved."""
        self._forget_steps()
        weights = self.model.named_parameters()
        self.optimizer.load_weights({weight: state["model"][name] for name, weight in weights})
        self.optimizer.load_state_dict(state["optimizer"])

    def _what_fits(self, shape: torch.Size) -> str:
        """Words about a step that did not fit. To try others, a rank would need all ranks."""
        what = f"a step of {shape[0]} sequences of {shape[1]} tokens does not fit into memory"
        return f"{what} of a rank: give fewer sequences, or a smaller micro_batch"


def _training_adamw(
    model: TransformerLM,
    learning_rate: float,
    groups: ParameterGroups = None,
    max_norm: float | None = None,
    sharded: bool = False,
    sums: bool = False,
) -> TrainingAdamW:
    """`steps.copying_adamw` on all ranks of the process group."""
    broadcast_state(model)
    copies = with_copies(model)
    if sums:
        sum_in_float32(model)
    groups = list(groups or [{"params": list(model.parameters())}])
    return TrainingAdamW(groups, learning_rate, copies, max_norm, sharded)
