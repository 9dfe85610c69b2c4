"""A model that all ranks train together, on a batch of which each rank has a part."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from lmperf.benchmark import Rank, Unsupported, WrongResult
from lmperf.distributed.strategies import Setup, Training
from lmperf.dtypes import dtype_of
from lmperf.transformer.graphed import Graphed
from lmperf.transformer.implementations import sdpa
from lmperf.transformer.model import TransformerLM
from lmperf.transformer.sizes import SIZES, VOCAB_SIZE, ModelSize
from lmperf.transformer.training import autocast, draw, loss_of

Build = Callable[[Setup], Training]
BuildModel = Callable[[ModelSize, int], nn.Module]  # (size, context) -> model


class DistributedProblem:
    """A TransformerLM or a user's model on all ranks, with random weights and random tokens.

    Weights, tokens and targets are the same on every rank for the same seed.

    Args:
        size: key of `lmperf.transformer.sizes.SIZES`.
        context: tokens of a sequence.
        batch: sequences of all ranks together.
        dtype: a value of the dtype axis with float32 weights.
        rank: this process.
        seed: of weights, tokens and targets.
        build_model: builds the user's model in the place of a TransformerLM.

    Raises:
        Unsupported: the batch does not split over the ranks.
    """

    def __init__(
        self,
        size: str,
        context: int,
        batch: int,
        dtype: str,
        rank: Rank,
        seed: int,
        build_model: BuildModel | None = None,
    ):
        if batch % rank.ranks:
            raise Unsupported(f"a batch of {batch} does not split over {rank.ranks} ranks")
        self.size, self.context, self.dtype = SIZES[size], context, dtype
        self.rank, self.seed, self._build_model = rank, seed, build_model
        self.device = torch.device(rank.device)
        self.tokens = torch.empty(batch, context, dtype=torch.int64, device=self.device)
        self.targets = torch.empty_like(self.tokens)
        self.freshen(seed)

    def freshen(self, seed: int) -> None:
        """Overwrite tokens and targets, in place, by random ones of another seed."""
        self.drawn = seed
        draw(seed, self.tokens, self.targets)

    @contextmanager
    def tokens_restored(self) -> Iterator[None]:
        """Restore the current tokens after steps on others."""
        drawn = self.drawn
        try:
            yield
        finally:
            self.freshen(drawn)

    def require_tokens(self) -> None:
        """Raise WrongResult if a call has changed its tokens or targets."""
        drawn = torch.empty_like(self.tokens), torch.empty_like(self.targets)
        draw(self.drawn, *drawn)
        if not all(map(torch.equal, (self.tokens, self.targets), drawn)):
            raise WrongResult("the call changed its tokens or targets")

    def setup(self, rate: float = 0.0, eps: float = 1e-8) -> Setup:
        """A new model with the weights of the problem's seed, and the optimizer to train it."""
        torch.manual_seed(self.seed)
        with torch.device(self.device):
            if self._build_model:
                model = self._build_model(self.size, self.context).to(self.device)
            else:
                model = sdpa(TransformerLM.of_size(self.size, VOCAB_SIZE, self.context))
        low = dtype_of(self.dtype).autocast
        on_cuda = self.device.type == "cuda"
        options = {"lr": rate, "eps": eps, "fused": True, "capturable": on_cuda}
        return Setup(model, getattr(torch, low) if low else None, options)

    def part(self, number: int, parts: int) -> tuple[Tensor, Tensor]:
        """Tokens and targets of one of equal parts of the batch."""
        return self.tokens.chunk(parts)[number], self.targets.chunk(parts)[number]

    def loss(self, training: Training, number: int, parts: int) -> Tensor:
        """The loss of a training's model on a part of the batch."""
        tokens, targets = self.part(number, parts)
        with autocast(self.dtype, self.device):
            return loss_of(training.model, tokens, targets)

    def backward(self, training: Training) -> Tensor:
        """Clear gradients, forward and backward on this rank's part, and average the gradients.

        Returns this rank's loss, a detached scalar.
        """
        training.start()
        training.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(training, self.rank.number, self.rank.ranks)
        loss.backward()
        training.finish()
        return loss.detach()

    def step(self, training: Training) -> Tensor:
        """One step on this rank's part of the batch; returns its loss, a detached scalar.

        A CUDA graph is captured at its first step, and overwrites the loss at the next one.
        """
        if training.captures and self.device.type == "cuda":
            if training.graph is None:
                backward = partial(self.backward, training)
                training.graph = Graphed(backward, training.optimizer)
            return training.graph()
        loss = self.backward(training)
        training.optimizer.step()
        return loss


def release() -> None:
    """Free the memory of models that are no longer referenced."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
