"""Tests of the arguments that peers (other projects' code) are called with, and their gates."""

import sys
from types import ModuleType

import pytest
import torch
from torch.nn import functional as F

from lmperf.attention.problem import AttentionProblem
from lmperf.benchmark import Case
from lmperf.benchmarks import load
from lmperf.config import Config
from lmperf.measuring.progress import Progress
from lmperf.measuring.supervisor import Supervisor
from lmperf.peers.liger import with_kernels
from lmperf.transformer.model import TransformerLM, twin_of

pytestmark = pytest.mark.slow


def benchmark(stem):
    return load(stem, Config().external(stem))


@pytest.mark.parametrize("causal", [True, False])
def test_flash_attn_gets_positions_before_heads(packages, causal):
    packages.install("flash-attn", "2.8.3")
    attention = benchmark("flash_attention").callable_of("flash_attn")
    problem = AttentionProblem((2, 3, 64, 16), "bfloat16", causal, "cpu", seed=1)
    phases = ("forward", "backward")
    assert problem.workload(attention, phases).gate(phases).passed


def test_gpt2_is_built_from_a_size_and_passes_its_gate(packages):
    packages.install("transformers", "5.0")
    axes = {"size": "tiny", "context_length": 16, "batch": 1, "dtype": "float32"}
    case, found = Case(tuple(axes.items()), "gpt2_hf"), benchmark("end_to_end")
    assert found.prepare(case, "cpu", 1, {}).gate(list(found.phases)).passed
    (row,) = benchmark("memory").observe(case, "forward", "cpu", 1)
    assert row["peak_mib"] > 0


def test_broken_package_gives_a_row_with_the_reason(packages):
    packages.install("transformers", "5.0", "raise ImportError('undefined symbol')")
    made = benchmark("end_to_end")
    case = next(case for case in made.cases("cpu") if case.implementation == "gpt2_hf")
    rows = []
    Supervisor(made, "cpu", Progress("peers", 1)).measure([[case]], rows.extend)
    assert {row["status"] for row in rows} == {"crash"}
    assert "ImportError: undefined symbol" in rows[0]["reason"]


class Norm(torch.autograd.Function):
    """x / rms(x) * weight. Like Liger's function, it writes dx into dy."""

    @staticmethod
    def forward(ctx, x, weight, eps, offset=0.0, casting_mode="llama", in_place=True):
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return F.rms_norm(x, x.shape[-1:], weight, eps)

    @staticmethod
    def backward(ctx, dy):
        with torch.enable_grad():
            x, weight = (one.detach().requires_grad_() for one in ctx.saved_tensors)
            y = F.rms_norm(x, x.shape[-1:], weight, ctx.eps)
        dx, dweight = torch.autograd.grad(y, (x, weight), dy)
        return dy.copy_(dx), dweight, None


class SiLUMul(torch.autograd.Function):
    """silu(gate) * up of [tokens, 2 * d_ff]. Like Liger's, its gradient has two dimensions."""

    @staticmethod
    def forward(ctx, gate_up, in_place=False):
        ctx.save_for_backward(gate_up)
        gate, up = gate_up.chunk(2, -1)
        return F.silu(gate) * up

    @staticmethod
    def backward(ctx, dy):
        with torch.enable_grad():
            gate_up = ctx.saved_tensors[0].detach().requires_grad_()
            gate, up = gate_up.chunk(2, -1)
            y = F.silu(gate) * up
        (gradient,) = torch.autograd.grad(y, gate_up, dy)
        return gradient.view(-1, gradient.shape[-1]), None


def test_liger_matches_the_model_and_leaves_it_unchanged(monkeypatch):
    package, ops = ModuleType("liger_kernel"), ModuleType("liger_kernel.ops")
    ops.LigerRMSNormFunction, ops.LigerFusedGateUpSiLUMulFunction = Norm, SiLUMul
    monkeypatch.setitem(sys.modules, "liger_kernel", package)
    monkeypatch.setitem(sys.modules, "liger_kernel.ops", ops)
    torch.manual_seed(0)
    model = TransformerLM(100, 16, 32, 2, 2, 64).double()
    modules, tokens = list(model.modules()), torch.randint(100, (2, 16))
    changed = with_kernels(twin_of(model))
    assert [type(one).__name__ for one in changed.modules()].count("_Norm") == 5
    results = []
    for run in (model, changed):
        model.zero_grad()
        logits = run(tokens)
        logits.square().sum().backward()
        results.append([logits, *(parameter.grad for parameter in model.parameters())])
    for expected, got in zip(*results, strict=True):
        torch.testing.assert_close(got, expected)
    assert list(model.modules()) == modules
