"""The gate (correctness check) of md_lrpe_cosine passes correct and fails wrong results."""

from functools import partial

import pytest
import torch

from lmperf.benchmark import WrongResult
from lmperf.lrpe.memory import predicted_peaks
from lmperf.lrpe.problem import LrpeProblem
from lmperf.lrpe.reference import cosines_float64, lrpe_cosine
from lmperf.measuring.peak_memory import phase_memory

PHASES = ("forward", "backward")
CUBE = (4, 3, 5)


def problem(shape=CUBE, d=16, dtype="float32", heads=2, extra_tokens=2, batch=2):
    return LrpeProblem(batch, heads, shape, d, extra_tokens, dtype, "cpu", seed=5)


def encoded(x, cosine, sine):
    wide = x.float()
    return torch.cat([wide * cosine.float(), wide * sine.float()], dim=-1).to(x.dtype)


def exact(x, theta, shape, extra_tokens):
    return encoded(x, *cosines_float64(theta, shape, x.shape[-1], extra_tokens))


def third_axis_dropped(x, theta, shape, extra_tokens):
    """With e = next_power_of_2(ceil(d / m)) the third axis would start after the last channel."""
    d = x.shape[-1]
    width = 1 << (-(-d // len(shape)) - 1).bit_length()
    wide = torch.nn.functional.pad(theta, (0, width - theta.shape[1]), value=0.1)
    return encoded(x, *cosines_float64(wide, shape, d, extra_tokens))


def last_token_dropped(x, theta, shape, extra_tokens):
    out = exact(x, theta, shape, extra_tokens)
    return torch.cat([out[:, :, :-1], torch.zeros_like(out[:, :, -1:])], dim=2)


def shifted_by_one_token(x, theta, shape, extra_tokens):
    parts = cosines_float64(theta, shape, x.shape[-1], extra_tokens)
    return encoded(x, *(part.roll(1, dims=1) for part in parts))


def sine_negated(x, theta, shape, extra_tokens):
    cosine, sine = cosines_float64(theta, shape, x.shape[-1], extra_tokens)
    return encoded(x, cosine, -sine)


def gradient_halved(x, theta, shape, extra_tokens):
    return exact(x / 2 + (x / 2).detach(), theta, shape, extra_tokens)


@pytest.mark.parametrize(
    ("broken", "caught"),
    [
        (third_axis_dropped, {"out", "dx", "angle"}),
        (last_token_dropped, {"out", "dx", "angle", "norm", "inverse", "difference"}),
        (shifted_by_one_token, {"out", "dx", "angle", "difference"}),
        (sine_negated, {"out", "dx", "angle"}),
        (gradient_halved, {"dx", "inverse"}),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_wrong_result_fails_the_gate(broken, caught, dtype):
    gate = problem(dtype=dtype).gate(broken, PHASES)
    over = {name for name, error in gate.errors.items() if not error <= gate.bounds[name]}
    assert over == caught
    assert not gate.passed


@pytest.mark.slow
def test_float32_angles_fail_at_65536():
    made = problem((65536,), 4, "bfloat16", heads=1, extra_tokens=0, batch=1)
    gate = made.gate(lrpe_cosine, PHASES)
    assert not gate.passed and gate.errors["angle"] > 1000 * gate.bounds["angle"]
    gate = made.gate(exact, PHASES)
    assert gate.passed, (gate.errors, gate.bounds)


@pytest.mark.slow
@pytest.mark.parametrize("batch, dtype", [(1, "float32"), (3, "bfloat16")])
def test_predicted_peaks_match_measurement(batch, dtype):
    made = problem((8, 8), 12, dtype, batch=batch)
    work = made.workload(lrpe_cosine, PHASES)
    sizes = batch, made.heads, made.tokens, made.d, made.theta.shape[1]
    predicted = predicted_peaks("eager", *sizes, dtype)
    for name, phase in work.phases.items():
        measured = phase_memory(work, lambda of=phase: (of, of.before()), "cpu")["peak_mib"] * 2**20
        assert measured == pytest.approx(predicted[name], rel=0.01)


@pytest.mark.gpu
@pytest.mark.parametrize("cached", [False, True])
def test_predicted_peaks_of_the_kernel_match_measurement(cached):
    from lmperf.lrpe.triton import lrpe_cosine as kernel

    made = LrpeProblem(12, 12, (64, 64), 128, 10, "bfloat16", "cuda", seed=5)
    work = made.workload(partial(kernel, cache_angles=cached), PHASES)
    name = "triton_cached" if cached else "triton"
    predicted = predicted_peaks(name, 12, 12, made.tokens, 128, 64, "bfloat16")
    for phase, timed in work.phases.items():
        timed.run(timed.before())
        measured = (
            phase_memory(work, lambda of=timed: (of, of.before()), "cuda")["peak_mib"] * 2**20
        )
        assert measured == pytest.approx(predicted[phase], rel=0.01)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_copy_moves_as_many_bytes_as_forward_and_backward(dtype):
    made = problem(dtype=dtype)
    work = made.copy(PHASES)
    expected = made.workload(lrpe_cosine, PHASES)
    source, target = made.x.nbytes, made.fresh.gradient().nbytes
    for name, written in (("forward", target), ("backward", source)):
        assert work.phases[name].bytes == expected.phases[name].bytes == source + target
        assert work.phases[name].run(None).nbytes == written
    for seed in (1, 2):
        work.freshen(seed)
        narrow, wide = (work.phases[name].run(None).clone() for name in ("backward", "forward"))
        assert torch.equal(narrow, wide.bfloat16())
        assert narrow.float().std() > 0.9


def call(work, name, seed):
    """The gate (verdict on correctness) of one call, made as the measuring loop makes it."""
    work.freshen(seed)
    phase = work.phases[name]
    return work.check(name, phase.run(phase.before()))


@pytest.mark.parametrize(
    "shape, d, dtype",
    [
        ((1,), 16, "float32"),
        ((70,), 1, "bfloat16"),
        ((70,), 16, "float16"),
        ((9, 7), 40, "float32"),
        (CUBE, 16, "bfloat16"),
        (CUBE, 1, "float16"),
    ],
)
def test_correct_result_passes_gate_and_check_on_fresh_inputs(shape, d, dtype):
    made = problem(shape, d, dtype)
    for function, tolerance in ((exact, "strict"), (lrpe_cosine, "rounded_angles")):
        work = made.workload(function, PHASES, tolerance=tolerance)
        for seed, name in enumerate(PHASES):
            gate = call(work, name, seed)
            assert gate.passed, (name, gate.errors, gate.bounds)
        assert work.gate(PHASES).passed


def test_cached_result_or_changed_inputs_fail_the_check():
    kept = {}

    def cached(x, *rest):
        return kept.setdefault(x.data_ptr(), exact(x, *rest).detach()).clone()

    def changing(x, theta, *rest):
        out = exact(x, theta, *rest)
        theta += 1
        return out

    work = problem().workload(cached, ["forward"])
    assert call(work, "forward", 0).passed
    assert not any(call(work, "forward", seed).passed for seed in range(1, 6))
    with pytest.raises(WrongResult, match=r"the call changed its inputs \(theta\)"):
        call(problem().workload(changing, ["forward"]), "forward", 1)
