"""When parallel training is bound by communication: closed forms against direct sums."""

import math

import pytest

from lmperf.distributed.roofline import (
    BOTH_OVERLAPPED,
    BOTH_SHARED,
    DATA,
    FULLY_SHARDED,
    TENSOR,
    Widths,
    best_sharded,
    most_devices,
    tokens_per_device,
)

# The chapter's: a plain feed-forward layer, everything in two bytes, TPU v5p.
BOOK = Widths(d_ff=30_000, weight=2, gradient=2, activation=2, matrices=2)
C, W = 4.6e14, 1.8e11
RATIO = C / W
# Ours: SwiGLU, float32 gradients of bf16 matmuls.
OURS = Widths(d_ff=10_240, weight=2, gradient=4, activation=2)


def test_results_of_the_chapter_on_training():
    for kind in (DATA, FULLY_SHARDED):
        assert tokens_per_device(kind, BOOK, RATIO) == pytest.approx(RATIO) and RATIO > 2500
    assert most_devices(TENSOR, BOOK, RATIO, 0) == pytest.approx(1 + BOOK.d_ff / RATIO)
    both = RATIO**2 / BOOK.d_ff
    assert tokens_per_device(BOTH_OVERLAPPED, BOOK, RATIO) == pytest.approx(both)
    assert tokens_per_device(BOTH_SHARED, BOOK, RATIO) == pytest.approx(4 * both)
    assert best_sharded(BOOK, 10**6, 256) == pytest.approx(math.sqrt(10**6 / 30_000 * 256))


def compute(widths, tokens, devices, passes):
    """Seconds of one layer's forward (passes 1) or backward (2), with D = 1."""
    return 2 * passes * widths.matrices * tokens * widths.d_ff / (devices * C)


def sent(widths, total, devices):
    return total * widths.matrices * widths.d_ff * (devices - 1) / devices / W


@pytest.mark.parametrize("widths", [BOOK, OURS])
@pytest.mark.parametrize("devices", [2, 8, 64])
def test_at_the_threshold_computation_takes_as_long_as_communication(widths, devices):
    tokens = devices * tokens_per_device(DATA, widths, RATIO, devices)
    backward = compute(widths, tokens, devices, 2)
    assert backward == pytest.approx(sent(widths, 2 * widths.gradient, devices))
    tokens = devices * tokens_per_device(FULLY_SHARDED, widths, RATIO, devices)
    slack = [
        compute(widths, tokens, devices, 1) / sent(widths, widths.weight, devices),
        compute(widths, tokens, devices, 2)
        / sent(widths, widths.weight + widths.gradient, devices),
    ]
    assert min(slack) == pytest.approx(1)


@pytest.mark.parametrize(("kind", "combine"), [(BOTH_OVERLAPPED, max), (BOTH_SHARED, sum)])
def test_no_split_into_two_axes_is_better_than_the_closed_form(kind, combine):
    devices = 4096
    tokens = devices * tokens_per_device(kind, OURS, RATIO)

    def communication(sharded):
        tensor = devices / sharded
        weights = OURS.sharded * OURS.matrices * OURS.d_ff / (tensor * W)
        activations = 2 * OURS.activation * tokens / (sharded * W)
        return combine((weights, activations))

    best = best_sharded(OURS, tokens, devices)
    assert communication(best) == pytest.approx(compute(OURS, tokens, devices, 1))
    assert all(communication(best) <= communication(best * f) + 1e-18 for f in (0.5, 0.9, 1.1, 2))


def test_tensor_parallelism_is_bound_by_devices_and_not_by_the_batch():
    most = most_devices(TENSOR, OURS, 400.0, 0)
    assert most == pytest.approx(1 + 3 * 10_240 / 800)
    assert tokens_per_device(TENSOR, OURS, 400.0, int(most)) == 0
    assert tokens_per_device(TENSOR, OURS, 400.0, int(most) + 1) == math.inf


@pytest.mark.parametrize("kind", [DATA, FULLY_SHARDED])
def test_most_devices_inverts_the_least_batch(kind):
    devices = most_devices(kind, OURS, RATIO, 10**6)
    needed = devices * tokens_per_device(kind, OURS, RATIO) * (1 - 1 / devices)
    assert needed == pytest.approx(10**6)


def test_unknown_kinds_and_missing_devices_are_errors():
    with pytest.raises(ValueError, match="kind 'pipeline' is none of data"):
        tokens_per_device("pipeline", OURS, RATIO)
    with pytest.raises(ValueError, match="depends on the number of devices"):
        tokens_per_device(TENSOR, OURS, RATIO)
