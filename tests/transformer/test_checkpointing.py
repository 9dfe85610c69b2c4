"""Checkpoints recompute activations and change no result."""

import pytest
import torch

from lmperf.attention.triton import arguments
from lmperf.transformer import checkpointing
from lmperf.transformer.checkpointing import ATTENTION, INPUT, MATMULS, Segments, selective_blocks
from lmperf.transformer.implementations import triton
from lmperf.transformer.model import TransformerLM, cross_entropy


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return TransformerLM(97, 24, 32, 5, 4, 64)


def results(model, run):
    tokens, targets = torch.randint(97, (2, 2, 24), generator=torch.Generator().manual_seed(1))
    loss = cross_entropy(run(tokens), targets)
    return [loss.detach(), *torch.autograd.grad(loss, list(model.parameters()))]


@pytest.mark.parametrize("layers, nested", [(0, False), (2, False), (3, True)])
def test_checkpoints_change_no_loss_and_no_gradient(model, layers, nested):
    expected = results(model, model)
    for got, same in zip(results(model, Segments(model, layers, nested)), expected, strict=True):
        torch.testing.assert_close(got, same, rtol=0, atol=0)


@pytest.mark.slow
def test_blocks_that_keep_the_same_share_a_graph(model, monkeypatch):
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    def compiled(function):
        return torch.compile(function, backend=backend, dynamic=False, fullgraph=True)

    monkeypatch.setattr(checkpointing, "compile_static", compiled)
    torch._dynamo.reset()
    hidden = selective_blocks(model, [INPUT, INPUT, ATTENTION, ATTENTION, MATMULS])
    expected = results(model, model)
    got = results(model, lambda tokens: model.head(model.norm(hidden(tokens))))
    assert len(graphs) == 3
    for one, same in zip(got, expected, strict=True):
        torch.testing.assert_close(one, same)


@pytest.mark.compile
@pytest.mark.parametrize(
    ("kept", "attention", "matmuls"), [(INPUT, 0, 0), (ATTENTION, 2, 0), (MATMULS, 2, 3)]
)
def test_compiled_block_keeps_what_it_says(monkeypatch, kept, attention, matmuls):
    """The kernel does not run: what the forward graph returns for the backward pass is counted."""
    # Imported here, since they take a second.
    from functorch.compile import min_cut_rematerialization_partition
    from torch._functorch.aot_autograd import aot_module_simplified

    kept_tensors = []

    def forward_graph(graph, _):
        (returned,) = (node.args[0] for node in graph.graph.nodes if node.op == "output")
        kept_tensors.extend(
            str(_source(node).target) for node in returned if node.op != "placeholder"
        )
        raise NotImplementedError

    def backend(graph, inputs):
        return aot_module_simplified(
            graph, inputs, forward_graph, partition_fn=min_cut_rematerialization_partition
        )

    def compiled(function):
        return torch.compile(function, backend=backend, dynamic=False, fullgraph=True)

    monkeypatch.setattr(arguments, "_check_capability", lambda q: None)
    monkeypatch.setattr(checkpointing, "compile_static", compiled)
    torch._dynamo.reset()
    model = triton(TransformerLM(97, 128, 64, 1, 2, 96))
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed):
        selective_blocks(model, [kept])(torch.zeros(1, 128, dtype=torch.int64))
    assert sum("flash_attention_forward" in name for name in kept_tensors) == attention
    assert sum(name == "aten.mm.default" for name in kept_tensors) == matmuls


def _source(node):
    """The operator of a result: that of its tuple, or that of what it views."""
    while "getitem" in str(node.target):
        node = node.args[0]
    return node
