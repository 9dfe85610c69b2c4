"""Linear layers with bf16 copies of their weights: the values of autocast without its casts."""

from dataclasses import replace
from functools import partial
from itertools import groupby

import pytest
import torch
from functorch.compile import make_boxed_func
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch.utils._python_dispatch import TorchDispatchMode

from lmperf.benchmark import Case
from lmperf.benchmarks import load
from lmperf.measuring.weights import Weights
from lmperf.transformer.copied_linear import CopiedLinear, with_copies
from lmperf.transformer.fused_adamw import FusedAdamW
from lmperf.transformer.implementations import hidden_by_block
from lmperf.transformer.model import TransformerLM, twin_of
from lmperf.transformer.steps import (
    FUSED_BLOCKS,
    FUSED_GRAPH,
    GRAPH,
    SDPA_COPIES_GRAPH,
    SDPA_GRAPH,
    step_maker,
)
from lmperf.transformer.training import adamw, autocast, loss_of

AUTOCAST = "autocast_bfloat16"
UNCAPTURED, SDPA = (replace(maker, capture=None) for maker in (GRAPH, SDPA_COPIES_GRAPH))


@pytest.fixture(autouse=True)
def without_compiler(small_models, monkeypatch, request):
    """Replace torch.compile by a function that returns its argument, but on a GPU."""
    if request.node.get_closest_marker("gpu") is None:
        monkeypatch.setattr(torch, "compile", lambda function, **_: function)


def model_of(device="cpu"):
    torch.manual_seed(0)
    with torch.device(device):
        return TransformerLM(1000, 32, 64, 2, 4, 128)


def tokens_of(device="cpu"):
    chance = torch.Generator().manual_seed(1)
    return torch.randint(1000, (2, 2, 24), generator=chance).to(device)


def with_copies_of(model):
    with_copies(model)
    return model


def copied(model):
    return [layer for layer in model.modules() if isinstance(layer, CopiedLinear)]


def assert_copies_are_current(model):
    assert len(copied(model)) == 4 * len(model.blocks)
    for layer in copied(model):
        assert layer.copy.dtype == torch.bfloat16
        assert torch.equal(layer.copy, layer.weight.bfloat16())


def gradients(model, way):
    """The loss, and the gradient of each parameter, of a way to run the model."""
    run, (tokens, targets) = way(twin_of(model)), tokens_of()
    with autocast(AUTOCAST, "cpu"):
        loss = loss_of(run, tokens, targets)
    loss.backward()
    return {"loss": loss.detach(), **{name: p.grad for name, p in model.named_parameters()}}


@pytest.mark.parametrize("maker", [UNCAPTURED, SDPA], ids=["fused", "sdpa"])
def test_loss_and_gradients_are_those_of_autocast_to_the_bit(maker):
    plain, ours = model_of(), with_copies_of(model_of())
    expected, found = gradients(plain, maker.way), gradients(ours, maker.way)
    for name, value in expected.items():
        is_copied = "blocks" in name and "norm" not in name
        assert found[name].dtype == (torch.bfloat16 if is_copied else torch.float32)
        assert torch.equal(found[name].float(), value), name


class Casts(TorchDispatchMode):
    """Records the shapes of the tensors that are cast, in eager mode and in graphs of Dynamo.

    Attributes:
        backend: a backend of torch.compile.
    """

    def __init__(self):
        super().__init__()
        self.shapes = set()
        self.backend = aot_autograd(fw_compiler=self._graph, bw_compiler=self._graph)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten._to_copy.default:
            self.shapes.add(tuple(args[0].shape))
        return func(*args, **(kwargs or {}))

    def _graph(self, graph, _):
        casts = graph.graph.find_nodes(op="call_function", target=torch.ops.aten._to_copy.default)
        self.shapes |= {tuple(node.args[0].meta["val"].shape) for node in casts}
        return make_boxed_func(graph.forward)


def shapes_of_copied(model):
    return {tuple(p.shape) for p in model.blocks.parameters() if p.ndim == 2}


@pytest.mark.parametrize("prepared", [False, True])
def test_step_casts_neither_copied_weights_nor_their_gradients(prepared):
    model = with_copies_of(model_of()) if prepared else model_of()
    with Casts() as casts:
        gradients(model, UNCAPTURED.way)
    shapes = shapes_of_copied(model)
    assert casts.shapes & shapes == (set() if prepared else shapes)


@pytest.mark.compile
def test_compiled_blocks_cast_neither_and_have_the_same_gradients(monkeypatch):
    expected, casts = gradients(model_of(), lambda model: model), Casts()
    monkeypatch.undo()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=casts.backend))

    def compiled(model):
        hidden = hidden_by_block(model)
        return lambda tokens: model.head(model.norm(hidden(tokens)))

    model = with_copies_of(model_of())
    for parameter in model.parameters():  # as when a later step is compiled
        parameter.grad = torch.zeros_like(parameter, dtype=parameter.grad_dtype)
    found = gradients(model, compiled)
    for name, value in expected.items():
        assert torch.equal(found[name].float(), value), name
    assert casts.shapes and not casts.shapes & shapes_of_copied(model)


