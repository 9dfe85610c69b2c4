"""Planted (deliberately faulty) implementations have the faults that their cases describe."""

import importlib
import time

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from lmperf.attention.accuracy import blockwise_error
from lmperf.attention.reference import attention
from lmperf.selftest.cases import CASES
from lmperf.selftest.planted import FIRST_CALL_S

RIGHT = 1e-5


@pytest.fixture
def planted():
    """A function from a name to the planted implementation, from a freshly loaded module."""

    def fresh(name):
        (case,) = [case for case in CASES if case.name == name]
        module = importlib.import_module(case.reference.partition(":")[0])
        return getattr(importlib.reload(module), name)

    return fresh


@pytest.fixture
def inputs():
    generator = torch.Generator().manual_seed(3)
    q, k, v = torch.randn(3, 1, 20, 128, 16, generator=generator)
    return [tensor.clone().requires_grad_() for tensor in (q, k, v)]


def error(got, inputs):
    with torch.no_grad():
        return blockwise_error(got.detach(), attention(*inputs, causal=True).double())


def renew(inputs, seed=4):
    """Write new values into the memory of the inputs."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in inputs:
            tensor.normal_(generator=generator)


RIGHT_ALONE = [
    *("copy_of_eager", "twin", "tenth_more", "slow_first_call", "no_tile_dropped"),
    *("by_address", "by_shape", "after_twenty_calls", "turned", "early_backward", "leaks"),
    *("lazy", "gradients_by_address"),
]


@pytest.mark.slow
@pytest.mark.parametrize("name", RIGHT_ALONE)
def test_first_result_and_gradients_are_correct(planted, inputs, name):
    out = planted(name)(*inputs, causal=True)
    assert error(out + 0, inputs) < RIGHT
    gradient = torch.ones_like(inputs[0])
    got = torch.autograd.grad(out, inputs, gradient)
    expected = torch.autograd.grad(attention(*inputs, causal=True), inputs, gradient)
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "name",
    [
        *("zeros", "mask_dropped_in_one_head", "scale_of_the_last_block", "nan_at_one_position"),
        *("in_another_dtype", "key_tile_dropped"),
    ],
)
def test_wrong_results_exceed_the_error_of_correct_ones(planted, inputs, name):
    assert error(planted(name)(*inputs, causal=True), inputs) > 100 * RIGHT


@pytest.mark.slow
def test_only_the_last_block_is_scaled(planted, inputs):
    out = planted("scale_of_the_last_block")(*inputs, causal=True)
    expected = attention(*inputs, causal=True)
    torch.testing.assert_close(out[..., :64, :], expected[..., :64, :])


@pytest.mark.parametrize("name", ["by_address", "by_shape"])
def test_cached_result_is_returned_for_new_inputs(planted, inputs, name):
    function = planted(name)
    first = function(*inputs, causal=True).clone()
    renew(inputs)
    assert torch.equal(function(*inputs, causal=True), first)


def test_planted_cache_returns_old_result_after_twenty_calls(planted, inputs):
    function = planted("after_twenty_calls")
    for seed in range(20):
        renew(inputs, seed)
        assert error(function(*inputs, causal=True), inputs) < RIGHT
    renew(inputs)
    assert error(function(*inputs, causal=True), inputs) > RIGHT


def test_cached_gradients_are_returned_for_new_gradient(planted, inputs):
    function, gradient = planted("gradients_by_address"), torch.ones_like(inputs[0])
    first = torch.autograd.grad(function(*inputs, causal=True), inputs, gradient)
    gradient.mul_(2)
    again = torch.autograd.grad(function(*inputs, causal=True), inputs, gradient)
    assert torch.equal(first[0], again[0])


def test_cached_result_follows_sign_changes_of_inputs(planted, inputs):
    function, (q, k, v) = planted("turned"), (tensor.detach() for tensor in inputs)
    function(q, k, v, causal=True)
    signs = torch.tensor([1.0, -1.0]).repeat(v.shape[-1] // 2)
    assert error(function(q, k, v * signs, causal=True), (q, k, v * signs)) < RIGHT
    other = [torch.randn_like(tensor) for tensor in (q, k, v)]
    assert error(function(*other, causal=True), other) > RIGHT


def test_result_for_the_seed_uses_the_inputs_of_the_group(planted):
    from lmperf.benchmark import Case
    from lmperf.benchmarks import load
    from lmperf.measuring.supervisor import seed_of

    benchmark = load("flash_attention")
    values = (1, 2, 64, 16, "float32", True, False)
    cell = tuple(zip((axis.name for axis in benchmark.axes), values, strict=True))
    case = Case(cell, "eager")
    problem_of = importlib.import_module("lmperf.attention.problem").AttentionProblem.of
    seed = seed_of(benchmark, [case])
    *drawn, _ = problem_of((1, 2, 64, 16), "float32", True, "cpu", seed, {}).inputs
    function = planted("for_the_seed")
    zeros = [torch.zeros_like(tensor) for tensor in drawn]
    assert error(function(*zeros, causal=True), drawn) < RIGHT


def test_lazy_result_is_computed_when_read(planted, inputs):
    out = planted("lazy")(*inputs, causal=True)
    assert type(out) is not torch.Tensor and out.value is None
    assert error(out + 0, inputs) < RIGHT


def test_early_gradients_read_memory_of_the_last_gradient(planted, inputs):
    function, gradient = planted("early_backward"), torch.ones_like(inputs[0])
    torch.autograd.grad(function(*inputs, causal=True), inputs, gradient)
    gradient.mul_(3)
    early = function(*inputs, causal=True)
    gradient.mul_(2)
    (late, *_) = torch.autograd.grad(early, inputs, gradient)
    expected = torch.autograd.grad(attention(*inputs, causal=True), inputs, gradient / 2)[0]
    torch.testing.assert_close(late, expected, rtol=1e-3, atol=1e-4)


def test_thread_fills_the_returned_tensor(planted, inputs):
    out = planted("in_thread")(*inputs, causal=True)
    ends = time.monotonic() + 10
    while error(out, inputs) > RIGHT and time.monotonic() < ends:
        time.sleep(0.01)
    assert error(out, inputs) < RIGHT


@pytest.mark.slow
def test_planted_slowdown_adds_a_tenth_of_flops(planted, inputs):
    def work(name):
        function = planted(name)
        with FlopCounterMode(display=False) as counter:
            function(*inputs, causal=True).sum().backward()
        return counter.get_total_flops()

    assert work("tenth_more") == pytest.approx(1.1 * work("twin"))
    assert work("twin") == work("copy_of_eager")


@pytest.mark.slow
def test_only_the_first_call_sleeps(planted, inputs):
    function = planted("slow_first_call")

    def seconds():
        began = time.perf_counter()
        function(*inputs, causal=True)
        return time.perf_counter() - began

    assert seconds() >= FIRST_CALL_S > seconds()


def test_planted_input_change_is_unnoticed_by_autograd(planted, inputs):
    before = inputs[1].detach().clone()
    out = planted("changes_its_inputs")(*inputs, causal=True)
    assert not torch.equal(before, inputs[1])
    out.sum().backward()


def test_planted_leak_keeps_every_output(planted, inputs):
    function = planted("leaks")
    for _ in range(3):
        function(*inputs, causal=True)
    assert len(function.__globals__["_KEPT"]) == 3


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        ("averages_over_one_too_many", 4 / 3, 4 / 3),
        ("leaves_out_a_bucket", 2.0, 1.0),
        ("sums_one_bucket", 2.0, 4.0),
    ],
)
def test_reduction_is_wrong_in_the_last_bucket_or_everywhere(
    planted, monkeypatch, name, first, last
):
    """This rank has gradients of 1, another one of 3; their average is 2."""
    module = torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(8)))
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda flat: flat.add_(3))
    planted(name)(module).finish_gradient_synchronization()
    gradients = [parameter.grad for parameter in module.parameters()]
    assert torch.allclose(gradients[0], torch.full_like(gradients[0], first))
    assert torch.allclose(gradients[-1], torch.full_like(gradients[-1], last))
