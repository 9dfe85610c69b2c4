"""Rows of the benchmark that trains the rungs of the ladder."""

import pytest

from lmperf.benchmarks import load
from lmperf.transformer import training_loss


@pytest.fixture
def seeds(monkeypatch):
    """The seeds of the runs; the loss of step t of run s is 1000 s + t."""
    found = []

    def losses(maker, dtype, size, context, batch, device, seed, steps, *rates):
        found.append(seed)
        return [1000 * seed + step for step in range(1, steps + 1)]

    monkeypatch.setattr(training_loss, "losses", losses)
    return found


def observed(size, name="float32"):
    benchmark = load("ladder_loss")
    cases = benchmark.cases("full", {"size": [size], "implementation": [name]})
    return benchmark.observe(cases[0], "train_step", "cpu", 123)


def test_small_model_is_trained_with_three_seeds(seeds):
    rows = observed("0.13B")
    assert seeds == [1, 2, 3], "whatever the seed of the worker is"
    identity = [(row["step"], row["run"]) for row in rows]
    assert sorted(identity) == [(step, run) for step in (1, 10, 100) for run in (1, 2, 3)]
    assert {"step", "run"} == {*load("ladder_loss").index}


def test_other_sizes_are_trained_once_and_losses_are_means(seeds):
    rows = observed("0.97B")
    assert seeds == [1]
    assert [row["loss"] for row in rows] == [1001, 1010, pytest.approx(1095.5)]
