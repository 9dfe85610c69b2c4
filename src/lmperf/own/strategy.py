"""Makes a user's strategy, a class or function, a training like those of the project."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import torch.distributed as dist
from torch import Tensor, nn

from lmperf.benchmark import Unsupported
from lmperf.distributed.data_parallel import DataParallel
from lmperf.distributed.strategies import Setup, Training, replicated
from lmperf.own.signatures import hooks_of, kind_of, wrapper_fault
from lmperf.transformer.model import TransformerLM


def trained(made: Callable, setup: Setup) -> Training:
    """Training with a user's class or function of one of the kinds of `kind_of`.

    After the backward pass `finish_gradient_synchronization()` of a wrapper is called if it has
    one. A fully sharded wrapper needs `gather_full_params()`, which returns name -> whole weight.
    The functions of `hooks_of` come before these methods.

    Raises:
        Unsupported: a wrapper has such a method by another name; a fully sharded one has no
            `gather_full_params()`, it lacks a weight, or every rank holds all weights.
    """
    kind = kind_of(made)
    if kind == "sharded_optimizer":
        model = DataParallel(setup.model)
        optimizer = made(model.parameters(), setup.optimizer_cls, **setup.options)
        return replicated(setup, model, optimizer)
    whole = _elements(setup.model)
    dtype = {"compute_dtype": setup.compute_dtype} if kind == "fsdp" else {}
    model = made(setup.model, **dtype)
    hooks = hooks_of(made)
    if fault := wrapper_fault(type(model), kind, hooks):
        raise Unsupported(fault)
    if kind == "ddp":
        training = replicated(setup, model, setup.optimizer(setup.model.parameters()))
        return _with_hooks(training, hooks)
    if dist.get_world_size() > 1 and _elements(model) >= whole:
        raise Unsupported(
            f"{type(model).__name__} shards nothing: parameters() of each rank has all {whole:,}"
            f" elements of the model; it must have this rank's shards"
            f"{_sharded_by_class(setup.model)}"
        )
    gather = hooks.get("gather_full_params", lambda model: model.gather_full_params())

    def weights() -> Iterator[tuple[str, Tensor]]:
        found = {name.removeprefix("module."): tensor for name, tensor in gather(model).items()}
        for name in setup.names:
            if name not in found:
                raise Unsupported(f"gather_full_params() returns no weight {name}")
            yield name, found[name].detach()

    training = Training(
        model,
        setup.optimizer(model.parameters()),
        weights=weights,
        gradients=None,
        finish=getattr(model, "finish_gradient_synchronization", lambda: None),
    )
    return _with_hooks(training, hooks)


def _with_hooks(training: Training, hooks: Mapping[str, Callable]) -> Training:
    """The training, which calls the functions of `hooks_of` in the place of methods."""
    called = training.model, training.optimizer
    if "start" in hooks:
        training.start = partial(hooks["start"], *called)
    if "finish_gradient_synchronization" in hooks:
        training.finish = partial(hooks["finish_gradient_synchronization"], *called)
    return training


def _sharded_by_class(model: nn.Module) -> str:
    """What to do for a wrapper that shards layers of its author's classes, on our model."""
    if not isinstance(model, TransformerLM):
        return ""
    return (
        " (the layers of lmperf's model are nn.Linear and nn.Embedding of torch: layers that are"
        " sharded by another class stay; name a model that has them: --option model=NAME, a key of"
        " implementations.end_to_end)"
    )


def _elements(model: nn.Module) -> int:
    """How many elements of parameters this rank holds."""
    local = (getattr(one, "_local_tensor", one) for one in model.parameters())
    return sum(one.numel() for one in local)
