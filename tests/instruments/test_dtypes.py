from functools import partial

import pytest
import torch
from torch._functorch import config

from lmperf.instruments.dtypes import accumulate, introspect

FLOAT32, FLOAT16, BFLOAT16 = torch.float32, torch.float16, torch.bfloat16


@pytest.mark.parametrize(
    "accumulator, addend, upcast, published",
    [
        (FLOAT32, FLOAT32, False, 10.0001),
        (FLOAT16, FLOAT16, False, 9.9531),
        (FLOAT32, FLOAT16, False, 10.0021),
        (FLOAT32, FLOAT16, True, 10.0021),
        (BFLOAT16, BFLOAT16, False, 4.0),
    ],
)
def test_accumulation_matches_published_sums(accumulator, addend, upcast, published):
    assert accumulate(accumulator, addend, upcast) == pytest.approx(published, abs=5e-5)


def as_dict(observed) -> dict[str, str]:
    names = [(tensor, kind) for tensor, kind, _ in observed]
    assert len(set(names)) == len(names)
    return {tensor: dtype for tensor, _, dtype in observed}


def test_toy_model_under_autocast():
    seen = as_dict(introspect("toy", FLOAT16))
    assert {seen[name] for name in ("fc1", "relu", "fc2", "logits")} == {"float16"}
    assert {seen[name] for name in seen if "weight" in name or "bias" in name} == {"float32"}
    assert seen["loss"] == "float32"
    assert {"ln", "ln.bias.grad", "fc2.weight.grad"} <= set(seen)


def test_block_keeps_residual_stream_and_norms_in_float32():
    seen = as_dict(introspect("transformer_block", BFLOAT16))
    linear = ("attention.qkv", "attention.output", "feed_forward.gate_up", "feed_forward.down")
    rotated = ("attention.rotary", "attention.rotary[1]")
    assert {seen[name] for name in linear + rotated} == {"bfloat16"}
    for name in ("attention_norm", "feed_forward_norm", "block", "loss"):
        assert seen[name] == "float32"


@pytest.mark.compile
def test_compiled_model_has_the_dtypes_of_its_own_autocast(monkeypatch):
    """A graph in the cache of AOTAutograd may be of another dtype (pytorch/pytorch#181564)."""
    cached = []

    def backend(graph, inputs):
        cached.append(config.enable_autograd_cache)
        return graph.forward

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    for low in (FLOAT16, BFLOAT16):
        torch._dynamo.reset()
        assert introspect("toy", low, compiled=True) == introspect("toy", low)
    assert config.enable_autograd_cache and set(cached) == {False}
