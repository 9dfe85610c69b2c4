"""What is refused by its signature, and the one line that says what to write."""

import functools

import pytest
import torch
from torch import nn

from examples.student_attention import FlashAttention
from examples.student_ddp import DDP
from examples.student_model import LanguageModel
from examples.student_step import train_step
from lmperf.benchmark import Implementation, Unsupported
from lmperf.benchmarks import load
from lmperf.own.signatures import bound, causal_flag, fault_of, hooks_of, is_step, kind_of


def keyword_only(q, k, v, *, is_causal=False):
    pass


def masked(Q, K, V, mask=None):
    pass


def keys_first(K, Q, V, causal=False):
    pass


def needs_scale(q, k, v, causal, sm_scale):
    pass


def keywords_only(*, q, k, v, causal):
    pass


def anything(*arguments, **options):
    pass


class ScaledFlash(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, scale, is_causal=False):
        pass


class WithContext(torch.autograd.Function):
    @staticmethod
    def forward(q, k, v, is_causal):
        pass

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass


class Attention(nn.Module):
    def forward(self, q, k, v, causal=False):
        pass


class NoModule:
    pass


class FromConfig(nn.Module):
    def __init__(self, config, *, cache):
        super().__init__()


class NeedsTargets(LanguageModel):
    def forward(self, tokens, targets):
        pass


class Buckets(DDP):
    def __init__(self, module, bucket_size_mb):
        super().__init__(module)


class OtherName(nn.Module):
    def __init__(self, module):
        super().__init__()

    def sync_gradients(self):
        pass


class NoGather(DDP):
    def __init__(self, module, compute_dtype=None):
        super().__init__(module)

    def full_state(self):
        pass


def optimizer_first(optimizer_cls, params, **options):
    pass


def one_option(params, optimizer_cls, lr):
    pass


ALONE = "write a function of (q, k, v, causal) that calls it"


@pytest.mark.parametrize(
    ("takes", "found", "words"),
    [
        ("attention", masked, f"it has no argument causal or is_causal; {ALONE}"),
        ("attention", keys_first, f"it takes K, Q, V in this order; {ALONE}"),
        ("attention", needs_scale, f"missing a required argument: 'sm_scale'; {ALONE}"),
        ("attention", keywords_only, f"too many positional arguments; {ALONE}"),
        ("attention", ScaledFlash, f"is_causal is not the fourth argument of apply; {ALONE}"),
        ("attention", ScaledFlash.apply, "is_causal is not the fourth argument"),
        ("attention", Attention, "that is a class; it must be a function of (q, k, v, causal=...)"),
        ("lrpe", keys_first, ""),
        ("lrpe", FlashAttention, "that is a class; it must be a function of (x, theta, shape"),
        ("lrpe", lambda x, theta: x, "as (x, theta, shape, extra_tokens): too many positional"),
        ("model", LanguageModel, ""),
        ("model", NoModule, "that is a class; it must be a model class, a function that takes"),
        ("model", FromConfig, "requires config, cache; it may take vocab_size, context_length, d_"),
        ("model", NeedsTargets, "its forward cannot be called as (tokens): missing a required"),
        ("model", nn.Linear(1, 1), "that is a model; name its class, Linear"),
        ("model", lambda model, opt, x, y: x, ""),
        ("model", lambda model, x, y, optimizer: x, "takes (model, x, y, optimizer); write a fun"),
        ("model", lambda model, opt, labels, x: x, "takes (model, opt, labels, x); write a functi"),
        ("model", lambda model, optimizer: model, "as (model): missing a required argument: 'opti"),
        ("strategy", Buckets, "'bucket_size_mb'; write a function of (module) that calls it"),
        ("strategy", OtherName, "has no finish_gradient_synchronization; it has sync_gradients: "),
        ("strategy", NoGather, "NoGather has no gather_full_params; it has full_state: rename"),
        ("strategy", optimizer_first, "it takes optimizer_cls first; write a function of (params"),
        ("strategy", one_option, "got an unexpected keyword argument 'eps'; write a function of"),
    ],
)
def test_refusal_names_the_argument_and_what_to_write(takes, found, words):
    assert words in fault_of(found, takes) and bool(words) == bool(fault_of(found, takes))


