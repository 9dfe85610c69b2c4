import dataclasses

import pytest
import torch

from lmperf.attention import check
from lmperf.attention.accuracy import error_bound
from lmperf.attention.triton import (
    configurations,
    forward,
    interface,
    key_gradients,
    query_gradients,
)
from lmperf.attention.triton.configurations import Configuration
from lmperf.benchmark import load


def name(case):
    return "-".join(str(value) for value in case.values())


def assert_within_bounds(errors, dtype):
    for tensor, error in errors.items():
        assert error <= error_bound(tensor, dtype), (tensor, error)


@pytest.mark.interpreter
@pytest.mark.skipif(torch.cuda.is_available(), reason="the interpreter stands in for a GPU")
@pytest.mark.parametrize("case", check.cases("interpreter"), ids=name)
def test_interpreter_case(case):
    assert_within_bounds(check.errors(case, "cpu", seed=0), case["dtype"])


@pytest.mark.gpu
@pytest.mark.parametrize("case", check.cases("cuda"), ids=name)
def test_cuda_case(case):
    assert_within_bounds(check.errors(case, "cuda", seed=0), case["dtype"])


def test_cases_cover_every_value_with_both_masks_and_layouts():
    for kind in ("interpreter", "cuda"):
        cases = check.cases(kind)
        for dtype in {case["dtype"] for case in cases}:
            seen = {(c["causal"], c["layout"]) for c in cases if c["dtype"] == dtype}
            assert len(seen) == 4
        for axis in ("seq_len", "d_head"):
            for value in {case[axis] for case in cases}:
                assert {c["causal"] for c in cases if c[axis] == value} == {False, True}
        assert any(c["seq_len"] == 1 for c in cases)
        assert {16, 40, 64, 80, 128, 256} <= {c["d_head"] for c in cases}


@pytest.fixture
def skipping(monkeypatch):
    """The kernel, with the first tile of keys left out for the first rows."""
    whole = forward.forward

    def skips(q, k, v, causal, scale):
        out, lse = whole(q, k, v, causal, scale)
        out[:, :, :32] = whole(q[:, :, :32], k[:, :, 32:], v[:, :, 32:], False, scale)[0]
        return out, lse

    monkeypatch.setattr(interface.forward_pass, "forward", skips)


DEVICE, KIND = ("cuda", "cuda") if torch.cuda.is_available() else ("cpu", "interpreter")


def test_a_kernel_that_skips_keys_is_caught(skipping):
    case = next(
        c for c in check.cases(KIND) if c["seq_len"] >= 65 and not c["causal"] and c["d_head"] > 16
    )
    assert check.errors(case, DEVICE, seed=0)["out"] > error_bound("out", case["dtype"])


def observed():
    benchmark = load("flash_attention_check")
    axes = {"batch": [1], "heads": [1], "seq_len": [65], "d_head": [16], "dtype": ["float32"]}
    (case,) = benchmark.cases("cpu", {**axes, "causal": [False], "layout": ["contiguous"]})[:1]
    (row,) = benchmark.observe(case, "forward_backward", DEVICE, seed=0)
    return row


def test_a_red_kernel_test_shows_the_error_of_pytorch(skipping):
    row = observed()
    assert row["max_error"] > row["error_bound"] > row["pytorch_error"] > 0


def test_a_green_kernel_test_shows_none():
    row = observed()
    assert row["max_error"] <= row["error_bound"] and "pytorch_error" not in row


def choose(n, causal, sequences=1, d=64, kernel="forward"):
    configurations._chosen.cache_clear()
    device = torch.device("cuda", 0)
    return configurations.choose(kernel, causal, torch.bfloat16, n, n, d, sequences, device)


@pytest.fixture
def hopper(monkeypatch):
    monkeypatch.setattr(configurations, "INTERPRETED", False)
    monkeypatch.setattr(configurations, "device_facts", lambda index: (True, 132))


def test_small_tiles_are_taken_when_large_ones_would_leave_processors_idle(hopper, monkeypatch):
    causal, full, small = (Configuration(128, n, 4, 3) for n in (64, 128, 32))
    monkeypatch.setitem(configurations.HOPPER, ("forward", "half", 64), (causal, full, small))
    busy = 132 * configurations.FEW_WARPS // 4
    for tiles, expected in [(busy - 1, (small, small)), (busy, (full, causal))]:
        for mask in (False, True):
            got = choose(tiles * 128, mask)
            assert dataclasses.replace(got, chunk=0) == expected[mask]


@pytest.mark.parametrize("kernel", configurations.KERNELS)
@pytest.mark.parametrize("causal", [False, True])
def test_work_is_split_until_the_programs_fill_the_device(hopper, kernel, causal):
    for n in (1000, 2048, 8192, 16384):
        c = choose(n, causal, kernel=kernel)
        if not c.chunk:
            continue
        assert c.chunk % max(c.block_m, c.block_n) == 0
        assert c.chunk >= configurations.SHORTEST_CHUNK
        pairs = -(-n // c.owned(kernel)) * -(-n // c.chunk)
        assert pairs * c.num_warps <= 2 * configurations.MANY_WARPS * 132
    assert choose(4096, causal, kernel=kernel).chunk
    assert not choose(4096, causal, sequences=128, kernel=kernel).chunk
    assert not choose(256, causal, kernel=kernel).chunk


@pytest.mark.gpu
@pytest.mark.parametrize("n", [1000, 1024])
@pytest.mark.parametrize("offer", configurations.offered(), ids=str)
def test_every_configuration_offered(offer, n, monkeypatch):
    precision, d, by_kernel = offer
    chosen = lambda kernel, *rest: by_kernel[kernel]  # noqa: E731
    for module in (interface.forward_pass, key_gradients, query_gradients):
        monkeypatch.setattr(module, "choose", chosen)
    for dtype in {"half": ("bfloat16", "float16")}.get(precision, (precision,)):
        for causal in (False, True):
            case = dict(
                batch=1, heads=2, seq_len=n, d_head=d, dtype=dtype, causal=causal,
                layout="contiguous",
            )  # fmt: skip
            assert_within_bounds(check.errors(case, "cuda", seed=1), dtype)
