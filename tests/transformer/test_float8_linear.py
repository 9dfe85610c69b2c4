"""Our train step in float8: casts, scales, gradients, and the gate of such steps."""

import math
from copy import deepcopy
from dataclasses import replace
from functools import partial

import pytest
import torch
import triton
import triton.language as tl
from torch._dynamo.testing import CompileCounterWithBackend
from triton.runtime import interpreter

from lmperf.benchmark import Unsupported
from lmperf.transformer import float8_blocks, fused_loss, sizes  # noqa: F401 - defines operators
from lmperf.transformer.float8_kernels import CELL, cast_weights, float8_cast, next_scales
from lmperf.transformer.float8_linear import (
    GRADIENT,
    INPUT,
    WEIGHT,
    Operands,
    linear_layers,
)
from lmperf.transformer.model import TransformerLM, twin_of
from lmperf.transformer.model_problem import ModelProblem
from lmperf.transformer.steps import FP8_GRAPH
from lmperf.transformer.trainer import Trainer
from lmperf.transformer.training import decay_groups

pytestmark = pytest.mark.interpreter

COMPILE = torch.compile
# E4M3 has three bits of mantissa, and its least normal number is 2^-6: what rounding changes.
RELATIVE, ABSOLUTE = 2.0**-4, 2.0**-10
UNCAPTURED, TOLERANCE = replace(FP8_GRAPH, capture=None), "fp8_graph"


@pytest.fixture(autouse=True)
def tiny_models(small_models, monkeypatch):
    """Smaller ones than in other tests: Triton's interpreter runs all of their kernels."""
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    monkeypatch.setitem(sizes.SIZES, "for tests", sizes.ModelSize(32, 48, 1, 2))


@pytest.fixture(autouse=True)
def right_casts(monkeypatch):
    """Triton's interpreter (3.7) loses the carry of a mantissa: 31.1 becomes 16 in float8."""
    convert = interpreter._convert_float

    def converted(data, source, target, mode):
        if target != tl.float8e4nv:
            return convert(data, source, target, mode)
        assert source == tl.float32
        return torch.from_numpy(data).to(torch.float8_e4m3fn).view(torch.uint8).numpy()

    monkeypatch.setattr(interpreter, "_convert_float", converted)


def cell(scale, greatest=0.0):
    return torch.tensor([1 / scale, scale, greatest, 0.0])


def assert_rounded(low, x, scale):
    """low is x in float8 by a scale, to nearest, saturated."""
    wanted = (x.double() * scale).clamp(-448, 448)
    allowed = (wanted.abs() * RELATIVE).clamp(min=ABSOLUTE)
    assert ((low.double() - wanted).abs() <= allowed).all()


@pytest.mark.parametrize("scale", [2.0**-3, 1.0, 2.0**12])
def test_cast_rounds_saturates_and_takes_the_greatest_magnitude(scale):
    x = torch.randn(3, 2049).bfloat16()
    cells = torch.stack([cell(1.0), cell(scale)])
    assert_rounded(float8_cast(x, cells, 1), x, scale)
    assert cells[1, 2] == x.abs().max() and cells[0, 2] == 0
    float8_cast(x / 2, cells, 1)
    assert cells[1, 2] == x.abs().max()


def test_weights_are_cast_row_major_and_transposed():
    """Two launches for one shape, and one for another."""
    matrices = []
    for shape in ((8, 16), (80, 144), *[(8, 16)] * 16):
        weight = 0.02 * torch.randn(shape).bfloat16()
        rows = torch.empty(shape, dtype=torch.float8_e4m3fn)
        matrices.append((weight, rows, rows.new_empty(shape[::-1]), cell(2.0**12)))
    cast_weights(matrices)
    for weight, rows, columns, scale in matrices:
        assert_rounded(rows, weight, 2.0**12)
        assert torch.equal(columns.float(), rows.float().T)
        assert scale[2] == weight.abs().max()


