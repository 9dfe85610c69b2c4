"""Small models, into which tests plug the classes of a user."""

import pytest
from vocabularies import use_words


@pytest.fixture
def problem_of(monkeypatch):
    """Return a function that makes the problem of a small model with 1,000 words.

    Its arguments are the user's model class, or None, and how an optimizer is made.
    """
    # Not before tests are collected: Triton's interpreter must be chosen first.
    from lmperf.own.model import builder
    from lmperf.transformer import sizes
    from lmperf.transformer.model_problem import ModelProblem

    monkeypatch.setitem(sizes.SIZES, "for tests", sizes.ModelSize(64, 128, 2, 4))
    use_words(monkeypatch, 1000)

    def problem(model=None, **more):
        return ModelProblem("for tests", 32, 2, "cpu", 0, builder(model), **more)

    return problem
