"""The model of communication: fits recover planted lines, steps agree with hand counts."""

import itertools

import numpy as np
import pytest
import torch

from lmperf.distributed.cost import (
    Computation,
    Estimate,
    Gradient,
    Line,
    best_bucket,
    buckets,
    bus_factor,
    computation,
    fit,
    gradients,
    predicted_all_reduces,
    predicted_step,
)
from lmperf.transformer.model import TransformerLM, cross_entropy
from lmperf.transformer.sizes import SIZES

SIZES_IN_BYTES = [1024, 16_384, 131_072, 10**6, 10**7, 10**8, 10**9]
LARGE = SIZES["0.97B"]


def line(overhead, rate, factor=1.0):
    exact = [Estimate(value, value, value) for value in (overhead, rate)]
    return Line(*exact, factor, 0.0)


def times(overhead, rate, factor, noise=0.0, seed=0):
    sizes = np.array(SIZES_IN_BYTES, float)
    errors = np.exp(np.random.default_rng(seed).normal(0, noise, len(sizes)))
    return list((overhead + factor * sizes / rate) * errors)


def test_bus_bandwidth_follows_the_definitions_of_nccl_tests():
    assert bus_factor("all_reduce", 8) == 1.75 and bus_factor("all_reduce", 2) == 1
    assert bus_factor("all_gather", 4) == bus_factor("reduce_scatter", 4) == 0.75
    with pytest.raises(ValueError, match="operation 'gather' is none of"):
        bus_factor("gather", 2)


@pytest.mark.parametrize("ranks", [2, 8])
def test_fit_recovers_overhead_and_rate(ranks):
    factor = bus_factor("all_reduce", ranks)
    found = fit("all_reduce", ranks, SIZES_IN_BYTES, times(20e-6, 330e9, factor))
    assert found.overhead.value == pytest.approx(20e-6, rel=1e-3)
    assert found.rate.value == pytest.approx(330e9, rel=1e-3)
    assert found.seconds(10**8) == pytest.approx(20e-6 + factor * 10**8 / 330e9, rel=1e-3)


def test_intervals_of_noisy_fits_cover_the_planted_values():
    covered, n = np.zeros(2), 200
    for seed in range(n):
        found = fit("copy", 2, SIZES_IN_BYTES, times(20e-6, 330e9, 1.0, 0.05, seed))
        covered += [
            found.overhead.low <= 20e-6 <= found.overhead.high,
            found.rate.low <= 330e9 <= found.rate.high,
        ]
    assert (covered > 0.88 * n).all() and (covered < n).all()


def test_one_outlying_size_moves_the_fit_little():
    seconds = times(20e-6, 330e9, 1.0)
    seconds[4] *= 3
    found = fit("copy", 2, SIZES_IN_BYTES, seconds)
    assert found.overhead.value == pytest.approx(20e-6, rel=0.2)
    assert found.rate.value == pytest.approx(330e9, rel=0.2)


def test_fit_needs_three_sizes():
    with pytest.raises(ValueError, match="messages of 3 sizes, not 2"):
        fit("copy", 2, [1, 2, 2], [1.0, 2.0, 2.0])


def test_gradients_are_in_the_order_of_the_backward_pass():
    size = SIZES["tiny"]
    model = TransformerLM.of_size(size, 100, 16)
    ready = []
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda p: ready.append(4 * p.numel()))
    tokens = torch.zeros(2, 16, dtype=torch.long)
    cross_entropy(model(tokens), tokens).backward()
    made = gradients(size, 16, 2, vocab=100)
    assert [one.message for one in made] == ready
    passed = [one.ready for one in made]
    assert passed == sorted(passed) and passed[-1] == 1 and passed[0] > 0


def test_step_without_overlap_exposes_every_call():
    made = [Gradient(100, 0.5), Gradient(300, 1.0)]
    computing = Computation(1.0, 2.0, 0.5, None)
    found = predicted_step("one_by_one", made, computing, line(0.1, 1000))
    assert (found.calls, found.communication) == (2, pytest.approx(0.2 + 0.4))
    assert found.exposed == found.communication and found.hidden == 0
    assert found.seconds == pytest.approx(3.5 + 0.6)
    flat = predicted_step("flat", made, computing, line(0.1, 1000))
    assert (flat.calls, flat.seconds) == (1, pytest.approx(3.5 + 0.5))


def test_overlapped_step_exposes_what_follows_the_backward():
    made = [Gradient(100, 0.5), Gradient(300, 1.0)]
    computing = Computation(1.0, 2.0, 0.5, None)
    found = predicted_step("overlapped", made, computing, line(0.1, 1000))
    assert found.exposed == pytest.approx(0.4) and found.hidden == pytest.approx(1 / 3)
    late = predicted_step("overlapped_compiled", made, computing, line(1.5, 1000))
    assert late.exposed == pytest.approx(1 + 1.6 - 2 + 1.8)