def test_next_scales_leave_room_and_keep_those_without_a_magnitude():
    cells = torch.stack([cell(4.0, most) for most in (0.0, float("inf"), 3.0, 1e-7)] * 50)
    next_scales(cells)
    assert cells[:2, 1].tolist() == [4.0, 4.0]
    for scale, most in zip(cells[2:4, 1].tolist(), (3.0, 1e-7), strict=True):
        assert 448 / 4 < scale * most <= 448 / 2 and scale.hex().startswith("0x1.000")
    assert torch.equal(cells[:, 0] * cells[:, 1], torch.ones(200))
    assert not cells[:, 2].any() and torch.equal(cells[:4], cells[-4:])


def test_matmul_is_that_of_rounded_operands():
    """Rounding changes a product of float8 operands by at most 2 r + r^2 of its magnitudes."""
    weight, x = 0.02 * torch.randn(96, 64).bfloat16(), torch.randn(16, 64).bfloat16()
    cells = torch.ones(3, CELL)
    cells[INPUT, 2], cells[WEIGHT, 2] = x.abs().max(), weight.abs().max()
    next_scales(cells)
    operands = Operands(torch.nn.Parameter(weight), cells)
    cast_weights([(weight, operands.rows, operands.columns, cells[WEIGHT])])
    low = float8_cast(x, cells, INPUT)
    product = torch.ops.lmperf.float8_matmul(low, operands.rows, cells, INPUT).double()
    left, right, bf16 = x.double(), weight.double().T, 2.0**-8
    allowed = (2 * RELATIVE + RELATIVE**2 + bf16) * (left.abs() @ right.abs()) + 1e-12
    assert ((product - left @ right).abs() <= 1.01 * allowed).all()


def test_kernels_store_what_they_compute_in_float8():
    """Each result in float8 is that of float32 values, and so is the greatest magnitude."""
    width = 80
    x, branch, grad_normed, grad_residual = torch.randn(4, 1, 6, width).bfloat16()
    weight, scale = torch.rand(width).bfloat16(), 2.0**4
    cells = torch.stack([cell(scale)] * 3)

    def assert_stored(found, low, number):
        """found: the same in bf16, which rounding moved by 2^-7 at most: Triton's interpreter
        truncates."""
        wanted = found.double() * scale
        allowed = (wanted.abs() * (RELATIVE + 2.0**-6)).clamp(min=ABSOLUTE)
        assert ((low.double() - wanted).abs() <= allowed).all()
        greatest = float(found.abs().max())
        assert float(cells[number, 2]) == pytest.approx(greatest, rel=2.0**-7)
        cells[number, 2] = 0

    ops = torch.ops.lmperf
    total, normed, low = ops.added_rms_norm_float8(x, branch, weight, 1e-5, cells)
    plain = ops.added_rms_norm(x, branch, weight, 1e-5)
    assert torch.equal(total, plain[0]) and torch.equal(normed, plain[1])
    assert_stored(normed, low, INPUT)

    grads = x, weight, grad_normed, grad_residual, 1e-5
    grad, low, grad_weight = ops.rms_norm_gradient_float8(*grads, cells)
    plain = ops.rms_norm_gradient(*grads, torch.bfloat16)
    assert torch.equal(grad, plain[0]) and torch.equal(grad_weight, plain[2])
    assert_stored(grad, low, GRADIENT)

    gate_up, grad_out = torch.randn(1, 6, 2 * width).bfloat16(), torch.randn(1, 6, width).bfloat16()
    out, low = ops.swiglu_float8(gate_up, cells)
    assert torch.equal(out, ops.swiglu(gate_up))
    assert_stored(out, low, INPUT)
    grad, low = ops.swiglu_gradient_float8(gate_up, grad_out, cells)
    assert torch.equal(grad, ops.swiglu_gradient(gate_up, grad_out))
    assert_stored(grad, low, GRADIENT)

    parts, (cos, sin) = torch.randn(3, 2, 4, 3, 8).bfloat16(), torch.rand(2, 4, 4)
    grad, low = ops.rope_gradient_float8(*parts, cos, sin, cells)
    assert torch.equal(grad, ops.rope_gradient(*parts, cos, sin))
    assert_stored(grad, low, GRADIENT)


def problem_and_step():
    maker = UNCAPTURED
    problem = ModelProblem("for tests", 4, 1, "cpu", 0, prepare=maker.prepare("bfloat16"))
    inputs = problem.optimizer, problem.tokens, problem.targets, "bfloat16"
    return problem, maker.step(twin_of(problem.model), *inputs)


