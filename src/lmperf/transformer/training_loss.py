"""Trains a model on synthetic tokens with learnable structure and records the losses."""

from __future__ import annotations

import torch
from torch import Tensor

from lmperf.precision import precision
from lmperf.transformer.model import TransformerLM
from lmperf.transformer.sizes import SIZES, VOCAB_SIZE
from lmperf.transformer.steps import StepMaker

# Successors of each token, with probabilities 1/2, 1/4, 1/8, 1/8.
_SUCCESSORS = 4
_ZIPF = 1.2


def losses(
    maker: StepMaker,
    dtype: str,
    size: str,
    context: int,
    batch: int,
    device: str,
    seed: int,
    steps: int,
    learning_rate: float,
    warm_up: int,
) -> list[float]:
    """The loss of each train step that `maker` makes in a dtype, before the update.

    seed: determines weights and tokens, which are the same for every maker and dtype.
    warm_up: steps over which the learning rate rises linearly to its value.
    """
    torch.manual_seed(seed)
    with torch.device(device):
        model = TransformerLM.of_size(SIZES[size], VOCAB_SIZE, context)
    optimizer = maker.prepare(dtype)(model, learning_rate)
    stream = token_stream(steps * batch, context + 1, seed).view(steps, batch, -1).to(device)
    tokens, targets = (torch.empty_like(stream[0, :, 1:]).contiguous() for _ in range(2))
    step = maker.step(model, optimizer, tokens, targets, dtype)
    losses = []
    with precision(dtype):
        for number, part in enumerate(stream, 1):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate * min(1.0, number / warm_up)
            tokens.copy_(part[:, :-1])
            targets.copy_(part[:, 1:])
            losses.append(step().clone())
    return torch.stack(losses).tolist()


def token_stream(sequences: int, length: int, seed: int) -> Tensor:
    """Tokens [sequences, length] int64 of a Markov chain with four successors per token.

    Successors and first tokens follow Zipf's law: token r has a probability proportional to
    (r + 1)^-1.2. Drawn on the host, so that every device gets the same tokens.
    """
    chance = torch.Generator().manual_seed(seed)
    ranks = torch.arange(1, VOCAB_SIZE + 1, dtype=torch.float64) ** -_ZIPF

    def drawn(weights: Tensor, count: int) -> Tensor:
        return torch.multinomial(weights, count, replacement=True, generator=chance)

    successors = drawn(ranks, VOCAB_SIZE * _SUCCESSORS).view(VOCAB_SIZE, _SUCCESSORS)
    likely = torch.tensor([1 / 2, 1 / 4, 1 / 8, 1 / 8])
    chosen = drawn(likely, sequences * length).view(sequences, length)
    tokens = torch.empty_like(chosen)
    tokens[:, 0] = drawn(ranks, sequences)
    for at in range(1, length):
        tokens[:, at] = successors[tokens[:, at - 1], chosen[:, at]]
    return tokens
