"""Models with fewer words than the 10,000 of the benchmarks."""

from functools import partial

import pytest


def use_words(patch: pytest.MonkeyPatch, count: int = 500) -> None:
    """Give the models of all problems, the user's too, so many words, and draw tokens of these."""
    from lmperf.transformer.training import draw

    for module in ("own.model", "transformer.model_problem", "distributed.distributed_problem"):
        patch.setattr(f"lmperf.{module}.VOCAB_SIZE", count)
    patch.setattr("lmperf.distributed.distributed_problem.draw", partial(draw, vocab=count))