@pytest.mark.parametrize(
    ("found", "flag"),
    [
        (keyword_only, "is_causal"),
        (functools.partial(needs_scale, sm_scale=1.0), "causal"),
        (anything, "causal"),
        (FlashAttention, "is_causal"),
        (FlashAttention.apply, "is_causal"),
        (WithContext, "is_causal"),
        (Attention(), "causal"),
    ],
)
def test_flag_of_an_attention_is_found_by_its_name(found, flag):
    assert causal_flag(found) == flag and not fault_of(found, "attention")


@pytest.mark.compile
def test_compiled_attention_without_a_flag_is_refused():
    compiled = torch.compile(masked)
    assert not causal_flag(compiled) and fault_of(compiled, "attention")


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        (DDP, "ddp"),
        (NoGather, "fsdp"),
        (optimizer_first, "sharded_optimizer"),
        (torch.optim.AdamW, "sharded_optimizer"),
    ],
)
def test_kind_of_a_strategy_follows_from_its_arguments(made, kind):
    assert kind_of(made) == kind


def get_wrapped(module, bucket_size_mb):
    pass


def wrapped_on_after_backward(ddp_model, optimizer):
    pass


def test_hooks_are_the_functions_beside_an_adapter():
    expected = {"finish_gradient_synchronization": wrapped_on_after_backward}
    assert hooks_of(get_wrapped) == expected
    assert hooks_of(functools.partial(get_wrapped, bucket_size_mb=1)) == expected
    assert hooks_of(DDP) == hooks_of(anything) == {}


class Called:
    """A wrapper that is no module."""

    def __init__(self, module, *, bucket_size_mb=None):
        self.cached = module, bucket_size_mb

    def __call__(self, *inputs):
        return self.cached


def test_wrapper_needs_no_base_class_but_is_called():
    assert not fault_of(Called, "strategy") and kind_of(Called) == "ddp"
    assert "that is a class" in fault_of(NoModule, "strategy")
    assert "that is a class" in fault_of(Called, "attention")


@pytest.mark.parametrize("made", [Called, Buckets, lambda module, bucket_size_mb: bucket_size_mb])
def test_given_options_are_arguments_no_more(made):
    given = bound(made, {"bucket_size_mb": 3})
    assert not fault_of(given, "strategy") and kind_of(given) == "ddp"
    assert isinstance(given, type) == isinstance(made, type) and bound(made, {}) is made
    if made is Called:
        assert given("model")() == ("model", 3) and isinstance(given("model"), Called)
    assert not fault_of(made, "strategy", options={"bucket_size_mb": 3})
    words = "it takes no argument size; it takes module, bucket_size_mb"
    assert fault_of(made, "strategy", options={"size": 3}) == words


def test_strategy_of_another_kind_is_named():
    assert "it is what --as ddp tries; try that, or write" in fault_of(DDP, "strategy", "fsdp")
    assert not fault_of(DDP, "strategy", "ddp")
    assert not fault_of(nn.parallel.DistributedDataParallel, "strategy", "ddp")


def test_train_step_is_recognised_by_its_signature():
    assert is_step(train_step) and is_step(lambda model, optimizer, tokens, targets, scale=1: None)
    assert not is_step(LanguageModel) and not is_step(lambda model: model)
    assert not is_step(torch.relu) and not is_step(3)


def test_measuring_refuses_with_the_same_words(monkeypatch):
    monkeypatch.setattr("lmperf.own.kinds.imported", lambda entry: masked)
    benchmark = load("attention", {"mine": Implementation("mine", "a.b:masked", origin="custom")})
    with pytest.raises(Unsupported, match=r"a\.b:masked: it has no argument causal or is_causal;"):
        benchmark.callable_of("mine")