@pytest.mark.parametrize("maker", [UNCAPTURED, SDPA], ids=["fused", "sdpa"])
def test_three_steps_are_those_of_adamw_and_keep_copies_current(maker, device="cpu"):
    model, other = model_of(device), model_of(device)
    optimizer, theirs = maker.prepare(AUTOCAST)(model, 1e-2), adamw(other, 1e-2)
    assert_copies_are_current(model)
    step = maker.step(twin_of(model), optimizer, *tokens_of(device), AUTOCAST)
    for _ in range(3):
        before = model.blocks[0].attention.qkv.copy.detach().clone()  # no node of autograd
        step()
        for mine, parameter in zip(model.parameters(), other.parameters(), strict=True):
            parameter.grad = mine.grad.float()
        theirs.step()
        assert_copies_are_current(model)
        assert not torch.equal(before, model.blocks[0].attention.qkv.copy)
    for mine, parameter in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, parameter, rtol=1e-5, atol=1e-6)
        assert optimizer.state[mine]["exp_avg"].dtype == torch.float32


def test_weights_that_are_put_back_bring_their_copies():
    model = model_of()
    optimizer = UNCAPTURED.prepare(AUTOCAST)(model, 1e-2)
    kept, expected = Weights(), [layer.copy.clone() for layer in copied(model)]
    kept.keep([model, optimizer])
    UNCAPTURED.step(twin_of(model), optimizer, *tokens_of(), AUTOCAST)()
    assert kept.restore()
    assert_copies_are_current(model)
    assert all(map(torch.equal, expected, [layer.copy for layer in copied(model)]))


def test_second_preparation_copies_the_weights_of_today():
    model = model_of()
    UNCAPTURED.prepare(AUTOCAST)(model, 1e-2)
    with torch.no_grad():
        model.blocks[0].attention.qkv.weight.mul_(2)
    optimizer = UNCAPTURED.prepare(AUTOCAST)(model, 1e-2)
    assert_copies_are_current(model)
    UNCAPTURED.step(twin_of(model), optimizer, *tokens_of(), AUTOCAST)()
    assert_copies_are_current(model)


@pytest.mark.parametrize(
    "maker, dtype",
    [(GRAPH, "tf32"), *((maker, AUTOCAST) for maker in (FUSED_BLOCKS, FUSED_GRAPH, SDPA_GRAPH))],
)
def test_other_steps_leave_the_layers_of_a_model(maker, dtype):
    model = model_of()
    assert not isinstance(maker.prepare(dtype)(model, 0.0), FusedAdamW)
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    assert len(layers) == 9 and not copied(model)
    assert {parameter.grad_dtype for parameter in model.parameters()} == {torch.float32}


def test_gradients_of_two_backward_passes_add_up():
    model = with_copies_of(model_of())
    once = {name: one.clone() for name, one in gradients(model, lambda model: model).items()}
    twice = gradients(model, lambda model: model)
    for layer in model.blocks:
        assert layer.attention.qkv.copy.grad is None
    assert all(torch.equal(twice[name], 2 * once[name]) for name in once if name != "loss")


def test_prepared_model_in_float64_multiplies_by_its_weights():
    plain, ours = model_of().double(), with_copies_of(model_of())
    tokens, _ = tokens_of()
    assert {layer.copy.dtype for layer in copied(ours.double())} == {torch.bfloat16}
    assert torch.equal(ours(tokens), plain(tokens))


@pytest.mark.slow
def test_cases_of_a_group_share_a_model_by_their_optimizer(monkeypatch):
    monkeypatch.setattr("lmperf.transformer.steps.GRAPH", UNCAPTURED)
    monkeypatch.setattr("lmperf.compiler.require_compiler", lambda device: None)
    benchmark, shared = load("end_to_end"), {}
    monkeypatch.setattr(
        benchmark, "require", lambda case, _: benchmark.implementation(case.implementation)
    )
    cell = {"size": "for tests", "context_length": 32, "batch": 2, "dtype": AUTOCAST}
    for name, models in (("eager", 1), ("fused_loss", 1), ("graph", 2), ("eager", 2)):
        work = benchmark.prepare(Case(tuple(cell.items()), name), "cpu", 1, shared)
        phase = work.phases["train_step"]
        assert work.gate(["train_step"]).passed and len(shared) == models
        assert work.check("train_step", phase.run(phase.before())).passed


def test_cases_of_one_model_follow_each_other():
    benchmark = load("end_to_end")
    for group in benchmark.groups(benchmark.cases("full")):
        makers = [step_maker(benchmark.callable_of(case.implementation)) for case in group]
        pairs = zip(makers, group, strict=True)
        prepared = [maker.prepare(case.axes["dtype"]) for maker, case in pairs]
        assert len([*groupby(prepared)]) == len({*prepared})


@pytest.mark.gpu
@pytest.mark.parametrize("maker", [GRAPH, SDPA_COPIES_GRAPH], ids=["fused", "sdpa"])
def test_replays_of_a_graph_keep_copies_current(maker):
    model = model_of("cuda")
    optimizer = maker.prepare(AUTOCAST)(model, 1e-2)
    step = maker.step(twin_of(model), optimizer, *tokens_of("cuda"), AUTOCAST)
    for _ in range(3):
        before = model.blocks[0].attention.qkv.copy.detach().clone()  # no node of autograd
        step()
        assert_copies_are_current(model)
        assert not torch.equal(before, model.blocks[0].attention.qkv.copy)
    assert {layer.weight.grad.dtype for layer in copied(model)} == {torch.bfloat16}


@pytest.mark.gpu
@pytest.mark.parametrize("maker", [UNCAPTURED, SDPA], ids=["fused", "sdpa"])
def test_compiled_steps_on_a_gpu_are_those_of_adamw(maker):
    test_three_steps_are_those_of_adamw_and_keep_copies_current(maker, "cuda")