def test_copies_into_flat_buffers_take_time_by_the_measured_rate():
    made, computing = [Gradient(10**9, 1.0)], Computation(1.0, 2.0, 0.5, 4000.0)
    step = predicted_step("flat", made, computing, line(0.0, 1e15))
    assert step.seconds == pytest.approx(3.5 + 2 * 10**9 / 4e12)


def test_strategies_that_do_more_than_reduce_gradients_are_refused():
    with pytest.raises(ValueError, match="fsdp2 does not all-reduce gradients alone"):
        predicted_step("fsdp2", [Gradient(1, 1.0)], Computation(1, 1, 1, None), line(1, 1))
    with pytest.raises(ValueError, match="unknown strategy"):
        predicted_step("flatt", [Gradient(1, 1.0)], Computation(1, 1, 1, None), line(1, 1))


def test_buckets_hold_all_gradients_and_are_filled_in_order():
    made = gradients(LARGE, 512, 2)
    found = buckets(made, 10**8)
    assert sum(one.message for one in found) == 4 * LARGE.parameters()
    largest = max(one.message for one in made)
    assert all(one.message <= max(10**8, largest) for one in found)
    assert all(a.message + b.message > 10**8 for a, b in itertools.pairwise(found))
    assert buckets(made, 0) == made and len(buckets(made, 2**62)) == 1
    few = buckets([Gradient(2, 0.1), Gradient(2, 0.2), Gradient(9, 0.5), Gradient(1, 1.0)], 4)
    assert few == [Gradient(4, 0.2), Gradient(9, 0.5), Gradient(1, 1.0)]


def test_ddp_begins_with_a_small_bucket():
    made = [Gradient(2**20, n / 80) for n in range(1, 81)]
    found = predicted_step("ddp", made, Computation(1.0, 2.0, 0.5, None), line(0.1, 1e15))
    assert found.calls == 5 and found.exposed < found.communication


def test_update_is_memory_bound_and_backward_twice_forward():
    found = computation(0.1, 10**9, 4000.0)
    assert found.update == pytest.approx(0.007) and found.seconds == pytest.approx(0.1)
    assert found.backward == pytest.approx(2 * found.forward)
    assert computation(0.1, 10**9, None).update == 0


def test_best_bucket_grows_with_the_overhead_of_a_call():
    made, computing = gradients(LARGE, 512, 2), Computation(0.02, 0.04, 0.01, 4280.0)
    cheap, dear = (best_bucket(made, computing, line(o, 330e9)) for o in (1e-6, 1e-3))
    assert cheap.message < dear.message
    for best in (cheap, dear):
        assert best.low <= best.message <= best.high
        for mb in (1, 10, 100, 1000):
            overhead = 1e-6 if best is cheap else 1e-3
            step = predicted_step(f"bucket_{mb}", made, computing, line(overhead, 330e9))
            assert step.seconds >= best.seconds - 1e-12


def test_whole_tensors_passed_round_take_half_the_ranks_as_long():
    lines = {name: line(0.0, 1e9, bus_factor(name, 8)) for name in ("reduce_scatter", "all_gather")}
    found = predicted_all_reduces(8, {**lines, "copy": line(0.0, 1e9)})
    ring, round_ = (found[name](10**9) for name in ("scatter_gather", "pass_round"))
    assert ring == pytest.approx(1.75) and round_ == pytest.approx(7) and round_ / ring == 4


@pytest.mark.parametrize(
    ("size", "alone_ms", "one_by_one_ms", "flat_ms"),
    [("0.97B", 67.8, 85.3, 87.1), ("3.4B", 105.7, 163.0, 168.0)],
)
def test_steps_measured_on_two_h200s_are_predicted(size, alone_ms, one_by_one_ms, flat_ms):
    """Context 512, batch 2 a rank, bf16 autocast; all-reduces of 1 MB to 1 GB on the same GPUs."""
    messages, bus = [10**6, 10**7, 10**8, 10**9], [42e9, 192e9, 280e9, 328e9]
    seconds = [message / rate for message, rate in zip(messages, bus, strict=True)]
    reduces = fit("all_reduce", 2, messages, seconds)
    computing = computation(alone_ms / 1e3, SIZES[size].parameters(), 4280.0)
    made = gradients(SIZES[size], 512, 2)
    for name, measured in (("one_by_one", one_by_one_ms), ("flat", flat_ms)):
        found = predicted_step(name, made, computing, reduces)
        assert 1e3 * found.seconds == pytest.approx(measured, rel=0.08)
