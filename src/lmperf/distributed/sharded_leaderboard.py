"""The train step of a public leaderboard, fully sharded over ranks by PyTorch's FSDP2.

A rank has its share of float32 weights, gradients and moments: 61 GiB on two ranks, where one GPU
would need 121. Blocks are gathered in bf16, the next one while one runs, and gathered again for the
backward pass. Embedding, last norm and head stay gathered during a step, in float32. With a
sequence of 32,768 tokens on each rank a block computes for tens of ms and is gathered in about one.

The checks are those of `lmperf.distributed.gating`, on a twin: float32 weights, gradients and
moments of the whole model do not fit into one device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from lmperf.benchmark import Rank
from lmperf.distributed import strategies
from lmperf.distributed.distributed_problem import DistributedProblem, release
from lmperf.distributed.gating import Reference
from lmperf.distributed.strategies import Setup, Training
from lmperf.gate import Gate
from lmperf.precision import precision
from lmperf.transformer.checkpointing import SelectiveBlock
from lmperf.transformer.fused_loss import CHUNK, linear_cross_entropy
from lmperf.transformer.implementations import compile_static, sdpa, triton
from lmperf.transformer.leaderboard import TWIN
from lmperf.transformer.model import TransformerLM, cross_entropy
from lmperf.transformer.model_accuracy import explained_by_rounding
from lmperf.transformer.sizes import Shape
from lmperf.transformer.training import WithLoss, autocast, draw

DTYPE = "autocast_bfloat16"
# FSDP2 gathers norms in bf16 as well: `lmperf.distributed.weight_bounds`.
ROUNDED_NORMS = "rounded_norms"


class ShardedProblem:
    """A model of a shape that all ranks train together, sharded, on a batch of that shape.

    Raises:
        Unsupported: the batch does not split over the ranks.
    """

    def __init__(self, shape: Shape, rank: Rank, seed: int):
        self.whole = _Whole(shape, rank, seed)

    def step(self, kept: Sequence[str]) -> Callable[[], Tensor]:
        """The step of `fsdp2` at learning rate zero, which returns this rank's loss.

        It frees its gradients at its end, so that a peak of memory is not measured above them.
        """
        with precision(DTYPE):
            self._training = training = fsdp2(self.whole.setup(), kept)

        def step() -> Tensor:
            loss = self.whole.step(training)
            training.optimizer.zero_grad(set_to_none=True)
            return loss

        return step

    @property
    def resident(self) -> list[Any]:
        """What lives as long as the problem, once there is a step."""
        optimizer = self._training.optimizer
        parameters = [weight for group in optimizer.param_groups for weight in group["params"]]
        return [*parameters, optimizer, self.whole.tokens, self.whole.targets]

    def freshen(self, seed: int) -> None:
        """Overwrite tokens and targets, in place, by random ones of a seed."""
        self.whole.freshen(seed)


class _Whole(DistributedProblem):
    """The model and the batch of a shape, before they are split."""

    def __init__(self, shape: Shape, rank: Rank, seed: int):
        self._shape = shape
        batch = shape.context, shape.batch
        # The dimensions of this size are replaced: those of a shape have no name.
        super().__init__("tiny", *batch, DTYPE, rank, seed, lambda *_: self._model())
        self.size = shape.size

    def _model(self) -> TransformerLM:
        return sdpa(TransformerLM.of_size(self._shape.size, self._shape.vocab, self.context))

    def freshen(self, seed: int) -> None:
        self.drawn = seed
        draw(seed, self.tokens, self.targets, vocab=self._shape.vocab)

    @torch.no_grad()
    def plain_loss(self) -> tuple[float, float]:
        """The loss of this rank's part by an eager forward pass, and its error by rounding.

        The error is one that rounding can cause in the loss of `CHUNK` tokens, or of all if there
        are fewer.
        """
        model, (tokens, targets) = self.setup().model, self.part(self.rank.number, self.rank.ranks)
        losses = []
        with autocast(self.dtype, self.device):
            x = model.embedding(tokens)
            for block in model.blocks:
                x = block(x)
            hidden = model.norm(x).flatten(0, -2).split(CHUNK)
            for x, part in zip(hidden, targets.flatten().split(CHUNK), strict=True):
                logits = model.head(x)
                losses.append(cross_entropy(logits, part).double() * len(part))
                if len(losses) == 1:
                    first = {"logits": logits, "loss": losses[0] / len(part)}
        limits = explained_by_rounding(self.dtype, model, self.size.num_layers, first)
        return float(torch.stack(losses).sum()) / targets.numel(), limits["loss"]


class _LossModel(nn.Module):
    """A model that returns its loss, so that the head's weight is gathered when it is read."""

    def __init__(self, model: TransformerLM, kept: Sequence[str]):
        super().__init__()
        self.embedding = model.embedding
        self.blocks = nn.ModuleList(
            compile_static(SelectiveBlock(block, what))
            for block, what in zip(model.blocks, kept, strict=True)
        )
        self.norm, self.head = model.norm, model.head

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """tokens, targets [batch, seq_len] int64 -> mean negative log-likelihood, a scalar."""
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return linear_cross_entropy(self.norm(x), self.head.weight, targets)


def fsdp2(setup: Setup, kept: Sequence[str]) -> Training:
    """`strategies.fsdp2` with compiled blocks, selective checkpoints and a loss in chunks.

    kept: for each block what it keeps, as in `lmperf.transformer.checkpointing`: the attention or
    more.
    """
    is_on_cuda = next(setup.model.parameters()).is_cuda
    model = triton(setup.model) if is_on_cuda else setup.model
    setup.model = _LossModel(model, kept)
    training = strategies.fsdp2(setup)
    return replace(training, model=WithLoss(logits=_no_logits, loss=training.model))


def _no_logits(tokens: Tensor) -> Tensor:
    raise NotImplementedError("the step computes its loss without logits of all tokens")


def gate(
    problem: ShardedProblem,
    step: Callable[[], Tensor],
    kept: Sequence[str],
    seed: int,
    make: Callable[..., ShardedProblem],
    rank: Rank,
    twin: Shape = TWIN,
) -> Gate:
    """Check a step: the weights of a twin after five steps, and the loss of the step itself.

    The twin has the first and the last kind of `kept`. Its weights are compared with those of one
    process, as `Reference.gate` describes, and between the ranks.

    make: (shape, rank, seed) -> a problem.
    """
    build = partial(fsdp2, kept=(kept[0], kept[-1]))
    of_twin = Reference(make(twin, rank, seed).whole).gate(build, "eager", ROUNDED_NORMS)
    loss = float(step())
    expected, limit = problem.whole.plain_loss()
    release()
    return replace(
        of_twin,
        errors={**of_twin.errors, "full_loss": abs(loss - expected) / abs(expected)},
        bounds={**of_twin.bounds, "full_loss": limit},
    )
