"""The gate of md_lrpe_cosine: what it lets through, and that it catches what it is there for."""

import pytest
import torch

from lmperf.lrpe.accuracy import difference_error, error_bounds
from lmperf.lrpe.memory import predicted_peaks
from lmperf.lrpe.problem import LrpeProblem
from lmperf.lrpe.reference import angles, cosines_float64, lrpe_cosine
from lmperf.measuring.footprint import phase_memory

DTYPES = ["float32", "float16", "bfloat16"]
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
    """As with e = next_power_of_2(ceil(d / m)): the third axis begins past the last channel."""
    d = x.shape[-1]
    width = 1 << (-(-d // len(shape)) - 1).bit_length()
    wide = torch.nn.functional.pad(theta, (0, width - theta.shape[1]), value=0.1)
    return encoded(x, *cosines_float64(wide, shape, d, extra_tokens))


def last_tile_left_out(x, theta, shape, extra_tokens):
    out = exact(x, theta, shape, extra_tokens)
    return torch.cat([out[:, :, :-1], torch.zeros_like(out[:, :, -1:])], dim=2)


def shifted_by_a_token(x, theta, shape, extra_tokens):
    parts = cosines_float64(theta, shape, x.shape[-1], extra_tokens)
    return encoded(x, *(part.roll(1, dims=1) for part in parts))


def sine_negated(x, theta, shape, extra_tokens):
    cosine, sine = cosines_float64(theta, shape, x.shape[-1], extra_tokens)
    return encoded(x, cosine, -sine)


def gradient_halved(x, theta, shape, extra_tokens):
    return exact(x / 2 + (x / 2).detach(), theta, shape, extra_tokens)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1,), (70,), (9, 7), CUBE])
@pytest.mark.parametrize("d", [1, 16, 40])
def test_what_is_right_passes(shape, d, dtype):
    made = problem(shape, d, dtype)
    gate = made.gate(exact, PHASES)
    assert gate.passed, (gate.errors, gate.bounds)
    gate = made.gate(lrpe_cosine, PHASES, angles_rounded=True)
    assert gate.passed, (gate.errors, gate.bounds)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("broken", "caught"),
    [
        (third_axis_dropped, {"out", "dx", "angle"}),
        (last_tile_left_out, {"out", "dx", "angle", "norm", "inverse", "difference"}),
        (shifted_by_a_token, {"out", "dx", "angle", "difference"}),
        (sine_negated, {"out", "dx", "angle"}),
        (gradient_halved, {"dx", "inverse"}),
    ],
)
def test_what_is_wrong_is_caught(broken, caught, dtype):
    gate = problem(dtype=dtype).gate(broken, PHASES)
    over = {name for name, error in gate.errors.items() if not error <= gate.bounds[name]}
    assert over == caught
    assert not gate.passed


@pytest.mark.parametrize("dtype", DTYPES)
def test_angles_taken_as_a_float32_product_are_caught_at_65536(dtype):
    made = problem((65536,), 4, dtype, heads=1, extra_tokens=0, batch=1)
    gate = made.gate(lrpe_cosine, PHASES)
    assert not gate.passed and gate.errors["angle"] > 1000 * gate.bounds["angle"]
    gate = made.gate(exact, PHASES)
    assert gate.passed, (gate.errors, gate.bounds)


def test_differences_are_seen_across_every_axis_and_without_a_reference():
    theta, shape = torch.rand(1, 2), (5, 6)
    out = exact(torch.ones(1, 1, 30, 4), theta, shape, 0)[0]
    assert difference_error(out, shape, 0) <= error_bounds("float32")["difference"]
    out[0, 7] = out[0, 8]
    assert difference_error(out, shape, 0) > 1e-2
    out[0, 7] = float("nan")
    assert difference_error(out, shape, 0) == float("inf")


def test_angles_of_extra_tokens_vanish():
    assert angles(torch.rand(1, 3), (4,), 3, 2, torch.float32)[:, :2].abs().max() == 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("shape", [(64,), (8, 8), (4, 4, 4)])
def test_predicted_peaks_are_the_measured_ones(shape, batch, dtype):
    made = problem(shape, 12, dtype, batch=batch)
    work = made.workload(lrpe_cosine, PHASES)
    sizes = batch, made.heads, made.tokens, made.d, made.theta.shape[1]
    predicted = predicted_peaks("eager", *sizes, dtype)
    for name, phase in work.phases.items():
        measured = phase_memory(work, phase, "cpu")["peak_mib"] * 2**20
        assert measured == pytest.approx(predicted[name], rel=0.01)


def test_an_unknown_implementation_has_no_prediction():
    assert predicted_peaks("mine", 1, 1, 1, 1, 1, "float32") == {}


@pytest.mark.gpu
@pytest.mark.parametrize("cached", [False, True])
def test_predicted_peaks_of_the_kernel(cached):
    from lmperf.lrpe.triton import lrpe_cosine as ours
    from lmperf.lrpe.triton import lrpe_cosine_cached

    made = LrpeProblem(12, 12, (64, 64), 128, 10, "bfloat16", "cuda", seed=5)
    work = made.workload(lrpe_cosine_cached if cached else ours, PHASES)
    name = "triton_cached" if cached else "triton"
    predicted = predicted_peaks(name, 12, 12, made.tokens, 128, 64, "bfloat16")
    for phase, timed in work.phases.items():
        timed.run(timed.before())
        measured = phase_memory(work, timed, "cuda")["peak_mib"] * 2**20
        assert measured == pytest.approx(predicted[phase], rel=0.01)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_copy_reads_and_writes_as_many_bytes_as_each_direction(dtype):
    made = problem(dtype=dtype)
    work = made.copy(PHASES)
    expected = made.workload(lrpe_cosine, PHASES)
    source, target = made.x.nbytes, made.gradient.nbytes
    for name, written in (("forward", target), ("backward", source)):
        assert work.phases[name].bytes == expected.phases[name].bytes == source + target
        assert work.phases[name].run(None).nbytes == written
    for seed in (1, 2):
        work.freshen(seed)
        narrow, wide = (work.phases[name].run(None).clone() for name in ("backward", "forward"))
        assert torch.equal(narrow, wide.bfloat16())
        assert narrow.float().std() > 0.9