def test_step_passes_the_gate_of_float8_and_not_that_of_bf16():
    problem, step = problem_and_step()
    assert problem.gate_run(step, "bfloat16", TOLERANCE).passed
    problem.freshen(7)
    result = problem.step_phase(step).run(None)
    assert problem.check("bfloat16", "train_step", result, TOLERANCE).passed
    assert not problem.gate_run(step, "bfloat16").passed


def test_weights_follow_the_optimizer_and_scales_the_step_before():
    problem, step = problem_and_step()
    problem.optimizer.param_groups[0]["lr"] = 1e-2
    for _ in range(2):
        step()
        for layer in linear_layers(problem.model):
            operands, weight = layer.float8, layer.weight.detach()
            cells = operands.cells
            assert_rounded(operands.rows, weight, float(cells[WEIGHT, 1]))
            assert torch.equal(operands.columns.float(), operands.rows.float().T)
            assert float(cells[WEIGHT, 2]) == float(weight.abs().max())
            assert float(cells[INPUT, 1]) > 1 and float(cells[GRADIENT, 1]) > 100


@pytest.mark.compile
def test_blocks_share_one_graph_with_the_same_gradients_and_scales(monkeypatch):
    """Besides it, the last norm and the loss have one each."""
    monkeypatch.setitem(sizes.SIZES, "for tests", sizes.ModelSize(32, 48, 2, 2))
    found, backend = [], CompileCounterWithBackend("aot_eager")
    for compiled in (lambda function, **_: function, partial(COMPILE, backend=backend)):
        monkeypatch.setattr(torch, "compile", compiled)
        fused_loss._loss_and_gradient.cache_clear()
        problem, _ = problem_and_step()
        run, model = UNCAPTURED.way(problem.model), problem.model
        loss = run.loss(problem.tokens, problem.targets)
        loss.backward()
        cells = [layer.float8.cells for layer in linear_layers(model)]
        found.append([loss.detach(), *cells, *(p.grad for p in model.parameters())])
    assert all(map(torch.equal, *found)) and backend.frame_count == 3


def trainer_of():
    """A trainer of a model of one layer in float8."""
    torch.manual_seed(0)
    model = TransformerLM(64, 4, 16, 1, 1, 24)
    return Trainer(model, FP8_GRAPH, "bfloat16", 1e-2, decay_groups(model, 0.1), max_norm=1.0)


def test_resumed_float8_trainer_measures_its_scales():
    """So the losses are those of the uninterrupted run within the rounding to float8."""
    batches = torch.randint(64, (3, 2, 1, 4))
    trainer, other = trainer_of(), trainer_of()
    assert float(trainer.loss(*batches[0])) == pytest.approx(math.log(64), rel=0.1)
    trainer.step(*batches[0])
    other.step(*batches[1])
    other.load_state_dict(deepcopy(trainer.state_dict()))
    resumed, expected = (float(one.loss(*batches[2])) for one in (other, trainer))
    assert resumed == pytest.approx(expected, rel=0.01)
    layer = other.model.blocks[0].attention.qkv
    operands = layer.float8
    assert_rounded(operands.rows, layer.weight.detach(), float(operands.cells[WEIGHT, 1]))
    assert float(other.step(*batches[2])) == resumed


def test_device_without_float8_is_refused(monkeypatch):
    monkeypatch.setattr(triton.knobs.runtime, "interpret", False)
    with pytest.raises(Unsupported, match="float8 matmuls need a GPU; the model is on cpu"):
        trainer_of()


@pytest.mark.gpu
def test_graph_in_float8_passes_the_gate_and_reads_new_tokens():
    prepare = FP8_GRAPH.prepare("bfloat16")
    problem = ModelProblem("for tests", 32, 2, "cuda", 0, prepare=prepare)
    inputs = problem.optimizer, problem.tokens, problem.targets, "bfloat16"
    step = FP8_GRAPH.step(twin_of(problem.model), *inputs)
    phase = problem.step_phase(step)
    for seed in (5, 6, 7):
        problem.freshen(seed)
        result = phase.run(None).clone()
        assert problem.check("bfloat16", "train_step", result, TOLERANCE).passed
    assert problem.gate_run(step, "bfloat16", TOLERANCE).passed
